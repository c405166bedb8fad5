//! The forward pass of sixteen rows.

use super::super::gating_forward::GatingForward;
use super::super::key::{Biased, Score, Sigmoid};
use super::super::{RouterKind, SIGMOID_EPS};
use super::{K, ROWS, SLOTS, exponentials, load, spread_across, sums_across, total};
use crate::logits::weight;
use crate::num::{self, Arith};
use crate::ragged::{Cells, In, Span, flag, sink};
use crate::team::order::ordered;
use crate::team::{PAIRED, PickedRows, Team};
use core::cell::Cell;

/// Number of experts in a group, and number of groups.
const GROUP: usize = PAIRED;
const GROUPS: usize = K;

/// σ(s) + b for all experts of a row; returns the alarm of both.
#[inline(always)]
fn biased<A: Arith, const E: usize>(x: &mut [f32; E], scores: &[f32], bias: Option<&[f32]>) -> u32 {
    let (scores, mut alarm) = (&scores[..E], 0);
    for e in 0..E {
        alarm = alarm.max(flag::finite(scores[e]));
    }
    for e in 0..E {
        x[e] = num::sigmoid::<A>(scores[e]);
    }
    if let Some(bias) = bias {
        let bias = &bias[..E];
        for e in 0..E {
            alarm = alarm.max(flag::finite(bias[e]));
            x[e] += bias[e];
        }
    }
    alarm
}

/// For each row r, a mask whose bit g is set if group g is one of the `count` groups with the largest sums
/// (`sums[g·16 + r]`); ties go to the lower group.
#[inline(always)]
fn groups_of(sums: &[f32; SLOTS], count: usize) -> [u32; ROWS] {
    let (mut orders, mut above) = ([0i32; SLOTS], [0u32; SLOTS]);
    for i in 0..SLOTS {
        orders[i] = ordered(sums[i]);
    }
    for h in 0..GROUPS {
        let mut other = [0; ROWS];
        other.copy_from_slice(&orders[h * ROWS..(h + 1) * ROWS]);
        let other = spread_across(&other);
        for i in 0..SLOTS {
            // A lower group with an equal sum counts as above. No order is the least integer, so the
            // subtraction cannot wrap.
            let bound = if h < i / ROWS { orders[i] - 1 } else { orders[i] };
            above[i] += u32::from(other[i] > bound);
        }
    }
    let mut bits = [0; ROWS];
    for i in 0..SLOTS {
        above[i] = u32::from((above[i] as usize) < count) << (i / ROWS);
    }
    for own in above.as_chunks::<ROWS>().0 {
        for r in 0..ROWS {
            bits[r] |= own[r];
        }
    }
    bits
}

impl GatingForward<'_> {
    /// Selects the experts of `ROWS` rows with DeepSeek's groups; returns the scores of the chosen experts,
    /// which become gates.
    #[inline(always)]
    fn choose_in_groups<T: Team>(
        &self,
        team: &T,
        first: usize,
        chosen: &[Cell<u8>],
        sums: Cells<'_, f32>,
    ) -> PickedRows {
        const E: usize = GROUP * GROUPS;
        let bias = self.bias.map(|bias| bias.row(Span::new(0, E)));
        let mut keys = [[0.0f32; E]; ROWS];
        let mut alarms = [0; ROWS];
        for r in 0..ROWS {
            let row = first + r;
            let scores = self.scores.row(Span::new(row * E, row * E + E));
            alarms[r] = biased::<T::Arith, E>(&mut keys[r], scores, bias);
        }
        let own = team.pairs_of_rows(keys.as_flattened(), &alarms);
        let bits = groups_of(&team.take_rows(&own), self.router.top_groups);
        for (to, from) in sums.row(Span::new(first * GROUPS, (first + ROWS) * GROUPS)).iter().zip(own) {
            to.set(from);
        }
        for r in 0..ROWS {
            for g in 0..GROUPS {
                let inside = (bits[r] >> g) & 1 == 1;
                for e in g * GROUP..(g + 1) * GROUP {
                    keys[r][e] = if inside { keys[r][e] } else { f32::NEG_INFINITY };
                }
            }
        }
        team.largest_of_rows::<E, _>(In::new(keys.as_flattened()), 0, None, &Score, Some(&alarms), chosen)
    }

    /// Rows `first..first + ROWS` of a router with E experts and top-8, selected by their own scores.
    #[inline(always)]
    pub(in crate::routing) fn block_of<const V: usize, const E: usize, T: Team>(
        &self,
        team: &T,
        first: usize,
        chosen: Cells<'_, u8>,
    ) {
        let scale = f64::from(self.router.scale);
        let (start, slots) = (first * E, Span::new(first * K, (first + ROWS) * K));
        let (chosen, gates) = (chosen.row(slots), self.gates.row(slots));
        let by_activation = V == 2 && (self.bias.is_some() || E == 256);
        let picked = if let (2, 256, Some(sums)) = (V, E, sink(&self.group_scores)) {
            self.choose_in_groups(team, first, chosen, sums)
        } else if by_activation {
            team.largest_of_rows::<E, _>(self.scores, start, self.bias, &Biased(Sigmoid), None, chosen)
        } else {
            team.largest_of_rows::<E, _>(self.scores, start, None, &Score, None, chosen)
        };
        let mut x = picked.keys;
        if by_activation {
            for r in 0..ROWS {
                let start = start + r * E;
                let scores = self.scores.row(Span::new(start, start + E));
                for j in 0..K {
                    x[j * ROWS + r] = scores[usize::from(chosen[r * K + j].get()) % E];
                }
            }
        }
        let mut largest = [0.0; ROWS];
        largest.copy_from_slice(&picked.keys[..ROWS]);
        let mut totals = [0.0f64; ROWS];
        if V == 1 {
            for r in 0..ROWS {
                let start = start + r * E;
                let mut x = load::<E>(self.scores.row(Span::new(start, start + E)));
                exponentials::<T::Arith, E>(&mut x, largest[r]);
                totals[r] = total(&x);
            }
        }
        if V < 2 {
            let largest = spread_across(&largest);
            for i in 0..SLOTS {
                x[i] = num::canonical(weight::<T::Arith>(x[i] - largest[i]));
            }
        } else {
            for i in 0..SLOTS {
                x[i] = num::sigmoid::<T::Arith>(x[i]);
            }
        }
        let mut terms = [0.0f64; SLOTS];
        for i in 0..SLOTS {
            terms[i] = f64::from(x[i]);
        }
        if V != 1 {
            totals = sums_across(&terms);
        }
        let (added, divides) = match self.router.kind {
            RouterKind::SigmoidNormalized => (f64::from(SIGMOID_EPS), true),
            RouterKind::Sigmoid => (0.0, false),
            RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll | RouterKind::SqrtSoftplus => (0.0, true),
        };
        for r in 0..ROWS {
            let below = if V == 2 { totals[r] + added } else { totals[r] };
            totals[r] = num::div64(scale, if divides { below } else { 1.0 });
        }
        let factor = spread_across(&totals);
        for i in 0..SLOTS {
            x[i] = num::canonical((terms[i] * factor[i]) as f32);
        }
        team.put_rows(&x, gates);
        let rows = Span::new(first, first + ROWS);
        let (alarm, replayed) = (self.row_alarm.row(rows), self.row_replayed.row(rows));
        for r in 0..ROWS {
            alarm[r].set(picked.alarms[r]);
            replayed[r].set(0);
        }
    }
}
