//! Routing replay for mixture-of-experts models: the experts that ran are recorded and run again in the
//! update.
//!
//! A router gives each token a score s_e for each of E experts and runs K of them, weighted by gates g.
//! Replay takes the K experts from a [`Trace`] and computes their gates from the *live* scores, so that the
//! gradient reaches the router (R2 replays the old policy's trace, R3 the rollout's; 2512.01374 §3.2,
//! 2510.11370; docs/maths/routing.md). Only the selection, which has no gradient, is replayed.
//!
//! ```text
//! SoftmaxChosen       g_e = c·exp(s_e) / Σ_{j in I} exp(s_j)           Mixtral; Qwen3 (norm_topk_prob)
//! SoftmaxAll          g_e = c·exp(s_e) / Σ_j exp(s_j)                  softmax, then top-k, not renormalised
//! SigmoidNormalized   g_e = c·σ(s_e) / (Σ_{j in I} σ(s_j) + 1e-20)     DeepSeek-V3
//! Sigmoid             g_e = c·σ(s_e)                                   norm_topk_prob off; Llama 4
//! SqrtSoftplus        g_e = c·a_e / (Σ_{j in I} a_j + 1e-20)           DeepSeek-V4; a = √ln(1 + exp(s))
//! ```
//!
//! I is the set of the K chosen experts, c the routed scaling factor. Softmax over all experts, renormalised
//! over the chosen ones, is exactly `SoftmaxChosen`: the common denominator cancels.
//!
//! Natural selection takes the K largest scores. With a bias or groups, a sigmoid router takes the K largest
//! σ(s)+b within the `top_groups` groups whose two largest σ(s)+b have the largest sums. Ties go to the lower
//! index. With `SqrtSoftplus`, a_e replaces σ(s_e). A softmax with a bias (ERNIE 4.5) or groups (DeepSeek-V2)
//! uses its probabilities over all experts instead of σ, and a group's largest instead of the sum of two.
//! Experts of other groups are never taken, as in DeepSeek's inference code; the Hugging Face port sets their
//! keys to 0, and so takes them before an expert with a negative σ+b.
//!
//! **Order**: the K experts of a row are in order of selection, or as in the trace; gates and coefficients
//! follow that order. A combination in bf16 depends on it (slime sorts, Megatron does not).
//!
//! There is no state: an op is a function of (scores, trace, mask), and reports how many rows it replayed.

pub mod balance;
mod block;
pub mod gating_backward;
pub mod gating_forward;
mod key;
mod trace;

pub use balance::BalanceLoss;
pub use gating_backward::GatingBackward;
pub use gating_forward::{ChosenOut, GatingForward, Replay};
pub use trace::{Place, Trace, TraceFault, filler};

use crate::Error;
use crate::ragged::{In, Span};
use crate::require;
use crate::team::MAX_LARGEST;

/// ⌊a / b⌋ for a below 2⁵³, and b and the quotient below 2³². AMD has no integer division: LLVM would emit
/// approximations and a trap. The binary64 quotient is below the next integer whenever the exact one is,
/// because they differ by at least 1/a relative to it.
#[inline(always)]
fn quotient(a: usize, b: usize) -> usize {
    // Both halves are exact, and so is their sum.
    let high = f64::from((a as u64 >> 32) as u32) * 4_294_967_296.0;
    crate::num::div64(high + f64::from(a as u32), f64::from(b as u32)) as u32 as usize
}

/// The rule that turns scores into gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKind {
    /// Softmax over the chosen experts.
    SoftmaxChosen,
    /// Softmax over all experts, restricted to the chosen ones.
    SoftmaxAll,
    /// Sigmoids divided by their sum over the chosen experts.
    SigmoidNormalized,
    /// Sigmoids, not normalised.
    Sigmoid,
    /// Square roots of softplus divided by their sum over the chosen experts.
    SqrtSoftplus,
}

crate::launch_args!(
    enum RouterKind {
        SoftmaxChosen,
        SoftmaxAll,
        SigmoidNormalized,
        Sigmoid,
        SqrtSoftplus,
    }
);

impl RouterKind {
    /// Whether gates are sigmoids of the scores.
    pub fn sigmoid(self) -> bool {
        matches!(self, RouterKind::Sigmoid | RouterKind::SigmoidNormalized)
    }
}

/// Added to the sum of sigmoids or roots (bits 0x1e3ce508).
pub const SIGMOID_EPS: f32 = 1e-20;

/// The largest number of experts that a router may choose.
pub const MAX_TOP_K: usize = 32;
/// The largest number of groups that experts may form.
pub const MAX_GROUPS: usize = 32;

