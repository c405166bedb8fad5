//! Rows of shapes that many models have, sixteen at a time: where vectors are one thread's.
//!
//! The row programs of [`gating_forward`](super::gating_forward) and [`gating_backward`](super::gating_backward) are chains of some 300 cycles, and
//! of rows that follow each other a processor overlaps less than two. Here everything between the picks and the dense gradient is a loop over
//! rows, with lengths that the compiler knows. Same functions, same order of sums: the same bits.

use super::gating_backward::GatingBackward;
use super::gating_forward::{Biased, GatingForward, Score};
use super::{RouterKind, SIGMOID_EPS};
use crate::logits::weight;
use crate::num::{self, Arith};
use crate::ragged::{In, Mask, Out, Span, flag};
use crate::team::Team;
use crate::team::fold::{COLUMNS, fold_columns};
use crate::team::order::{LEAST, ordered, unordered};

/// Rows of a block.
pub(super) const ROWS: usize = 16;
/// Picked experts.
const K: usize = 8;
/// Experts of a group, and groups.
const GROUP: usize = 32;
const GROUPS: usize = 8;
/// Slots of a block.
const SLOTS: usize = ROWS * K;

/// A number for each slot of a block.
type Slots = [f32; SLOTS];
/// A number for each row.
type Each = [f64; ROWS];

/// Sums of the rows' slots, in the shape of [`fold`](crate::team::fold): columns beyond the eighth are +0, and x + 0 = x, for no term is −0.
#[inline(always)]
fn sums(terms: &[f64; SLOTS]) -> Each {
    let mut sums = [0.0; ROWS];
    for r in 0..ROWS {
        let x: &[f64; K] = &terms.as_chunks().0[r];
        sums[r] = num::canonical64(((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])));
    }
    sums
}

/// A row's number for each of its slots.
#[inline(always)]
fn spread<N: Copy + Default>(each: &[N; ROWS]) -> [N; SLOTS] {
    let mut slots = [N::default(); SLOTS];
    for r in 0..ROWS {
        for j in 0..K {
            slots[r * K + j] = each[r];
        }
    }
    slots
}

/// e^(s − largest) of all experts of a row, in place.
#[inline(always)]
fn exponentials<A: Arith, const E: usize>(x: &mut [f32; E], largest: f32) {
    for e in 0..E {
        x[e] = weight::<A>(x[e] - largest);
    }
}

/// Their sum, of whole chunks.
#[inline(always)]
fn total<const E: usize>(x: &[f32; E]) -> f64 {
    let mut columns = [0.0f64; COLUMNS];
    for c in 0..COLUMNS {
        columns[c] = f64::from(x[c]);
    }
    for chunk in 1..E / COLUMNS {
        for c in 0..COLUMNS {
            columns[c] += f64::from(x[chunk * COLUMNS + c]);
        }
    }
    num::canonical64(fold_columns(&columns))
}

#[inline(always)]
fn load<const E: usize>(row: &[f32]) -> [f32; E] {
    let mut x = [0.0; E];
    x.copy_from_slice(&row[..E]);
    x
}

/// σ(s) + b of all experts of a row, and the alarm of both.
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

/// The sum of the two largest of a group, as two picks give it.
#[inline(always)]
fn two_largest(x: &[f32; GROUP]) -> f32 {
    let (mut first, mut second) = ([LEAST; GROUP / 2], [LEAST; GROUP / 2]);
    for l in 0..GROUP / 2 {
        let (a, b) = (ordered(x[l]), ordered(x[l + GROUP / 2]));
        first[l] = a.max(b);
        second[l] = a.min(b);
    }
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            let (a, b) = (first[l], first[l + half]);
            second[l] = a.min(b).max(second[l].max(second[l + half]));
            first[l] = a.max(b);
        }
    }
    unordered(first[0]) + unordered(second[0])
}

