//! What is not a recipe: functions over arrays, and schedules of the host.

use super::Confidence::{self, FrameworkCode, Paper, Recalled};
use super::{Entry, Kind, measured};

/// Name, what it does, source, confidence, golden files, what its cost is per; the cost is measured under its name.
type Row = (&'static str, &'static str, &'static str, Confidence, &'static [&'static str], &'static str);

/// All entries that are not recipes.
pub(super) fn all() -> impl Iterator<Item = Entry> {
    let functions = FUNCTIONS.iter().map(|row| (Kind::Function, row));
    let schedules = SCHEDULES.iter().map(|row| (Kind::Schedule, row));
    functions.chain(schedules).map(|(kind, &(name, stages, source, confidence, golden, per))| Entry {
        name,
        kind,
        stages: stages.into(),
        source,
        confidence,
        golden: golden.to_vec(),
        cost: measured(name),
        per,
    })
}

const FUNCTIONS: &[Row] = &[
    (
        "ops::kl",
        "k1, abs, k2, k3 with clamps and straight-through gradient",
        "Schulman's estimators",
        FrameworkCode,
        &["kl"],
        "token",
    ),
    ("ops::token_ratio", "importance ratio per token and its statistics", "1707.06347", Paper, &[], "token"),
    (
        "ops::pass_at_k",
        "analytic pass@k advantage and unbiased pass@k",
        "2508.10751",
        Recalled,
        &[],
        "sequence",
    ),
    (
        "ops::gdpo",
        "several rewards normalised apart, then the batch",
        "2601.05242",
        FrameworkCode,
        &[],
        "sequence",
    ),
    (
        "ops::discounted_return",
        "discounted rewards from each token on",
        "2501.03262",
        FrameworkCode,
        &[],
        "token",
    ),
    ("ops::whiten", "masked whitening, three conventions", "verl, NeMo RL, TRL", FrameworkCode, &[], "token"),
    // --- prefix trees
    (
        "ops::tempo",
        "prefix-tree values: credit where responses part",
        "2509.18314",
        Confidence::OfficialCode,
        &[],
        "token",
    ),
    (
        "ops::step_values",
        "Monte-Carlo values of an explicit tree; process and sibling-relative advantages (TreePS-RAG-style)",
        "2601.06922",
        Confidence::OurReading,
        &[],
        "step",
    ),
];

const SCHEDULES: &[Row] = &[];