/// A router: its shape and its rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Number of experts E, at most [`MAX_LARGEST`].
    pub experts: usize,
    /// Number of chosen experts K, at most [`MAX_TOP_K`].
    pub top_k: usize,
    /// The rule that turns scores into gates.
    pub kind: RouterKind,
    /// Factor applied to all gates; above 0.
    pub scale: f32,
    /// Number of groups of equal size; 1 for none.
    pub groups: usize,
    /// Number of groups from which experts are taken.
    pub top_groups: usize,
}

crate::launch_args!(Router { experts, top_k, kind, scale, groups, top_groups });

impl Router {
    /// A router without groups, with scale 1.
    pub const fn new(kind: RouterKind, experts: usize, top_k: usize) -> Router {
        Router { experts, top_k, kind, scale: 1.0, groups: 1, top_groups: 1 }
    }

    /// Qwen3-MoE: top-8 of 128 experts, `norm_topk_prob`.
    pub const QWEN3: Router = Router::new(RouterKind::SoftmaxChosen, 128, 8);
    /// Mixtral: top-2 of 8 experts.
    pub const MIXTRAL: Router = Router::new(RouterKind::SoftmaxChosen, 8, 2);
    /// DeepSeek-V3: top-8 of 256 experts from 4 of 8 groups, scale 2.5.
    pub const DEEPSEEK_V3: Router =
        Router { scale: 2.5, groups: 8, top_groups: 4, ..Router::new(RouterKind::SigmoidNormalized, 256, 8) };

    /// Number of experts per group.
    #[inline(always)]
    pub fn per_group(&self) -> usize {
        quotient(self.experts, self.groups)
    }

    /// Span of the scores of a row.
    #[inline(always)]
    fn span(&self, row: usize) -> Span {
        Span::new(row * self.experts, (row + 1) * self.experts)
    }

    /// Checks that all parameters are in their domain.
    ///
    /// Errors: the parameter that is not, with the expected range.
    pub fn check(&self) -> Result<(), Error> {
        let size = |argument, value: usize, holds, expected| {
            require::scalar(argument, holds, expected, value as f64)
        };
        let Router { experts, top_k, groups, top_groups, .. } = *self;
        size("experts", experts, (1..=MAX_LARGEST).contains(&experts), "1 to 512")?;
        let most = if experts < MAX_TOP_K { experts } else { MAX_TOP_K };
        size("top_k", top_k, (1..=most).contains(&top_k), "1 to 32 and at most the number of experts")?;
        require::positive("scale", self.scale)?;
        let whole = (1..=MAX_GROUPS).contains(&groups) && experts.is_multiple_of(groups);
        size("groups", groups, whole, "1 to 32, a divisor of the number of experts")?;
        let enough = top_groups <= groups && top_groups * self.per_group() >= top_k;
        size("top_groups", top_groups, enough, "at most the number of groups, and enough for top_k experts")
    }

    /// Checks that `got` is `per_row` values for each of `rows` rows.
    fn length(argument: &'static str, got: usize, rows: usize, per_row: usize) -> Result<(), Error> {
        require::length(argument, rows.saturating_mul(per_row), "rows times entries per row", got)
    }

    /// Checks that a trace has `rows` records of `top_k` experts.
    fn check_trace(&self, trace: &Trace<'_>, rows: usize) -> Result<(), Error> {
        Router::length("trace", trace.rows(), rows, 1)?;
        Router::length("top_k of the trace", trace.top_k(), 1, self.top_k)
    }

    fn check_scores(&self, scores: In<'_, f32>, rows: usize) -> Result<(), Error> {
        self.check()?;
        Router::length("scores", scores.len(), rows, self.experts)
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::quotient;

    /// A 32-bit quotient would wrap from row 2³² on.
    #[test]
    fn quotients_beyond_32_bits_are_those_of_integers() {
        for divisor in [2, 3, 7, 48, 61, 94, 4096, u32::MAX as usize] {
            for a in [
                (1 << 32) - 1,
                1 << 32,
                (1 << 32) + 1,
                (1 << 33) + 5,
                48 * (1 << 31) - 1,
                61 * ((1 << 32) - 1) - 1,
            ] {
                let wanted = a / divisor;
                if wanted < 1 << 32 {
                    assert_eq!(quotient(a, divisor), wanted, "{a} / {divisor}");
                }
                let multiple = divisor * ((1 << 20) - 3);
                assert_eq!(quotient(multiple - 1, divisor), (1 << 20) - 4);
                assert_eq!(quotient(multiple, divisor), (1 << 20) - 3);
            }
        }
    }
}
