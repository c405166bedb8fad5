//! The one-line formula of each choice; `docs/` and the choice's module in `core` have the details.

use serde_json::{Map, Value};

use crate::explain::choice;

/// Stage, value of the selecting key, formula.
const FORMULAS: &[(&str, &str, &str)] = &[
    ("reward.shaping", "signs", "R' = `correct` where R = 1, `wrong` where R = 0, else R"),
    ("reward.shaping", "fapo", "R' = 1 where right, 1 − λ where right but flawed, else −1"),
    ("reward.shaping", "conciser", "R' = clip(1 − L/limit, 0, 1) where the whole group is right, else R"),
    ("reward.shaping", "brpo", "R' = 1 where right, else −1; 0 for the reference"),
    (
        "reward.shaping",
        "grpovi",
        "R' = the rewards of largest variance with the same mean and order, within [low, high]",
    ),
    (
        "reward.shaping",
        "evol_rl",
        "R' = novelty ranked inside a band: 0.5 to 1 for the majority's answer, −1 to −0.5 for others",
    ),
    ("reward.overlong", "", "R' = R + min(−(L − (max_length − buffer))/buffer · factor, 0)"),
    ("reward.filter", "varied", "keep groups whose rewards differ"),
    ("reward.filter", "spread", "keep groups whose rewards have a standard deviation above eta"),
    ("reward.filter", "solve_rate", "keep groups that are solved less often than the limit"),
    ("reward.filter", "balanced", "keep groups whose shaped rewards have a mean of at most tau in magnitude"),
    ("reward.filter", "equal", "keep responses whose reward is `value`"),
    ("reward.filter", "nonzero_advantage", "keep responses whose advantage is not 0"),
    ("reward.filter", "at_most_tokens", "keep responses of at most so many tokens"),
    (
        "reward.sharpen",
        "xrpo",
        "A' = A + min(max(λ·(1 − η), 0), κ·max(A, 0)) where right, η = exp(x − mean x), x the mean of \
         logp_old",
    ),
    ("reward.sharpen", "ace", "A' = A·min(1 + α·softplus(x), cap) where A < 0, x = Σ (logp_old − logp_ref)"),
    ("reward.filtration", "*", "A' = A · n · P(drawn), P by the rewards of the group"),
    (
        "reward.weights",
        "*",
        "w = u · S/Σu, u = a + (b − a)·x for length and difficulty, x from 0 (shortest, easiest) to 1 \
         (longest, hardest)",
    ),
    ("reward.entropy", "*", "A' = A + min(α·H, |A|/κ) for each token"),
    (
        "advantage.estimator",
        "grpo",
        "A = (R − mean) / (std + eps) over the group; without norm_by_std: R − mean",
    ),
    ("advantage.estimator", "grpo_batch", "A = (R − mean of the group) / (std of the batch + eps)"),
    ("advantage.estimator", "grpo_leave_one_out", "A = (R − mean of the others) / (std of the others + eps)"),
    ("advantage.estimator", "rloo", "A = R − mean of the others"),
    ("advantage.estimator", "opo", "A = R − Σ L·R / Σ L over the group"),
    ("advantage.estimator", "gpg", "A = (R − mean) / (f_norm · share of the rewards that are not 0)"),
    (
        "advantage.estimator",
        "pass_k",
        "A = (best − second best) / (std + eps) for the best, 0 for the others",
    ),
    ("advantage.estimator", "mc_grpo", "A = (R − median) / (MAD + floor); the pivot is left out"),
    ("advantage.estimator", "max_rl", "A = (R − mean) / mean"),
    ("advantage.estimator", "remax", "A = R − baseline of the prompt"),
    ("advantage.estimator", "vcpo", "A = (R − Σ w·R / Σ w) / (std + eps), w = baseline_weights"),
    ("advantage.estimator", "reinforce_plus_plus", "A = whitened Gₜ, Gₜ = rₜ + γ·Gₜ₊₁"),
    ("advantage.estimator", "reinforce_plus_plus_baseline", "A = whitened (R − mean of the group)"),
    ("advantage.estimator", "reward", "A = R"),
    (
        "advantage.estimator",
        "pass_at_k",
        "A = q/σ where right, −(c/w)·q/σ where wrong: c right and w wrong ones, q = C(w, k)/C(n, k), \
         σ = √(q(1 − q))",
    ),
    ("advantage.estimator", "gdpo", "A = whitened Σₖ wₖ · (Rₖ − mean) / (std + eps)"),
    ("advantage.estimator", "v0_5", "A = R − (λ·baseline + (1 − λ)·mean), λ by the variances"),
    ("advantage.estimator", "role_baseline", "A = R − b(role), b ← decay·b + (1 − decay)·R"),
    (
        "advantage.estimator",
        "tempo",
        "A = A of grpo + (Vₜ₊₁ − Vₜ)/(std + eps), V the mean reward of the responses that share the prefix",
    ),
    ("advantage.over_time", "gae", "A = Σ (γλ)ᵏ δₜ₊ₖ, δₜ = rₜ + γ·Vₜ₊₁ − Vₜ; returns A + V"),
    (
        "advantage.over_time",
        "vtrace",
        "A = min(ρ, rho_pg)·(rₜ + γ·(λ·vₜ₊₁ + (1 − λ)·Vₜ₊₁) − Vₜ), v = V + Σ of errors weighed by min(ρ, \
         rho_bar) and min(ρ, c_bar)",
    ),
    ("advantage.over_time", "mars", "A = (G − mean) / (std + eps) of the role, G = Σ γᵏ·r over turns"),
    (
        "advantage.over_time",
        "ui_s1",
        "A = A(episode) + ω·A(step), returns of steps cut where the expert differs",
    ),
    (
        "advantage.over_time",
        "optimal_token_baseline",
        "A = Gₜ − Σ w·G / Σ w over the group at t, w = Σ squared norms of scores up to t",
    ),
    (
        "advantage.over_time",
        "signed_return",
        "A = Gₜ·correct + offset where R = 1, Gₜ + wrong + offset where R = 0, else Gₜ + offset; Gₜ = γᵏ·R, \
         k tokens from the end",
    ),
    ("ratio.level", "token", "r = exp(guard(logp − logp_old))"),
    ("ratio.level", "sequence", "r = exp(mean of logp − logp_old over the response)"),
    ("ratio.level", "segment", "r = exp(guard(mean of logp − logp_old over the run of live tokens))"),
    ("ratio.level", "product", "r = exp(Σ (logp − logp_old) over the response)"),
    ("ratio.level", "given", "r = exp(guard(log_ratio))"),
    (
        "ratio.level",
        "min_prefix",
        "r = exp(guard(logp − logp_old + least sum over a prefix before it, at most 0))",
    ),
    ("correction.level", "one", "ρ = 1"),
    ("correction.level", "token", "ρ = exp(logp_old − logp_rollout) of each token"),
    ("correction.level", "sequence", "ρ = exp(Σ (logp_old − logp_rollout)) of the response"),
    ("correction.level", "geometric", "ρ = exp(mean of logp_old − logp_rollout) of the response"),
    ("correction.rule", "truncate", "w = ρ, at least `low` and at most `high`"),
    ("correction.rule", "mask", "w = ρ within [low, high], else 0"),
    ("correction.rule", "plain", "w = ρ"),
    ("mask.opsm_delta", "*", "drop responses with A < 0 and mean(behaviour − logp) above opsm_delta"),
    ("mask.top_entropy", "*", "keep the share `top_entropy` of the tokens with the largest entropies"),
    ("gate.kind", "ppo_clip", "l = max(−A·r, −A·clip(r, 1 − low, 1 + high)); dual: at most −A·c where A < 0"),
    ("gate.kind", "cispo", "l = −sg[clip(r, low, high)]·A·logp"),
    ("gate.kind", "reinforce", "l = −A·logp"),
    (
        "gate.kind",
        "dppo_tv",
        "l = −sg[min(r, c)]·A·logp, 0 where the probability has moved further than the bounds",
    ),
    (
        "gate.kind",
        "dppo_kl",
        "l = −sg[min(r, c)]·A·logp, 0 where the binary KL divergence is above the bounds",
    ),
    ("gate.kind", "gmpo", "l = −A·exp(mean of clipped log-ratios) of the response, or what `mean` names"),
    (
        "gate.kind",
        "trust_region",
        "l = −sg[min(exp(logp − logp_rollout), c)]·A·logp, 0 where the divergence from logp_old is above the \
         bounds",
    ),
    (
        "gate.kind",
        "minirl",
        "l = −sg[min(exp(logp − logp_rollout), c)]·A·logp, 0 where A > 0 and r > 1 + high, or A < 0 and \
         r < 1 − low",
    ),
    ("gate.kind", "remix", "l = max(−A·r, −A·clip(r, c − low, c + high)), c = exp(logp_latest − logp_old)"),
    ("gate.kind", "two_sided", "l = max(−A·min(r, delta), −A·clip(r, 1 − low, 1 + high))"),
    (
        "gate.kind",
        "kl_cov",
        "l = −A·r, + coef·|logp − logp_old| where the covariance of A and logp is largest",
    ),
    (
        "gate.kind",
        "clip_cov",
        "l of PPO's clip, 0 for a few random tokens with a large covariance of A and logp",
    ),
    ("gate.kind", "dro", "l = −(A·logp − β/2·(logp − logp_old)²)"),
    (
        "gate.kind",
        "vespo",
        "l = −sg[exp(λ + k·ln W − λ·W)]·A·logp, W the ratio of the response; k, λ by the sign of A",
    ),
    (
        "gate.kind",
        "topr",
        "l = −w·A·logp, w = 1 where A ≥ 0, else the ratio of the response to logp_rollout, at most 1",
    ),
    ("gate.kind", "sapo", "l = −A·(4/τ)·σ(τ·(r − 1)), τ by the sign of A"),
    ("kl.estimator", "k1", "k = logp − logp_ref"),
    ("kl.estimator", "abs", "k = |logp − logp_ref|"),
    ("kl.estimator", "k2", "k = (logp − logp_ref)² / 2"),
    ("kl.estimator", "k3", "k = eᵘ − u − 1, u = logp_ref − logp"),
    ("kl.estimator", "low_var_kl", "k = eᵘ − u − 1, u = logp_ref − logp, clamped"),
    ("kl.place", "loss", "L += coef·agg(k)"),
    ("kl.place", "reward", "r −= coef·k for each token"),
    (
        "kl.place",
        "convex",
        "L += coef·(λ·agg(k to logp_ref) + (1 − λ)·agg(k to logp_previous)), λ by the step",
    ),
    ("entropy.coef", "*", "L −= coef·agg(H)"),
    ("value.coef", "*", "critic: coef·agg(max((V − G)², (clip(V, V_old ± range) − G)²) / 2)"),
    ("aggregation.mode", "token-mean", "L = Σ l / M, M the live tokens"),
    ("aggregation.mode", "token-sum", "L = Σ l"),
    ("aggregation.mode", "seq-mean-token-sum", "L = Σ l / N, N the responses"),
    ("aggregation.mode", "seq-mean-token-sum-norm", "L = Σ l / (N·C), C the horizon"),
    ("aggregation.mode", "seq-mean-token-mean", "L = mean over responses of the mean of l over their tokens"),
];

/// The formulas of a stage, or of a choice within one, for these settings.
pub(super) fn of(stage: &str, settings: &Map<String, Value>) -> Vec<&'static str> {
    let chosen = |key: &str| {
        let there = settings.contains_key(key);
        let value = choice(settings, key);
        let name = format!("{stage}.{key}");
        let fits = move |(of, which, _): &&(&str, &str, &str)| {
            of == &name && (*which == value || (there && *which == "*"))
        };
        FORMULAS.iter().find(fits).map(|(.., formula)| *formula)
    };
    // A choice within a stage names its own kind.
    let kind = choice(settings, "kind");
    let own = FORMULAS.iter().find(|(of, which, _)| of == &stage && (*which == kind || *which == "*"));
    let keys = ["estimator", "place", "level", "rule", "kind", "opsm_delta", "top_entropy", "coef", "mode"];
    // An estimator that another choice replaces is not shown.
    let replaced = stage == "advantage" && settings.contains_key("over_time");
    let of_keys = keys.into_iter().filter(|key| !(replaced && *key == "estimator")).filter_map(chosen);
    own.map(|(.., formula)| *formula).into_iter().chain(of_keys).collect()
}
