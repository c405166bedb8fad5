//! Where each named recipe comes from, and how sure we are of it.

use super::Confidence::{self, FrameworkCode, OfficialCode, Paper, Recalled};

/// Source and confidence of a recipe.
pub(super) fn source(name: &str) -> Option<(&'static str, Confidence)> {
    SOURCES.iter().find(|(found, ..)| *found == name).map(|(_, source, confidence)| (*source, *confidence))
}

const SOURCES: &[(&str, &str, Confidence)] = &[
    ("grpo", "2402.03300", FrameworkCode),
    ("dr_grpo", "2503.20783", FrameworkCode),
    ("dapo", "2503.14476", FrameworkCode),
    ("sapo", "2511.20347", Paper),
    ("gspo", "2507.18071", FrameworkCode),
    ("cispo", "2506.13585", FrameworkCode),
    ("gpg", "2504.02546", FrameworkCode),
    ("dppo_tv", "2602.04879", FrameworkCode),
    ("dppo_kl", "2602.04879", FrameworkCode),
    ("ppo", "1707.06347, 1912.09729", FrameworkCode),
    ("verl", "verl 0.9.1", FrameworkCode),
    ("verl_sapo", "verl 0.9.1", FrameworkCode),
    ("trl", "TRL", FrameworkCode),
    ("trl_grpo", "TRL", FrameworkCode),
    ("trl_sapo", "TRL", FrameworkCode),
    ("openrlhf", "OpenRLHF", FrameworkCode),
    ("slime", "slime", FrameworkCode),
    ("rloo", "2402.14740", FrameworkCode),
    ("opo", "2505.23585", FrameworkCode),
    ("pass_k", "2503.19595", FrameworkCode),
    ("mc_grpo", "2601.22582", OfficialCode),
    ("max_rl", "2602.02710", Recalled),
    ("lite_ppo", "TRL", FrameworkCode),
    ("nemo", "NeMo RL", FrameworkCode),
    ("remax", "2310.10505", FrameworkCode),
    ("vcpo", "2602.17616", OfficialCode),
    ("reinforce_plus_plus", "2501.03262", FrameworkCode),
    ("reinforce_plus_plus_baseline", "2501.03262", FrameworkCode),
    // --- prefix trees
    ("tempo", "2509.18314", OfficialCode),
];