/// Bit g is set if group g is one of the `count` with the largest sums, equal ones by the lower group.
#[inline(always)]
fn groups_of(sums: &[[f32; GROUPS]; ROWS], count: usize) -> [u32; ROWS] {
    let mut orders = [[0i32; ROWS]; GROUPS];
    for g in 0..GROUPS {
        for r in 0..ROWS {
            orders[g][r] = ordered(sums[r][g]);
        }
    }
    let mut bits = [0; ROWS];
    for g in 0..GROUPS {
        let mut above = [0u32; ROWS];
        for h in 0..GROUPS {
            for r in 0..ROWS {
                // Before h come those with the same sum.
                let bound = if h < g { orders[g][r].saturating_sub(1) } else { orders[g][r] };
                above[r] += u32::from(orders[h][r] > bound);
            }
        }
        for r in 0..ROWS {
            bits[r] |= u32::from((above[r] as usize) < count) << g;
        }
    }
    bits
}

impl GatingForward<'_> {
    /// Experts of `ROWS` rows of DeepSeek's groups, and the scores of the experts as gates.
    #[inline(always)]
    fn choose_in_groups<T: Team>(&self, team: &T, first: usize, chosen: Out<'_, u8>, sums: Out<'_, f32>) {
        const E: usize = GROUP * GROUPS;
        let bias = self.bias.map(|bias| bias.row(Span::new(0, E)));
        let mut keys = [[0.0f32; E]; ROWS];
        let mut own = [[0.0f32; GROUPS]; ROWS];
        for r in 0..ROWS {
            let row = first + r;
            let scores = self.scores.row(Span::new(row * E, row * E + E));
            self.row_alarm.put(row, biased::<T::Arith, E>(&mut keys[r], scores, bias));
            for g in 0..GROUPS {
                own[r][g] = num::canonical(two_largest(&keys[r].as_chunks().0[g]));
            }
        }
        let bits = groups_of(&own, self.router.top_groups);
        for (to, from) in
            sums.row(Span::new(first * GROUPS, (first + ROWS) * GROUPS)).iter().zip(own.as_flattened())
        {
            to.set(*from);
        }
        for r in 0..ROWS {
            let slot = (first + r) * K;
            for g in 0..GROUPS {
                let inside = (bits[r] >> g) & 1 == 1;
                for e in g * GROUP..(g + 1) * GROUP {
                    keys[r][e] = if inside { keys[r][e] } else { f32::NEG_INFINITY };
                }
            }
            let row = In::new(&keys[r]);
            team.largest(Span::new(0, E), row, None, K, &Score, move |j, e| chosen.put(slot + j, e as u8));
        }
    }

    /// Rows `first..first + ROWS` of a router of E experts, 8 of which are picked by themselves.
    #[inline(always)]
    pub(super) fn block_of<const V: usize, const E: usize, T: Team>(
        &self,
        team: &T,
        first: usize,
        chosen: Out<'_, u8>,
    ) {
        let scale = f64::from(self.router.scale);
        let (mut largest, mut totals) = ([0.0f32; ROWS], [0.0f64; ROWS]);
        if let (2, 256, Some(sums)) = (V, E, self.group_scores) {
            self.choose_in_groups(team, first, chosen, sums);
        } else {
            for r in 0..ROWS {
                let row = first + r;
                let span = Span::new(row * E, row * E + E);
                let slot = row * K;
                let put = move |j, e| chosen.put(slot + j, e as u8);
                let picked = if V == 2 {
                    team.largest(span, self.scores, self.bias, K, &Biased, put)
                } else {
                    team.largest(span, self.scores, None, K, &Score, put)
                };
                largest[r] = picked.first;
                self.row_alarm.put(row, picked.alarm);
                team.put_slots(Span::new(slot, slot + K), self.gates, picked.keys);
            }
        }
        // Without bias the key of a sigmoid is its sigmoid.
        let again = V == 2 && (self.bias.is_some() || E == 256);
        if again {
            for r in 0..ROWS {
                let scores = self.scores.row(Span::new((first + r) * E, (first + r) * E + E));
                for slot in (first + r) * K..(first + r + 1) * K {
                    self.gates.put(slot, scores[usize::from(chosen.get(slot)) % E]);
                }
            }
        }
        if V == 1 {
            for r in 0..ROWS {
                let start = (first + r) * E;
                let mut x = load::<E>(self.scores.row(Span::new(start, start + E)));
                exponentials::<T::Arith, E>(&mut x, largest[r]);
                totals[r] = total(&x);
            }
        }
        let gates = self.gates.row(Span::new(first * K, (first + ROWS) * K));
        let mut x: Slots = [0.0; SLOTS];
        for i in 0..SLOTS {
            x[i] = gates[i].get();
        }
        let largest = spread(&largest);
        if V < 2 {
            for i in 0..SLOTS {
                x[i] = num::canonical(weight::<T::Arith>(x[i] - largest[i]));
            }
        } else if again {
            for i in 0..SLOTS {
                x[i] = num::sigmoid::<T::Arith>(x[i]);
            }
        }
        let mut terms = [0.0f64; SLOTS];
        for i in 0..SLOTS {
            terms[i] = f64::from(x[i]);
        }
        if V != 1 {
            totals = sums(&terms);
        }
        let (added, divides) = match self.router.kind {
            RouterKind::SigmoidNormalized => (f64::from(SIGMOID_EPS), true),
            RouterKind::Sigmoid => (0.0, false),
            RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll => (0.0, true),
        };
        for r in 0..ROWS {
            let below = if V == 2 { totals[r] + added } else { totals[r] };
            totals[r] = scale / if divides { below } else { 1.0 };
        }
        let factor = spread(&totals);
        for i in 0..SLOTS {
            x[i] = num::canonical((terms[i] * factor[i]) as f32);
        }
        for i in 0..SLOTS {
            gates[i].set(x[i]);
        }
        for replayed in self.row_replayed.row(Span::new(first, first + ROWS)) {
            replayed.set(0);
        }
    }
}

