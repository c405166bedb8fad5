//! The one-line formula of each choice; `docs/` and the choice's module in `core` have the details.

use serde_json::{Map, Value};

use crate::explain::choice;

/// Writes the table: stages in brackets, below each its formulas by the value of the selecting key.
macro_rules! formulas {
    ($([$stage:literal] $($which:literal: $formula:literal,)*)*) => {
        /// Stage, value of the selecting key, formula.
        const FORMULAS: &[(&str, &str, &str)] = &[$($(($stage, $which, $formula),)*)*];
    };
}

formulas! {
    ["reward.shaping"]
    "signs": "R' = `correct` where R = 1, `wrong` where R = 0, else R",
    "fapo": "R' = 1 where right, 1 − λ where right but flawed, else −1",
    "conciser": "R' = clip(1 − L/limit, 0, 1) where the whole group is right, else R",
    "brpo": "R' = 1 where right, else −1; 0 for the reference",
    "grpovi": "R' = the rewards of largest variance with the same mean and order, within [low, high]",
    "evol_rl": "R' = novelty ranked inside a band: 0.5 to 1 for the majority's answer, −1 to −0.5 for others",
    ["reward.overlong"]
    "": "R' = R + min(−(L − (max_length − buffer))/buffer · factor, 0)",
    ["reward.filter"]
    "varied": "keep groups whose rewards differ",
    "spread": "keep groups whose rewards have a standard deviation above eta",
    "solve_rate": "keep groups that are solved less often than the limit",
    "balanced": "keep groups whose shaped rewards have a mean of at most tau in magnitude",
    "equal": "keep responses whose reward is `value`",
    "nonzero_advantage": "keep responses whose advantage is not 0",
    "at_most_tokens": "keep responses of at most so many tokens",
    ["reward.sharpen"]
    "xrpo":
        "A' = A + min(max(λ·(1 − η), 0), κ·max(A, 0)) where right, η = exp(x − mean x), x the mean of \
         logp_old",
    "ace": "A' = A·min(1 + α·softplus(x), cap) where A < 0, x = Σ (logp_old − logp_ref)",
    ["reward.filtration"]
    "*": "A' = A · n · P(drawn), P by the rewards of the group",
    ["reward.weights"]
    "*":
        "w = u · S/Σu, u = a + (b − a)·x for length and difficulty, x from 0 (shortest, easiest) to 1 \
         (longest, hardest)",
    ["reward.entropy"]
    "*": "A' = A + min(α·H, |A|/κ) for each token",
    ["advantage.estimator"]
    "grpo": "A = (R − mean) / (std + eps) over the group; without norm_by_std: R − mean",
    "grpo_batch": "A = (R − mean of the group) / (std of the batch + eps)",
    "grpo_leave_one_out": "A = (R − mean of the others) / (std of the others + eps)",
    "rloo": "A = R − mean of the others",
    "opo": "A = R − Σ L·R / Σ L over the group",
    "gpg": "A = (R − mean) / (f_norm · share of the rewards that are not 0)",
    "pass_k": "A = (best − second best) / (std + eps) for the best, 0 for the others",
    "mc_grpo": "A = (R − median) / (MAD + floor); the pivot is left out",
    "max_rl": "A = (R − mean) / mean",
    "remax": "A = R − baseline of the prompt",
    "vcpo": "A = (R − Σ w·R / Σ w) / (std + eps), w = baseline_weights",
    "reinforce_plus_plus": "A = whitened Gₜ, Gₜ = rₜ + γ·Gₜ₊₁",
    "reinforce_plus_plus_baseline": "A = whitened (R − mean of the group)",
    "reward": "A = R",
    "pass_at_k":
        "A = q/σ where right, −(c/w)·q/σ where wrong: c right and w wrong ones, q = C(w, k)/C(n, k), σ = \
         √(q(1 − q))",
    "gdpo": "A = whitened Σₖ wₖ · (Rₖ − mean) / (std + eps)",
    "v0_5": "A = R − (λ·baseline + (1 − λ)·mean), λ by the variances",
    "role_baseline": "A = R − b(role), b ← decay·b + (1 − decay)·R",
    "tempo":
        "A = A of grpo + (Vₜ₊₁ − Vₜ)/(std + eps), V the mean reward of the responses that share the prefix",
    ["advantage.over_time"]
    "gae": "A = Σ (γλ)ᵏ δₜ₊ₖ, δₜ = rₜ + γ·Vₜ₊₁ − Vₜ; returns A + V",
    "vtrace":
        "A = min(ρ, rho_pg)·(rₜ + γ·(λ·vₜ₊₁ + (1 − λ)·Vₜ₊₁) − Vₜ), v = V + Σ of errors weighed by min(ρ, \
         rho_bar) and min(ρ, c_bar)",
    "mars": "A = (G − mean) / (std + eps) of the role, G = Σ γᵏ·r over turns",
    "ui_s1": "A = A(episode) + ω·A(step), returns of steps cut where the expert differs",
    "optimal_token_baseline":
        "A = Gₜ − Σ w·G / Σ w over the group at t, w = Σ squared norms of scores up to t",
    "signed_return":
        "A = Gₜ·correct + offset where R = 1, Gₜ + wrong + offset where R = 0, else Gₜ + offset; Gₜ = γᵏ·R, \
         k tokens from the end",
    ["ratio.level"]
    "token": "r = exp(guard(logp − logp_old))",
    "sequence": "r = exp(mean of logp − logp_old over the response)",
    "segment": "r = exp(guard(mean of logp − logp_old over the run of live tokens))",
    "product": "r = exp(Σ (logp − logp_old) over the response)",
    "given": "r = exp(guard(log_ratio))",
    "min_prefix": "r = exp(guard(logp − logp_old + least sum over a prefix before it, at most 0))",
    ["correction.level"]
    "one": "ρ = 1",
    "token": "ρ = exp(logp_old − logp_rollout) of each token",
    "sequence": "ρ = exp(Σ (logp_old − logp_rollout)) of the response",
    "geometric": "ρ = exp(mean of logp_old − logp_rollout) of the response",
    ["correction.rule"]
    "truncate": "w = ρ, at least `low` and at most `high`",
    "mask": "w = ρ within [low, high], else 0",
    "plain": "w = ρ",
    ["mask.opsm_delta"]
    "*": "drop responses with A < 0 and mean(behaviour − logp) above opsm_delta",
    ["mask.top_entropy"]
    "*": "keep the share `top_entropy` of the tokens with the largest entropies",
    ["gate.kind"]
    "ppo_clip": "l = max(−A·r, −A·clip(r, 1 − low, 1 + high)); dual: at most −A·c where A < 0",
    "cispo": "l = −sg[clip(r, low, high)]·A·logp",
    "reinforce": "l = −A·logp",
    "dppo_tv": "l = −sg[min(r, c)]·A·logp, 0 where the probability has moved further than the bounds",
    "dppo_kl": "l = −sg[min(r, c)]·A·logp, 0 where the binary KL divergence is above the bounds",
    "gmpo": "l = −A·exp(mean of clipped log-ratios) of the response, or what `mean` names",
    "trust_region":
        "l = −sg[min(exp(logp − logp_rollout), c)]·A·logp, 0 where the divergence from logp_old is above the \
         bounds",
    "minirl":
        "l = −sg[min(exp(logp − logp_rollout), c)]·A·logp, 0 where A > 0 and r > 1 + high, or A < 0 and r < \
         1 − low",
    "remix": "l = max(−A·r, −A·clip(r, c − low, c + high)), c = exp(logp_latest − logp_old)",
    "two_sided": "l = max(−A·min(r, delta), −A·clip(r, 1 − low, 1 + high))",
    "kl_cov": "l = −A·r, + coef·|logp − logp_old| where the covariance of A and logp is largest",
    "clip_cov": "l of PPO's clip, 0 for a few random tokens with a large covariance of A and logp",
    "dro": "l = −(A·logp − β/2·(logp − logp_old)²)",
    "vespo": "l = −sg[exp(λ + k·ln W − λ·W)]·A·logp, W the ratio of the response; k, λ by the sign of A",
    "topr": "l = −w·A·logp, w = 1 where A ≥ 0, else the ratio of the response to logp_rollout, at most 1",
    "sapo": "l = −A·(4/τ)·σ(τ·(r − 1)), τ by the sign of A",
    ["kl.estimator"]
    "k1": "k = logp − logp_ref",
    "abs": "k = |logp − logp_ref|",
    "k2": "k = (logp − logp_ref)² / 2",
    "k3": "k = eᵘ − u − 1, u = logp_ref − logp",
    "low_var_kl": "k = eᵘ − u − 1, u = logp_ref − logp, clamped",
    ["kl.place"]
    "loss": "L += coef·agg(k)",
    "reward": "r −= coef·k for each token",
    "convex": "L += coef·(λ·agg(k to logp_ref) + (1 − λ)·agg(k to logp_previous)), λ by the step",
    ["entropy.coef"]
    "*": "L −= coef·agg(H)",
    ["value.coef"]
    "*": "critic: coef·agg(max((V − G)², (clip(V, V_old ± range) − G)²) / 2)",
    ["aggregation.mode"]
    "token-mean": "L = Σ l / M, M the live tokens",
    "token-sum": "L = Σ l",
    "seq-mean-token-sum": "L = Σ l / N, N the responses",
    "seq-mean-token-sum-norm": "L = Σ l / (N·C), C the horizon",
    "seq-mean-token-mean": "L = mean over responses of the mean of l over their tokens",
}

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
