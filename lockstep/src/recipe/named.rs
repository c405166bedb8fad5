//! Recipes with a name: algorithms, and what each peer does by default. One entry each, no arithmetic.
//!
//! Where peers differ (maths.md §10 and the survey behind it):
//!
//! | name | std | singleton | guard | gate | aggregation | sequences, length |
//! |---|---|---|---|---|---|---|
//! | `grpo` | ddof 1, 1e-6 | error | clamp 20 | clip 0.2 | seq-mean-token-mean | nonempty, +1e-8 |
//! | `dr_grpo` | no division | error | clamp 20 | clip 0.2 | seq-mean-token-sum-norm, C 1024 | nonempty |
//! | `dapo` | ddof 1, 1e-6 | error | clamp 20 | clip 0.2 / 0.28, dual 3 | token-mean | |
//! | `sapo` | ddof 1, 1e-6 | error | clamp 20 | SAPO 1.0 / 1.05 | seq-mean-token-mean | nonempty, +1e-8 |
//! | `gspo` | ddof 1, 1e-6 | error | sequence ratio, at most e^10 | clip 3e-4 / 4e-4 | seq-mean-token-mean | nonempty, +1e-8 |
//! | `cispo` | ddof 1, 1e-6 | error | clamp 20 | CISPO, no lower bound, 1.28 | token-mean | |
//! | `dppo_tv`, `dppo_kl` | ddof 1, 1e-6 | error | clamp 20 | DPPO 0.15 / 0.15, 0.05 / 0.05, c 3 | token-mean | |
//! | `ppo` | ddof 1, 1e-6 | error | clamp 20 | clip 0.2, dual 3 | token-mean | |
//! | `verl` (0.9.1, vanilla) | ddof 1, 1e-6 | raw_reward | clamp 20 | clip 0.2, dual 3 | token-mean | |
//! | `verl_sapo` | as `verl` | raw_reward | clamp 20 | SAPO 1.0 / 1.05 | seq-mean-token-mean | nonempty, +1e-8 |
//! | `trl` (loss_type dapo) | ddof 1, 1e-4 | zero | none | clip 0.2 | token-mean | all |
//! | `trl_grpo` | ddof 1, 1e-4 | zero | none | clip 0.2 | seq-mean-token-mean | all, max(L, 1) |
//! | `trl_sapo` | ddof 1, 1e-4 | zero | none | SAPO 1.0 / 1.05 | seq-mean-token-mean | all, max(L, 1) |
//! | `openrlhf` (group_norm) | ddof 1, 1e-9 | error | clamp 20 | clip 0.2 | token-mean | |
//! | `slime` | ddof 1, 1e-6 | zero | none | clip 0.2 | seq-mean-token-mean | all, max(L, 1) |
//!
//! Estimators of outcome advantages, with the policy loss of `dapo` but a symmetric clip (clip 0.2, clamp 20, token-mean); formulas:
//! [`lockstep_core::advantage::baseline`].
//!
//! | name | estimator | singleton | constants |
//! |---|---|---|---|
//! | `rloo` | R − mean of the others | raw_reward (verl's list version; its vectorised one and TRL: zero) | |
//! | `opo` | R − length-weighted mean | raw_reward (verl) | |
//! | `gpg` | (R − mean) · S / #nonzero | raw_reward (verl) | f_norm 1; gate REINFORCE |
//! | `pass_k` | best − second best, over std | error (verl) | ddof 1, 1e-6 |
//! | `mc_grpo` | (R − median) / (MAD + floor) | zero | floor 1e-3 as released: minorities get ±1000; 0.1 to 1 is wiser |
//! | `max_rl` | (R − mean) / mean | zero | |
//! | `lite_ppo` | (R − mean) / (batch std + eps) | zero | ddof 1, 1e-4 |
//! | `nemo` | leave-one-out mean and std | zero | ddof 1, 1e-6, divides only where std > 0 |
//! | `remax` | R − greedy reward | | given per group |
//! | `vcpo` | R − Σ W R / (Σ W + 1e-8), over std | error | ddof 0, 0; weights given |
//! | `reinforce_plus_plus` | whitened discounted returns | | gamma 1, verl's whitening |
//! | `reinforce_plus_plus_baseline` | R − mean, whitened by tokens | raw_reward (verl) | verl's whitening |
//! | `tempo` | GRPO's, and at tokens where responses part (R − mean + V after − V before) / (std + eps) | zero | ddof 1, 1e-6; token ids given |
//!
//! `ppo` takes its advantages from the group, as the others; bring your own through
//! [`Advantage::PerToken`](crate::Advantage). `dr_grpo` needs the constant that your run uses: set `horizon`.
//! A peer's preset states its defaults as read in November 2026; the singleton of `slime` is our reading (it has
//! no rule of its own).

use super::{
    AdvantageChoice, Aggregation, AggregationMode, CountedSequences, Estimator, GateChoice, GuardChoice,
    LengthGuard, RatioChoice, RatioLevel, Recipe, SingletonChoice,
};
use crate::Error;

/// All names that [`Recipe::named`] knows.
pub const NAMES: &[&str] = &[
    "grpo",
    "dr_grpo",
    "dapo",
    "sapo",
    "gspo",
    "cispo",
    "gpg",
    "dppo_tv",
    "dppo_kl",
    "ppo",
    "verl",
    "verl_sapo",
    "trl",
    "trl_grpo",
    "trl_sapo",
    "openrlhf",
    "slime",
    "rloo",
    "opo",
    "pass_k",
    "mc_grpo",
    "max_rl",
    "lite_ppo",
    "nemo",
    "remax",
    "vcpo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    // --- outcome rewards and advantages of sequences
    // --- advantages over time
    // --- importance ratios and rollout correction
    // --- policy losses
    // --- prefix trees
    "tempo",
];