impl GatingBackward<'_> {
    /// Rows `first..first + ROWS` of a router of E experts, 8 of which are picked; `chosen` are theirs.
    #[inline(always)]
    pub(super) fn block_of<const V: usize, const E: usize, T: Team>(
        &self,
        team: &T,
        first: usize,
        chosen: &[u8],
    ) {
        let slots = Span::new(first * K, (first + ROWS) * K);
        let (g, c): (&[f32; SLOTS], &[f32; SLOTS]) =
            match (self.gates.row(slots).try_into(), self.coef.row(slots).try_into()) {
                (Ok(g), Ok(c)) => (g, c),
                _ => unreachable!("a span of so many slots"),
            };
        let chosen = &chosen[..SLOTS];
        let scale = f64::from(self.router.scale);
        let mut products = [0.0f64; SLOTS];
        let mut faults = [0u32; SLOTS];
        let mut experts = [0u32; SLOTS];
        for i in 0..SLOTS {
            products[i] = 0.0 + f64::from(g[i]) * f64::from(c[i]);
        }
        for i in 0..SLOTS {
            let usable = (flag::worse(flag::finite(g[i]), flag::finite(c[i])) <= flag::LIMIT)
                & (u32::from(chosen[i]) < E as u32);
            faults[i] = if usable { 0 } else { u32::MAX };
            experts[i] = u32::from(chosen[i]).min(E as u32 - 1);
        }
        let dots = sums(&products);
        let mut alarms = [0u32; ROWS];
        for r in 0..ROWS {
            let x: &[u32; K] = &faults.as_chunks().0[r];
            alarms[r] = ((x[0] | x[4]) | (x[2] | x[6])) | ((x[1] | x[5]) | (x[3] | x[7]));
        }
        let sigmoid = self.router.kind.sigmoid();
        let mut means = [0.0f64; ROWS];
        for r in 0..ROWS {
            means[r] = if matches!(self.router.kind, RouterKind::Sigmoid) { 0.0 } else { dots[r] / scale };
        }
        let mut slopes = [1.0f32; SLOTS];
        if V == 0 && sigmoid {
            for r in 0..ROWS {
                let start = (first + r) * E;
                let scores = self.scores.row(Span::new(start, start + E));
                for j in 0..K {
                    slopes[r * K + j] = -scores[experts[r * K + j] as usize % E];
                }
            }
            for i in 0..SLOTS {
                slopes[i] = num::sigmoid::<T::Arith>(slopes[i]);
            }
        }
        if V == 0 {
            let mean = spread(&means);
            let mut gradients = [0.0f32; SLOTS];
            for i in 0..SLOTS {
                let gradient = f64::from(g[i]) * (f64::from(c[i]) - mean[i]) * f64::from(slopes[i]);
                gradients[i] = num::canonical(gradient as f32 + 0.0);
            }
            for r in 0..ROWS {
                let start = (first + r) * E;
                let span = Span::new(start, start + E);
                team.fill(span, Mask::all(), self.gradient, 0.0);
                let out = self.gradient.row(span);
                for j in 0..K {
                    out[experts[r * K + j] as usize % E].set(gradients[r * K + j]);
                }
            }
        } else {
            let mut largest = [0.0f32; ROWS];
            for r in 0..ROWS {
                let start = (first + r) * E;
                let scores = &self.scores.row(Span::new(start, start + E))[..E];
                let (mut best, mut alarm) = (LEAST, 0);
                for e in 0..E {
                    best = best.max(ordered(scores[e]));
                    alarm = alarm.max(flag::finite(scores[e]));
                }
                // What phases behind this one write, and the next block's scores.
                team.soon(self.gradient.as_ptr(), self.gradient.len(), Span::new(start, start + E));
                largest[r] = unordered(best);
                alarms[r] = flag::worse(alarms[r], alarm);
            }
            let mut x = [[0.0f32; E]; ROWS];
            let mut factors = [0.0f64; ROWS];
            for r in 0..ROWS {
                let start = (first + r) * E;
                x[r] = load::<E>(self.scores.row(Span::new(start, start + E)));
                let next = start + ROWS * E;
                team.soon(self.scores.as_ptr(), self.scores.len(), Span::new(next, next + E));
                exponentials::<T::Arith, E>(&mut x[r], largest[r]);
                factors[r] = total(&x[r]);
            }
            for r in 0..ROWS {
                factors[r] = dots[r] / factors[r];
            }
            for r in 0..ROWS {
                let start = (first + r) * E;
                let out = &self.gradient.row(Span::new(start, start + E))[..E];
                let narrow = factors[r] as f32;
                let mut y = [0.0f32; E];
                let mut written = 0;
                for e in 0..E {
                    // 0 − x: a gradient is never −0.
                    y[e] = 0.0 - x[r][e] * narrow;
                    written = written.max(flag::finite(y[e]));
                }
                if written > flag::LIMIT {
                    for e in 0..E {
                        y[e] = num::canonical(y[e]);
                    }
                }
                for e in 0..E {
                    out[e].set(y[e]);
                }
                alarms[r] = flag::worse(alarms[r], written);
            }
            let mut gradients = [0.0f32; SLOTS];
            for i in 0..SLOTS {
                gradients[i] = x[i / K][experts[i] as usize % E];
            }
            let factor = spread(&factors);
            for i in 0..SLOTS {
                let gradient = products[i] - f64::from(gradients[i]) * factor[i];
                gradients[i] = num::canonical(gradient as f32 + 0.0);
            }
            for r in 0..ROWS {
                let start = (first + r) * E;
                let out = &self.gradient.row(Span::new(start, start + E))[..E];
                for j in 0..K {
                    out[experts[r * K + j] as usize % E].set(gradients[r * K + j]);
                }
            }
        }
        let alarm = self.row_alarm.row(Span::new(first, first + ROWS));
        for r in 0..ROWS {
            alarm[r].set(alarms[r]);
        }
    }
}
