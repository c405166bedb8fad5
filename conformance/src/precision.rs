//! **The only table of tolerances.** Between backends the tolerance is 0 bits and is listed nowhere.
//!
//! Errors against the oracle are allowed in units of 2⁻²⁴ of the magnitude that [`expect`](crate::expect)
//! gives for the element. An unlisted output must be equal. A test fails if an entry is more than [`SLACK`]
//! times the measured error, which makes it too wide.

use crate::ops::AnyOp;

/// The guarantee for a sum of a million terms, relative to the sum of magnitudes
/// (docs/decisions/0003-f64-columns.md).
pub const MILLION_TERM_SUM: f64 = 1.0 / 4_194_304.0;

/// Absolute tolerance for the worked vectors of docs/maths/vectors.md: the accuracy of their printed digits.
pub const WORKED: f64 = 1e-6;

/// Panics unless each number is [close](WORKED) to its worked value.
pub fn assert_worked(got: &[f32], want: &[f64]) {
    let close = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() <= WORKED;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

/// Tolerance of central differences of the oracle's loss against Lockstep's coefficients, relative to the
/// largest. A step of 2⁻¹⁷ has a truncation error of about 1e-11 and a cancellation error of about 1e-11; the
/// rest is binary32's own error of a coefficient.
pub const FINITE_DIFFERENCE: f64 = 2e-6;

/// The step of the central differences.
pub const STEP: f64 = 1.0 / 131_072.0;

/// Tokens closer than this to a jump of the derivative are left out of finite differences.
pub const KINK: f64 = 1e-4;

/// The largest fraction of an output's elements, over all cases of its op, that may sit on a jump and be left
/// out; the same limit applies to its cases.
pub const MAX_DOUBTFUL: f64 = 0.01;

/// Differences below this are ignored: a gate weight below e^-87 (1.6e-38) is 0, and it multiplies a ratio of
/// about 88 and an advantage of at most 50.
pub const FLOOR: f64 = 1e-33;

/// Tolerance of a handful of binary64 operations on numbers near 1, compared with a calculation by hand.
pub const BY_HAND: f64 = 1e-14;

/// Tolerance of whole recipes against their composition in binary64, relative to the largest number of the
/// array. Stages pass binary32 to each other, at half a unit of 2⁻²⁴ each, and a ratio of e^d carries the
/// rounding of d, up to 16 units at |d| = 20.
pub const WHOLE_RECIPE: f64 = 2e-6;

/// How much wider than the measured error an allowance may be.
pub const SLACK: f64 = 100.0;

/// An allowed error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Op.
    pub op: &'static str,
    /// Output.
    pub output: &'static str,
    /// Units of 2⁻²⁴ of the magnitude.
    pub units: f64,
    /// The reason for this number.
    pub reason: &'static str,
}

const ROUNDED: &str = "binary64 inside, rounded to binary32 once: half an ULP is at most one unit";
const EXP: &str = "exp is within 1 ULP (two units); the rounding of d is in the magnitude";
const SUM64: &str = "binary64 columns: n/128 + 7 roundings of 2^-53, 2^-29 of a unit each";
const TERMS: &str = "a binary64 sum of binary32 terms, each as good as its own output";

const fn allow(op: &'static str, output: &'static str, units: f64, reason: &'static str) -> Allowance {
    Allowance { op, output, units, reason }
}

