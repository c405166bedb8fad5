//! Analytic pass@k advantage, and the unbiased pass@k estimate.
//!
//! **Formula** (2508.10751 and its code; docs/maths/advantages.md), for n counted members of a group, c of
//! them correct and w = n − c wrong:
//!
//! ```text
//! q = C(w, k)/C(n, k) = Π_{i<k} (w − i)/(n − i),   pass@k = 1 − q,   σ = sqrt(q (1 − q))
//! correct: A = q/(σ + eps)        wrong: A = (q − C(w−1, k−1)/C(n−1, k−1))/(σ + eps) = −(c/w) q/(σ + eps)
//! ```
//!
//! Computed as products, without log-gamma: exact to a few units of binary64 for every group size. The
//! advantages of a group sum to 0.
//!
//! **Shapes**: `rewards`, `advantage` `[S]`; `cu_groups` `[G+1]`; `pass_at_k`, `counted`, `too_few` `[G]`. A
//! response is correct if its reward is above `threshold`.
//!
//! **Special cases**: a member with a NaN reward or `valid` = 0 is excluded. If all are wrong, or fewer than
//! k are, then σ = 0 and every advantage is 0 (decided on the counts). With fewer than k members there is no
//! estimate: advantages are 0 and `pass_at_k` is NaN.

use super::members::Members;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

crate::kernel! {
    /// The op `pass_at_k`: one advantage per sequence, and the pass@k estimate of each group.
    pub struct PassAtK<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Outcome reward per sequence, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Which sequences are counted, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// Number of attempts k of which at least one must be correct; at least 1.
        pub k: u32,
        /// A response is correct if its reward is above this.
        pub threshold: f32 where finite,
        /// Added to σ; the paper's code has 1e-6.
        pub eps: f64 where not_negative,
        /// Advantages, `[S]`.
        pub advantage: Out<'a, f32> [sequences],
        /// Estimate of pass@k, `[G]`; NaN with fewer than k members.
        pub pass_at_k: Out<'a, f32> [groups],
        /// Number of counted members, `[G]`.
        pub counted: Out<'a, u32> [groups],
        /// 1 = the group has members, but fewer than k are counted, `[G]`.
        pub too_few: Out<'a, u32> [groups],
    }
    unsafe "pass_at_k", over cu_groups (sequences, groups),
        require |k| require::scalar("k", k.k > 0, "at least 1", 0.0);
}

impl Kernel for PassAtK<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let members = Members { rewards: self.rewards, valid: self.valid };
        let (threshold, k) = (self.threshold, f64::from(self.k));
        let correct = move |i| members.is(i) && members.rewards.at(i) > threshold;
        let [n, c] =
            team.sum(span, move |i| [f64::from(u8::from(members.is(i))), f64::from(u8::from(correct(i)))]);
        let wrong = n - c;
        let mut q = 1.0;
        // q is 0 with fewer than k wrong members; k may be larger than any group.
        let mut i = if wrong < k || n < k { k } else { 0.0 };
        while i < k {
            q *= num::div64(wrong - i, n - i);
            i += 1.0;
        }
        let q = if wrong < k { 0.0 } else { q };
        let zero = q == 0.0 || c == 0.0 || n < k;
        let good = num::div64(q, <T::Arith as Arith>::sqrt64(q * (1.0 - q)) + self.eps);
        // A factor instead of a select between two captured numbers: LLVM would select between their
        // addresses, at the cost of 128 bytes of local memory.
        let against = -num::div64(c, wrong);
        let out = *self.advantage;
        team.for_each(span, move |i| {
            let advantage = num::canonical((if correct(i) { 1.0 } else { against } * good) as f32);
            let reward = members.rewards.at(i);
            // An infinite reward stays one, so that the loss raises its alarm.
            let member = if reward.is_infinite() { reward } else { advantage };
            let none = !members.is(i) || (zero && !reward.is_infinite());
            out.put(i, if none { 0.0 } else { member });
        });
        if team.leads() {
            let estimate = if n < k { num::canonical_nan() } else { (1.0 - q) as f32 };
            self.pass_at_k.put(row, estimate);
            self.counted.put(row, n as u32);
            self.too_few.put(row, u32::from(n < k && !span.is_empty()));
        }
    }
}
