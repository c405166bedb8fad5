//! What is not a recipe: functions over arrays, and schedules of the host.

use super::{Entry, Kind, evidence, measured};
use lockstep::recipe::Confidence::{self, FrameworkCode, OfficialCode, OurReading, Ours, Paper, Recalled};

/// Name, what it does, source, confidence, the bench that times it (or none) and what its cost is per.
type Row = (&'static str, &'static str, &'static str, Confidence, &'static str, &'static str);

/// All entries that are not recipes.
pub(super) fn all() -> impl Iterator<Item = Entry> {
    let functions = FUNCTIONS.iter().map(|row| (Kind::Function, *row));
    let schedules = SCHEDULES.iter().map(|(name, what, source, confidence)| {
        (Kind::Schedule, (*name, *what, *source, *confidence, "", ""))
    });
    functions.chain(schedules).map(|(kind, (name, what, source, confidence, bench, per))| Entry {
        name,
        kind,
        what,
        stages: String::new(),
        source,
        confidence,
        evidence: evidence(name, confidence),
        bench: (!bench.is_empty()).then_some(bench),
        cost: measured(name),
        per,
    })
}

#[rustfmt::skip]
const FUNCTIONS: &[Row] = &[
    // Rewards and advantages of outcomes.
    ("ops::group_advantage", "baseline and scale of each group", "2402.03300 and its family", FrameworkCode,
        "group_advantage", "token"),
    ("ops::vcpo_weights",
        "weights of VCPO's minimum-variance baseline, from measured norms or the proxy of tokens",
        "2602.17616", OfficialCode, "vcpo_weights", "token"),
    ("ops::shape_rewards", "overlong, PSR/NSR/weighted, FAPO, length-aware, pairwise",
        "2503.14476, 2506.01347, 2510.22543", FrameworkCode, "shape_rewards", "token"),
    ("ops::filter_groups", "dynamic sampling, solve rate, spread: what is dropped is counted",
        "2503.14476, 2509.24107", FrameworkCode, "filter_groups", "token"),
    ("ops::novelty_bands", "EVOL-RL bands", "2509.15194", OfficialCode, "novelty_bands", "token"),
    ("ops::variance_increase", "GRPOVI's reward adjustment", "2505.23247", Paper, "variance_increase",
        "token"),
    ("ops::sharpen", "XRPO-style novelty, ACE's overconfidence", "2510.06672, 2602.21420", OurReading,
        "sharpen", "token"),
    ("ops::role_baseline", "SPIRAL's role-conditioned moving average", "2506.24119", OfficialCode,
        "role_baseline", "token"),
    ("ops::entropy_bonus", "MSSR's entropy shaping", "2512.18215", OfficialCode, "entropy_bonus", "token"),
    ("ops::pass_at_k", "analytic pass@k advantage and unbiased pass@k", "2508.10751", Recalled, "pass_at_k",
        "token"),
    ("ops::gdpo", "several rewards normalised apart, then the batch", "2601.05242", FrameworkCode, "gdpo",
        "sequence"),
    ("ops::whiten", "masked whitening, three conventions", "verl, NeMo RL, TRL", FrameworkCode, "whiten",
        "token"),
    // Advantages over time.
    ("ops::gae", "GAE over masked turns, bootstrap, critic's own lambda, length-adaptive lambda",
        "1506.02438", FrameworkCode, "gae", "token"),
    ("ops::td_lambda", "lambda-returns", "1506.02438", FrameworkCode, "gae", "token"),
    ("ops::vtrace", "V-trace targets and advantages", "1802.01561", FrameworkCode, "vtrace", "token"),
    ("ops::discounted_return", "discounted rewards from each token on", "2501.03262", FrameworkCode,
        "discounted_return", "token"),
    ("ops::turn_return", "MARS: reward-to-go of turns", "2510.15414", OfficialCode, "turn_return", "turn"),
    ("ops::normalize_roles", "MARS: normalisation per role, over samples or distinct values", "2510.15414",
        OfficialCode, "normalize_roles", "turn"),
    ("ops::step_advantages", "UI-S1: steps and episodes", "2509.11543", OfficialCode, "step_return", "token"),
    ("ops::optimal_token_baseline", "the baseline of least variance per prompt and position", "2602.17616",
        FrameworkCode, "optimal_token_baseline", "token"),
    // Ratios and rollout correction.
    ("ops::token_ratio", "importance ratio per token and its statistics", "1707.06347", Paper, "token_ratio",
        "token"),
    ("ops::log_ratio_scan", "prefix products, MinPRO-style minimum, segments, sequences",
        "2601.22718, 2507.18071", OurReading, "log_ratio_scan/prefix", "token"),
    ("ops::proximal_logp", "AReaL's interpolated proximal policy", "2110.00641, AReaL", FrameworkCode,
        "proximal_logp", "token"),
    ("ops::staleness", "versions of stitched partial rollouts (APRIL)", "2509.18521", OfficialCode,
        "staleness", "token"),
    ("ops::sequence_sample_sizes", "effective sample sizes; VCPO's learning-rate scale", "2602.17616",
        OfficialCode, "effective_sample_size", "token"),
    ("ops::rollout_correction", "TIS, IcePop, fifteen rejections, batch normalisation, both denominators",
        "verl, TRL, slime, NeMo RL", FrameworkCode, "rollout_correction/tis, seq_mean_k3", "token"),
    ("ops::sequence_weight", "VESPO, TOPR, off-policy sequence mask", "TRL, 2503.14286, DeepSeek-V3.2",
        FrameworkCode, "sequence_weight", "token"),
    ("ops::select", "the n largest of a batch, ties to the lowest index: Clip-Cov, KL-Cov, top entropy",
        "2505.22617", FrameworkCode, "selection_key, digit_counts, narrow_digits, select_top", "token"),
    // KL, entropy, values.
    ("ops::kl", "k1, abs, k2, k3 with clamps and straight-through gradient", "Schulman's estimators",
        FrameworkCode, "kl", "token"),
    ("ops::kl_importance", "importance-weighted KL, gradient through the ratio or not",
        "DeepSeek-V3.2; TRL, slime", FrameworkCode, "kl_importance", "token"),
    ("ops::kl_in_reward", "the penalty in the reward", "1707.06347, 2501.03262", FrameworkCode,
        "kl_in_reward", "token"),
    ("ops::logits_statistics", "log-probability, entropy, collision of rows of logits; masked vocabularies",
        "elementary", FrameworkCode, "logits_statistics/moments", "logit"),
    ("ops::logits_gradient", "their gradient in the logits (timed with the statistics)", "elementary",
        FrameworkCode, "logits_statistics, logits_gradient", "logit"),
    ("ops::otr_exact", "one-token rollout without samples", "2509.26313", Ours, "otr_exact", "logit"),
    ("ops::otr_sampled", "one-token rollout from drawn candidates", "2509.26313", Paper, "otr_sampled",
        "logit"),
    ("ops::draw_tokens", "stratified draws from rows of logits, by position and seed", "2509.26313", Ours,
        "draw_tokens", "logit"),
    ("ops::logits_kl", "KL divergence of rows of logits over the whole vocabulary, both directions",
        "elementary", Ours, "logits_kl", "logit"),
    ("ops::value_loss", "clipped value loss and its gradient", "1707.06347", FrameworkCode, "value_loss",
        "token"),
    ("schedules::kl_control::AdaptiveKl", "adaptive KL coefficient", "1909.08593", FrameworkCode, "", ""),
    ("schedules::trust", "V0.5-style test of a prior: fuse, sample more, or the mean", "2603.10848",
        OurReading, "", ""),
    ("schedules::mssr",
        "MSSR: a prompt's tracked value; rho per prompt or for all (both releases), SPO's start and priority",
        "2512.18215", OfficialCode, "", ""),
    ("schedules::filtration", "PF-PPO-style weights", "2409.06957", OurReading, "", ""),
    ("schedules::judge", "FAPO: rewards of the model that judges", "2510.22543", OfficialCode, "", ""),
    // Routing.
    ("ops::gating_forward",
        "MoE router: experts and gates, natural or replayed, and the gradient of the gates",
        "2510.11370, 2512.01374", FrameworkCode, "", ""),
    ("ops::balance_loss", "load-balancing loss of a router and its gradient", "2101.03961", FrameworkCode, "",
        ""),
    // Exact sums.
    ("ops::exact_sum", "sums without an order: any sharding gives the same bits",
        "docs/decisions/0007-exact-sums.md", Ours, "exact_sum", "token"),
    // Prefix trees.
    ("ops::tempo", "prefix-tree values: credit where responses part", "2509.18314", OfficialCode, "tempo",
        "token"),
    ("ops::step_values",
        "Monte-Carlo values of an explicit tree; process and sibling-relative advantages (TreePS-RAG-style)",
        "2601.06922", OurReading, "step_values", "step"),
];

#[rustfmt::skip]
const SCHEDULES: &[(&str, &str, &str, Confidence)] = &[
    ("schedule::vade_select", "VADE-style selection: Beta posterior, Thompson draw", "2511.18902",
        OurReading),
    ("schedule::prompt_gdro_weights", "Prompt-GDRO: weights of difficulty bins", "2601.19280", OfficialCode),
    ("schedule::rollout_gdro_choose", "Rollout-GDRO: rollouts per bin under an exact budget", "2601.19280",
        OfficialCode),
    ("schedule::gdro_bins", "bins of prompts by their pass rates, with a margin", "2601.19280", OfficialCode),
    ("schedule::square_root_law", "allocation by the square root of the variance", "2601.19280", Paper),
    ("schedule::largest_remainder", "whole numbers under a budget", "2601.19280", Ours),
    ("schedule::dars::Dars", "DARS: extra rollouts of hard prompts", "2508.13755", OfficialCode),
    ("schedule::dots_select", "DOTS: prompts of a wanted difficulty", "2506.05316", OfficialCode),
    ("schedule::replay_slots", "rollout replay", "2506.05316", OfficialCode),
    ("schedule::arrol_two_ended", "ARRoL-style pruning", "2603.24840", OurReading),
    ("schedule::xrpo", "XRPO-style allocation", "2510.06672", OurReading),
    ("schedule::rorecomp_split", "RoRecomp-style batches", "2509.25958", OurReading),
    ("schedule::latr_prunes", "LATR: branching and pruning", "2510.24302", OfficialCode),
    ("schedule::scope", "SCOPE-style salvage of a prefix", "SCOPE", OurReading),
    ("schedule::swarm_groups", "Swarm SAPO: external groups", "2509.08721", OfficialCode),
    ("schedule::swarm_best", "genrl: the external groups with the greatest total rewards",
        "genrl, 2509.08721", OfficialCode),
    ("schedule::marsrl_inputs", "MarsRL: which outputs become inputs of the next role", "2511.11373", Paper),
    ("schedule::remix",
        "ReMix: historical minibatches and reincarnation; the distribution over the window is ours",
        "2507.06892", Paper),
    ("schedule::masa", "MASA rewards", "2510.03259", OfficialCode),
    ("schedule::brorl", "BroRL mass balance", "2510.01180", Paper),
    ("schedule::staleness", "AReaL capacity, verl rollouts per synchronisation, ROLL admissibility",
        "AReaL, verl, ROLL", FrameworkCode),
    ("schedule::april_order", "APRIL: oldest start version first", "2509.18521", OfficialCode),
    ("schedule::dynamic_sampling", "DAPO: which groups fill a batch", "2503.14476", FrameworkCode),
    ("schedule::balance", "sequences over ranks, Karmarkar-Karp", "verl", FrameworkCode),
    ("core::gate::remix::kl_convex_lambda", "ReMix: weight of the base policy's KL", "2507.06892", Paper),
];