impl Recipe {
    /// The recipe called `name`; [`NAMES`] lists them and the table in the source says what each is.
    ///
    /// Errors: an unknown name, with the known ones.
    pub fn named(name: &str) -> Result<Recipe, Error> {
        let own = AdvantageChoice::default();
        let centred = AdvantageChoice { norm_by_std: false, ..own };
        let verl = AdvantageChoice { singleton: SingletonChoice::RawReward, ..own };
        let trl = AdvantageChoice { eps: 1e-4, singleton: SingletonChoice::Zero, ..own };
        let openrlhf = AdvantageChoice { eps: 1e-9, ..own };
        let slime = AdvantageChoice { singleton: SingletonChoice::Zero, ..own };

        let raw = |estimator| AdvantageChoice { estimator, ..verl };
        let zero = |estimator| AdvantageChoice { estimator, ..slime };
        let vcpo = AdvantageChoice { estimator: Estimator::Vcpo, ddof: 0, eps: 0.0, ..own };
        let lite_ppo = AdvantageChoice { estimator: Estimator::GrpoBatch, ..trl };

        let clamp = RatioChoice::default();
        let sequence = RatioChoice { level: RatioLevel::Sequence, log_max: Some(10.0), ..clamp };
        let unguarded = RatioChoice { guard: GuardChoice::None, ..clamp };

        let clip = GateChoice::default();
        let dual = GateChoice::PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: Some(3.0) };
        let higher =
            GateChoice::PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: Some(3.0) };
        let sapo = GateChoice::Sapo { tau_pos: 1.0, tau_neg: 1.05 };

        let gspo = GateChoice::PpoClip { clip_ratio_low: 3e-4, clip_ratio_high: 4e-4, clip_ratio_c: None };
        let cispo = GateChoice::Cispo { low: 0.0, high: 1.28 };
        let dppo_tv = GateChoice::DppoTv { clip_ratio_low: 0.15, clip_ratio_high: 0.15, clip_ratio_c: 3.0 };
        let dppo_kl = GateChoice::DppoKl { clip_ratio_low: 0.05, clip_ratio_high: 0.05, clip_ratio_c: 3.0 };

        let by_sequence = Aggregation::default();
        let by_token = Aggregation { mode: AggregationMode::TokenMean, ..by_sequence };
        let constant =
            Aggregation { mode: AggregationMode::SeqMeanTokenSumNorm, horizon: Some(1024.0), ..by_sequence };
        let trl_by_sequence =
            Aggregation { sequences: CountedSequences::All, length: LengthGuard::AtLeastOne, ..by_sequence };

        let (advantage, ratio, gate, aggregation) = match name {
            "grpo" => (own, clamp, clip, by_sequence),
            "dr_grpo" => (centred, clamp, clip, constant),
            "dapo" => (own, clamp, higher, by_token),
            "sapo" => (own, clamp, sapo, by_sequence),
            "gspo" => (own, sequence, gspo, by_sequence),
            "cispo" => (own, clamp, cispo, by_token),
            "dppo_tv" => (own, clamp, dppo_tv, by_token),
            "dppo_kl" => (own, clamp, dppo_kl, by_token),
            "ppo" => (own, clamp, dual, by_token),
            "verl" => (verl, clamp, dual, by_token),
            "verl_sapo" => (verl, clamp, sapo, by_sequence),
            "trl" => (trl, unguarded, clip, Aggregation { sequences: CountedSequences::All, ..by_token }),
            "trl_grpo" => (trl, unguarded, clip, trl_by_sequence),
            "trl_sapo" => (trl, unguarded, sapo, trl_by_sequence),
            "openrlhf" => (openrlhf, clamp, clip, by_token),
            "slime" => (slime, unguarded, clip, trl_by_sequence),
            "rloo" => (raw(Estimator::Rloo), clamp, clip, by_token),
            "opo" => (raw(Estimator::Opo), clamp, clip, by_token),
            "gpg" => (raw(Estimator::Gpg), clamp, GateChoice::Reinforce {}, by_token),
            "pass_k" => (AdvantageChoice { estimator: Estimator::PassK, ..own }, clamp, clip, by_token),
            "mc_grpo" => (zero(Estimator::McGrpo), clamp, clip, by_token),
            "max_rl" => (zero(Estimator::MaxRl), clamp, clip, by_token),
            "lite_ppo" => (lite_ppo, clamp, clip, by_token),
            "nemo" => (zero(Estimator::GrpoLeaveOneOut), clamp, clip, by_token),
            "remax" => (zero(Estimator::ReMax), clamp, clip, by_token),
            "vcpo" => (vcpo, clamp, clip, by_token),
            "reinforce_plus_plus" => (raw(Estimator::ReinforcePlusPlus), clamp, clip, by_token),
            "reinforce_plus_plus_baseline" => {
                (raw(Estimator::ReinforcePlusPlusBaseline), clamp, clip, by_token)
            }
            // --- outcome rewards and advantages of sequences
            // --- advantages over time
            // --- importance ratios and rollout correction
            // --- policy losses
            // --- prefix trees
            "tempo" => (zero(Estimator::Tempo), clamp, clip, by_token),
            _ => {
                return Err(Error::Recipe(format!(
                    "no recipe is called `{name}`: known are {}",
                    NAMES.join(", ")
                )));
            }
        };
        Ok(Recipe { name: name.into(), advantage, ratio, gate, aggregation, ..Recipe::default() })
    }
}
