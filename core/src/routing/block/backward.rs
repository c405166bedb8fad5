//! The backward pass of sixteen rows.

use super::super::RouterKind;
use super::super::gating_backward::GatingBackward;
use super::{K, ROWS, SLOTS, exponentials, load, spread, sums, total};
use crate::num;
use crate::ragged::{Mask, Span, flag};
use crate::team::Team;
use crate::team::order::{LEAST, ordered, unordered};

/// A gradient with more elements than this (64 MB) is in no cache when it is read, so its stores bypass the
/// caches and do not fetch lines first.
const FAR: usize = 1 << 24;

impl GatingBackward<'_> {
    /// Rows `first..first + ROWS` of a router with E experts and top-8; `chosen` are the rows' experts.
    #[inline(always)]
    pub(in crate::routing) fn block_of<const V: usize, const E: usize, T: Team>(
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
            means[r] = if matches!(self.router.kind, RouterKind::Sigmoid) {
                0.0
            } else {
                num::div64(dots[r], scale)
            };
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
        let far = self.gradient.len() > FAR;
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
                let out = self.gradient.row(span);
                if far {
                    let mut row = [0.0; E];
                    for j in 0..K {
                        row[experts[r * K + j] as usize % E] = gradients[r * K + j];
                    }
                    team.leave(out, &row);
                } else {
                    team.fill(span, Mask::all(), *self.gradient, 0.0);
                    for j in 0..K {
                        out[experts[r * K + j] as usize % E].set(gradients[r * K + j]);
                    }
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
                // The lines that the phases below write, and the next block's scores.
                if !far {
                    team.soon(self.gradient.as_ptr(), self.gradient.len(), Span::new(start, start + E));
                }
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
                factors[r] = num::div64(dots[r], factors[r]);
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
                for j in 0..K {
                    y[experts[r * K + j] as usize % E] = gradients[r * K + j];
                }
                if far {
                    team.leave(out, &y);
                } else {
                    for e in 0..E {
                        out[e].set(y[e]);
                    }
                }
                alarms[r] = flag::worse(alarms[r], written);
            }
        }
        let alarm = self.row_alarm.row(Span::new(first, first + ROWS));
        for r in 0..ROWS {
            alarm[r].set(alarms[r]);
        }
    }
}
