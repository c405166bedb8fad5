//! What peers do where it is not their default, or where two of them part: each a change of a preset of [`named`](super::named).
//!
//! | name | as | but |
//! |---|---|---|
//! | `verl_dr_grpo` | `verl` | R − mean; seq-mean-token-sum-norm by the padded width, as no constant is configured (maths.md §10 row 6) |
//! | `trl_dr_grpo` | `trl` | R − mean; the same by a constant (1024: TRL's `max_completion_length` is the user's), all sequences |
//! | `verl_cispo`, `slime_cispo` | `verl`, `slime` | CISPO, weights 1 − 0.2 to 1 + 0.2 (rows 7, 8) |
//! | `trl_cispo` | `trl` | CISPO, weights up to 5, absolute, no lower end (rows 7, 8) |
//! | `verl_rloo_vectorized` | `verl` | RLOO; a group of one gets 0 (row 2; `rloo` is the list version) |
//! | `verl_geo_rs` | `verl` | geometric rejection with the band on 1/ρ, as verl's code tests it (row 9; `geo_rs` has it on ρ) |
//! | `trl_gdpo`, `nemo_gdpo` | `trl`, `nemo` | GDPO, batch step over sequences (row 24; `gdpo` is verl's); NeMo's components against the others, nothing added to the batch's deviation |
//! | `trl_vespo` | `vespo` | against `logp_old`, the weights of the correction for the sampler inside the exponent: truncated at 3 |
//! | `slime_gspo`, `areal_gspo` | `slime`, `areal` | ratio of sequences, mean of the sequence's advantages; GSPO's clip 3e-4 / 4e-4 |
//! | `nemo_gspo`, `openrlhf_gspo` | `nemo`, `openrlhf` | ratio of sequences without a bound; GSPO's clip; seq-mean-token-mean; NeMo corrects by the plain product over the sequence |
//! | `areal` | `slime` | eps 1e-5, then whitened by tokens (ddof 1, 1e-5 outside the root); token-mean; decoupled, tokens with weights above 5 masked, the denominator as before |
//! | `areal_sapo` | `areal` | SAPO by token-mean (row 10), not decoupled |
//! | `nemo_kl` | `nemo` | its KL term: k3 0.01, clamps 20 and 10, with the score's gradient |
//! | `mlperf_v6_1` | `nemo` | REINFORCE (its ratio is forced to 1), seq-mask-tis 0.999 to 1.002, that band in the metrics |
//! | `roll` | `slime` | seq-mean-token-mean as verl guards it |
//! | `ms_swift` | `trl_grpo` | KL: k3 0.04 without clamps |
//! | `ui_s1_paper` | `ui_s1` | the first mismatch counts (row 19), divided by the standard deviations |
//! | `spiral_paper` | `spiral` | a reward is part of its own baseline (row 15) |
//! | `mars_paper` | `mars` | normalised over every turn of the role (row 14) |
//! | `vcpo_full` | `vcpo` | its gradient's weights: of sequences, truncated at 8 (verl's bound 20) |
//! | `remix_full` | `remix` | its KL-convex term (k2, 0.01) and its entropy bonus (0.001); estimator and coefficients are ours |
//! | `tempo_released` | `tempo` | finished responses compare equal to padding id 0 (row 13): set `pad_id` to your tokenizer's; behind the first masked token plain GRPO |
//!
//! AReaL takes tokens above the cap out of the means of `areal_gspo` too; here they have weight 0 and stay in them. ROLL normalises rewards in their groups
//! where its configuration says so, as its GRPO examples do.
//!
//! TRL, AReaL, NeMo RL, ROLL and ms-swift as read in 2026; verl 0.9.1.

use super::{
    Against, AggregationMode, CorrectionChoice, CountedSequences, DenominatorChoice, EntropyChoice,
    Estimator, GateChoice, K1BandChoice, KlChoice, KlEstimator, KlPlace, KlWeighting, LengthGuard,
    NormSetChoice, RatioAdvantage, RatioChoice, RatioLevel, Recipe, RejectChoice, RoleOrder, SingletonChoice,
    TimeChoice, WeightLevelChoice, WeightRule, WhitenChoice, correction,
};
use crate::Error;
use lockstep_core::correction::Statistic;

/// The recipe of a name; none for the others'.
pub(super) fn of(name: &str) -> Result<Option<Recipe>, Error> {
    let Some(base) = base(name) else { return Ok(None) };
    let mut recipe = Recipe::named(base)?;
    change(name, &mut recipe);
    recipe.name = name.into();
    Ok(Some(recipe))
}

/// What a name changes.
fn base(name: &str) -> Option<&'static str> {
    Some(match name {
        "verl_dr_grpo" | "verl_cispo" | "verl_rloo_vectorized" | "verl_geo_rs" => "verl",
        "trl_cispo" | "trl_dr_grpo" | "trl_gdpo" => "trl",
        "trl_vespo" => "vespo",
        "slime_cispo" | "slime_gspo" | "areal" | "roll" => "slime",
        "areal_gspo" | "areal_sapo" => "areal",
        "nemo_kl" | "nemo_gspo" | "nemo_gdpo" | "mlperf_v6_1" => "nemo",
        "openrlhf_gspo" => "openrlhf",
        "ms_swift" => "trl_grpo",
        "ui_s1_paper" => "ui_s1",
        "tempo_released" => "tempo",
        "spiral_paper" => "spiral",
        "mars_paper" => "mars",
        "vcpo_full" => "vcpo",
        "remix_full" => "remix",
        _ => return None,
    })
}