/// The table of the first ops; those of the others are in their files.
const FIRST: &[Allowance] = &[
    allow("group_advantage", "advantage", 1.0, ROUNDED),
    allow("group_advantage", "mean", 1.0, ROUNDED),
    allow("group_advantage", "std", 1.0, ROUNDED),
    allow("token_ratio", "ratio", 2.0, EXP),
    allow("token_ratio", "log_ratio", 1.0, "one subtraction"),
    allow("token_ratio", "max_ratio", 2.0, EXP),
    allow("token_ratio", "max_neg_ratio", 2.0, EXP),
    allow("token_ratio", "sum_k1", 1.0, TERMS),
    allow("token_ratio", "sum_k3", 2.0, TERMS),
    allow("token_ratio", "sum_excess", 2.0, TERMS),
    allow("token_ratio", "sum_excess_squared", 2.0, TERMS),
    allow("kl", "kl", 3.0, "one subtraction, then a square or expm1mx within its bound"),
    allow("kl", "gradient", 2.0, "one subtraction, then expm1 within its bound"),
    allow("kl", "row_sum", 2.0, TERMS),
    allow("aggregate", "row_sum", 1e-7, SUM64),
    allow("row_scan", "scanned", 1.0, ROUNDED),
    allow("fold_rows", "totals", 1e-7, SUM64),
    allow("policy_loss_ppo", "coef", 2.0, "exp, then four products"),
    allow("policy_loss_ppo", "token_loss", 2.0, "exp, then two products and a fused multiply-add"),
    allow("policy_loss_ppo", "row_loss", 2.0, TERMS),
    allow("policy_loss_ppo", "max_ratio", 2.0, EXP),
    allow("policy_loss_ppo", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_ppo", "sum_loss", 2.0, TERMS),
    allow("policy_loss_ppo", "sum_policy", 2.0, TERMS),
    allow("policy_loss_ppo", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_ppo", "sum_k1", 1.0, TERMS),
    allow("policy_loss_ppo", "sum_excess", 2.0, TERMS),
    allow("policy_loss_ppo", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_ppo", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_sapo", "coef", 4.0, "two exponentials, a reciprocal, eight products"),
    allow("policy_loss_sapo", "token_loss", 4.0, "two exponentials, a reciprocal, four products"),
    allow("policy_loss_sapo", "row_loss", 4.0, TERMS),
    allow("policy_loss_sapo", "max_ratio", 2.0, EXP),
    allow("policy_loss_sapo", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_sapo", "sum_loss", 4.0, TERMS),
    allow("policy_loss_sapo", "sum_policy", 4.0, TERMS),
    allow("policy_loss_sapo", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_sapo", "sum_k1", 1.0, TERMS),
    allow("policy_loss_sapo", "sum_excess", 2.0, TERMS),
    allow("policy_loss_sapo", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_sapo", "sum_gate", 4.0, "two exponentials, a reciprocal, three products"),
    allow("policy_loss_sapo", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_cispo", "coef", 2.0, "exp, a clip, three products"),
    allow("policy_loss_cispo", "token_loss", 2.0, "exp, a clip, three products, and a fused multiply-add"),
    allow("policy_loss_cispo", "row_loss", 2.0, TERMS),
    allow("policy_loss_cispo", "max_ratio", 2.0, EXP),
    allow("policy_loss_cispo", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_cispo", "sum_loss", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_policy", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_k1", 1.0, TERMS),
    allow("policy_loss_cispo", "sum_excess", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_gate", 2.0, TERMS),
    allow("policy_loss_cispo", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_reinforce", "coef", 2.0, "three products"),
    allow("policy_loss_reinforce", "token_loss", 2.0, "three products, and a fused multiply-add"),
    allow("policy_loss_reinforce", "row_loss", 2.0, TERMS),
    allow("policy_loss_reinforce", "max_ratio", 2.0, EXP),
    allow("policy_loss_reinforce", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_reinforce", "sum_loss", 2.0, TERMS),
    allow("policy_loss_reinforce", "sum_policy", 2.0, TERMS),
    allow("policy_loss_reinforce", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_reinforce", "sum_k1", 1.0, TERMS),
    allow("policy_loss_reinforce", "sum_excess", 2.0, TERMS),
    allow("policy_loss_reinforce", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_reinforce", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_dppo_tv", "coef", 2.0, "exp, a clip, three products"),
    allow("policy_loss_dppo_tv", "token_loss", 2.0, "exp, a clip, three products, and a fused multiply-add"),
    allow("policy_loss_dppo_tv", "row_loss", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "max_ratio", 2.0, EXP),
    allow("policy_loss_dppo_tv", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_dppo_tv", "sum_loss", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_policy", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_k1", 1.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_excess", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_gate", 2.0, TERMS),
    allow("policy_loss_dppo_tv", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_dppo_kl", "coef", 2.0, "exp, a clip, three products"),
    allow("policy_loss_dppo_kl", "token_loss", 2.0, "exp, a clip, three products, and a fused multiply-add"),
    allow("policy_loss_dppo_kl", "row_loss", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "max_ratio", 2.0, EXP),
    allow("policy_loss_dppo_kl", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_dppo_kl", "sum_loss", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_policy", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_k1", 1.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_excess", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_gate", 2.0, TERMS),
    allow("policy_loss_dppo_kl", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_mini_rl", "coef", 2.0, "two exponentials, a clip, three products"),
    allow(
        "policy_loss_mini_rl",
        "token_loss",
        2.0,
        "two exponentials, a clip, three products, and a fused multiply-add",
    ),
    allow("policy_loss_mini_rl", "row_loss", 2.0, TERMS),
    allow("policy_loss_mini_rl", "max_ratio", 2.0, EXP),
    allow("policy_loss_mini_rl", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_mini_rl", "sum_loss", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_policy", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_k1", 1.0, TERMS),
    allow("policy_loss_mini_rl", "sum_excess", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_gate", 2.0, TERMS),
    allow("policy_loss_mini_rl", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_trust_region", "coef", 2.0, "two exponentials, a clip, three products"),
    allow(
        "policy_loss_trust_region",
        "token_loss",
        2.0,
        "two exponentials, a clip, three products, and a fused multiply-add",
    ),
    allow("policy_loss_trust_region", "row_loss", 2.0, TERMS),
    allow("policy_loss_trust_region", "max_ratio", 2.0, EXP),
    allow("policy_loss_trust_region", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_trust_region", "sum_loss", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_policy", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_k1", 1.0, TERMS),
    allow("policy_loss_trust_region", "sum_excess", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_gate", 2.0, TERMS),
    allow("policy_loss_trust_region", "sum_neg_logp", 1e-7, SUM64),
    allow("policy_loss_remix", "coef", 2.0, "two exponentials, then four products"),
    allow(
        "policy_loss_remix",
        "token_loss",
        2.0,
        "two exponentials, then four products, and a fused multiply-add",
    ),
    allow("policy_loss_remix", "row_loss", 2.0, TERMS),
    allow("policy_loss_remix", "max_ratio", 2.0, EXP),
    allow("policy_loss_remix", "max_neg_ratio", 2.0, EXP),
    allow("policy_loss_remix", "sum_loss", 2.0, TERMS),
    allow("policy_loss_remix", "sum_policy", 2.0, TERMS),
    allow("policy_loss_remix", "sum_kl_ref", 2.0, TERMS),
    allow("policy_loss_remix", "sum_k1", 1.0, TERMS),
    allow("policy_loss_remix", "sum_excess", 2.0, TERMS),
    allow("policy_loss_remix", "sum_excess_squared", 2.0, TERMS),
    allow("policy_loss_remix", "sum_neg_logp", 1e-7, SUM64),
];

/// The whole table.
pub fn allowed() -> impl Iterator<Item = &'static Allowance> {
    FIRST.iter().chain(AnyOp::allowed())
}

/// The units allowed for an output; 0 if it is not listed.
pub fn units(op: &str, output: &str) -> f64 {
    allowed().find(|a| a.op == op && a.output == output).map_or(0.0, |a| a.units)
}