fn change(name: &str, recipe: &mut Recipe) {
    let cispo = |low, high| GateChoice::Cispo { low, high };
    let gspo = GateChoice::PpoClip { clip_ratio_low: 3e-4, clip_ratio_high: 4e-4, clip_ratio_c: None };
    let sequence = RatioChoice { level: RatioLevel::Sequence, ..recipe.ratio };
    let means = RatioChoice { advantage: RatioAdvantage::SequenceMean, ..sequence };
    let k3 = |coef| KlChoice {
        estimator: KlEstimator::K3,
        coef,
        clamp_in: None,
        clamp_out: None,
        straight_through: false,
        importance_weighted: KlWeighting::None,
        place: KlPlace::Loss,
    };
    let before = CorrectionChoice { denominator: DenominatorChoice::Before, ..CorrectionChoice::default() };
    match name {
        "verl_dr_grpo" => {
            recipe.advantage.norm_by_std = false;
            recipe.aggregation.mode = AggregationMode::SeqMeanTokenSumNormPadded;
        }
        "trl_dr_grpo" => {
            recipe.advantage.norm_by_std = false;
            recipe.aggregation.mode = AggregationMode::SeqMeanTokenSumNorm;
            recipe.aggregation.horizon = Some(1024.0);
        }
        "verl_cispo" | "slime_cispo" => recipe.gate = cispo(0.8, 1.2),
        "trl_cispo" => recipe.gate = cispo(0.0, 5.0),
        "verl_rloo_vectorized" => {
            recipe.advantage.estimator = Estimator::Rloo;
            recipe.advantage.singleton = SingletonChoice::Zero;
        }
        "verl_geo_rs" => {
            let (statistic, band) = (Statistic::SeqMeanK1, K1BandChoice::InverseRho);
            let reject = vec![RejectChoice { statistic, low: Some(0.999), high: 1.001, band }];
            recipe.correction = correction::named("geo_rs").map(|c| CorrectionChoice { reject, ..c });
        }
        "trl_gdpo" => {
            recipe.advantage.estimator = Estimator::Gdpo;
            recipe.advantage.whiten = Some(WhitenChoice::Trl);
        }
        "nemo_gdpo" => {
            recipe.advantage.estimator = Estimator::Gdpo;
            recipe.advantage.leave_one_out = Some(true);
            recipe.advantage.whiten = Some(WhitenChoice::NemoGdpo);
        }
        "trl_vespo" => {
            if let GateChoice::Vespo { against, .. } = &mut recipe.gate {
                *against = Against::Old;
            }
            recipe.correction = Some(CorrectionChoice { high: 3.0, ..before });
        }
        "slime_gspo" => (recipe.ratio, recipe.gate) = (means, gspo),
        "areal_gspo" => (recipe.ratio, recipe.gate) = (means, gspo),
        "nemo_gspo" => {
            (recipe.ratio, recipe.gate) = (sequence, gspo);
            recipe.aggregation.mode = AggregationMode::SeqMeanTokenMean;
            let (level, rule) = (WeightLevelChoice::Sequence, WeightRule::Plain);
            recipe.correction = Some(CorrectionChoice { level, rule, ..before });
        }
        "openrlhf_gspo" => {
            (recipe.ratio, recipe.gate) = (sequence, gspo);
            recipe.aggregation.mode = AggregationMode::SeqMeanTokenMean;
        }
        "areal" => {
            recipe.advantage.eps = 1e-5;
            recipe.advantage.whiten = Some(WhitenChoice::Areal);
            recipe.aggregation.mode = AggregationMode::TokenMean;
            recipe.correction = Some(CorrectionChoice { rule: WeightRule::Mask, high: 5.0, ..before });
        }
        "areal_sapo" => {
            recipe.gate = GateChoice::Sapo { tau_pos: 1.0, tau_neg: 1.05 };
            recipe.correction = None;
        }
        "nemo_kl" => {
            recipe.kl = Some(KlChoice {
                clamp_in: Some(20.0),
                clamp_out: Some(10.0),
                importance_weighted: KlWeighting::Score,
                ..k3(0.01)
            });
        }
        "mlperf_v6_1" => {
            recipe.gate = GateChoice::Reinforce {};
            recipe.correction = correction::named("nemo_seq_mask_tis");
            recipe.metrics.band = [0.999, 1.002];
        }
        "roll" => {
            recipe.aggregation.sequences = CountedSequences::Nonempty;
            recipe.aggregation.length = LengthGuard::AddEps;
        }
        "ms_swift" => recipe.kl = Some(k3(0.04)),
        "ui_s1_paper" => {
            recipe.advantage.norm_by_std = true;
            recipe.advantage.over_time =
                Some(TimeChoice::UiS1 { gamma: 0.5, include_first_mismatch: true, omega: 1.0 });
        }
        "spiral_paper" => recipe.advantage.role_order = Some(RoleOrder::UpdateThenSubtract),
        "mars_paper" => {
            let set = NormSetChoice::Samples;
            recipe.advantage.over_time = Some(TimeChoice::Mars { gamma: 1.0, set });
        }
        "vcpo_full" => {
            recipe.correction =
                correction::named("verl_tis_sequence").map(|c| CorrectionChoice { high: 8.0, ..c });
        }
        "remix_full" => {
            let (estimator, place) = (KlEstimator::K2, KlPlace::Convex);
            recipe.kl = Some(KlChoice { estimator, place, ..k3(0.01) });
            recipe.entropy = Some(EntropyChoice { coef: 0.001 });
        }
        "tempo_released" => {
            (recipe.advantage.pad_id, recipe.advantage.stop_at_mask) = (Some(0), Some(true));
        }
        _ => {}
    }
}
