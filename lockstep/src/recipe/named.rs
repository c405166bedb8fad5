//! Recipes with a name: algorithms, and what each peer does by default. One entry each, no arithmetic. (Over 400 lines: half of them are this table.)
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
//! More of them, as changes of these: the table of `recipe/named_peers.rs`.
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
//! | `remax` | R − greedy reward; of token rewards what is still to come less it: [`Recipe::remax_advantages`] | | given per group |
//! | `vcpo` | R − Σ W R / (Σ W + 1e-8), over std | error | ddof 0, 0; divides where std > 1e-8; weights given |
//! | `vcpo_median`, `vcpo_winsorised` | as `vcpo`, less the weighted median, or the weighted mean between the quantiles | | 0.05 |
//! | `reinforce_plus_plus` | whitened discounted returns | | gamma 1, verl's whitening |
//! | `reinforce_plus_plus_baseline` | R − mean, whitened by tokens | raw_reward (verl) | verl's whitening |
//! | `tempo` | GRPO's, and at tokens where responses part (R − mean + V after − V before) / (std + eps) | zero | ddof 1, 1e-6; token ids given |
//! | `v0_5` | R − shrunk mean, V0.5-style (our reading) | | prior given per group |
//! | `pass_at_k` | analytic pass@k (2508.10751, recalled) | an error below k members | k 4 |
//! | `gdpo` | each reward over its group, then the batch | zero | components and weights given; ddof 1, 1e-6; verl's whitening |
//! | `spiral` | R − moving average of the role | | γ 0.95, subtract then update; roles and state given; advantages of 0 dropped |
//!
//! With a reward stage ([`lockstep_core::reward`]; estimator GRPO, singleton zero, unless said), the same policy loss:
//!
//! | name | rewards | constants |
//! |---|---|---|
//! | `dapo_full` | `dapo` with overlong shaping and dynamic sampling | L_max 20480, buffer 4096, factor 1 |
//! | `psr`, `nsr`, `w_reinforce` | only correct, only wrong, both by sign; the advantage itself | 1; −1; 0.1 and −1 |
//! | `fapo` | 1, −1, flawed positives 1 − λ (flags given) | λ 1; clip 0.2 / 0.28, dual 3 |
//! | `rapo_replay` | `rapo`, and groups that failed altogether get their last success back | [`Recipe::replays`] |
//! | `pf_ppo` | PF-PPO-style (our reading): advantages times how often a response is drawn | power 2 (verl); dual 3 |
//! | `rapo` | 0.1 format + 0.9 answer by `combine` before | ddof 0; advantages times groups/good groups, no cap (ours: 4); prune at the end of an epoch by `solve_rate` |
//! | `conciser` | ConciseR-style stage 2 (our reading) | L_limit 4096; clip as `fapo` |
//! | `evol_rl` | bands by majority and novelty (classes, similarities given) | clip as `fapo` |
//! | `grpovi` | largest variance, own bounds: set `low` and `high` to the range of your rewards | ties may part |
//! | `xrpo` | XRPO-style sharpening (our reading; logp of the sampling policy given) | λ 2.5, κ 0.5 |
//! | `ace` | negative advantages by overconfidence (logp, logp_ref given) | α 1, cap 5 (ours) |
//! | `brpo` | ±1 against a reference (given), the advantage itself | τ 0.6 |
//! | `mssr` | R − tracked value (given), whitened over sequences, then entropy per token | floor 1e-6, α 0.4, κ 2, sampled |
//!
//! Rollout corrections with the rest of a framework's preset (`verl_tis_token`, `icepop`, `trl_vllm`, …): the table of
//! `recipe/correction.rs`.
//!
//! Policy losses (advantage ddof 1, 1e-6, singleton error, clamp 20 where nothing else is said):
//!
//! | name | gate | what else |
//! |---|---|---|
//! | `gmpo` | GMPO ±0.4 in log space | divides by all sequences |
//! | `kl_cov` | no clip; \|d\| on the 2e-4 largest covariances, coef 1 | no guard; token-mean |
//! | `clip_cov` | clip 0.2; 2e-4 random tokens with covariance in (1, 5) dropped | no guard; token-mean; `seed` per call |
//! | `minirl` | MiniRL 0.2 / 0.27, c 5 | R − mean; seq-mean-token-sum; `logp_second` = sampler |
//! | `remix` | ReMix 0.2 around the latest policy | token-mean; `logp_second` = latest, `logp_old` = that of the data |
//! | `trl_two_sided` | clip 0.2, delta 4 (ours: TRL has no default) | as `trl` |
//! | `dro` | DRO, β 0.1 (ours) | token-mean |
//! | `vespo` | VESPO (2, 3) / (3, 2) | as `trl_grpo`; `logp_second` = sampler |
//! | `topr` | TOPR | seq-mean-token-mean; `logp_second` = sampler |
//! | `minpro` (MinPRO-style, our reading) | CISPO, no lower bound, 1.28 | `log_ratio` = the minimum-prefix log-ratios |
//! | `opsm` | clip 0.2, off-policy sequence mask, delta 0.1 (ours) | seq-mean-token-mean |
//! | `top_entropy` | DAPO's, on the top 20 % of entropies | token-mean; `entropy` |
//!
//! Rewards with a place in time, with the same policy loss (`gae` with dual 3, `vapo` with clip 0.2 / 0.28 and dual 3):
//!
//! | name | estimator | call | constants |
//! |---|---|---|---|
//! | `gae` | GAE, verl's whitening | [`Recipe::gae`] | gamma 1, lambda 0.95 |
//! | `ppo_critic` | the same, with a critic and an entropy bonus: PPO in full | [`Recipe::gae`], [`Recipe::value_loss`], [`Recipe::entropy_term`] | as `gae`; value clipped at 0.5, coefficient 1 (verl); entropy 0.001 (ours: verl's default is none) |
//! | `vapo` | the same | [`Recipe::gae`] | lambda 1 − 1/(0.05 L), of the critic 1 |
//! | `vtrace` | V-trace | [`Recipe::vtrace`] | gamma, lambda and all bounds 1 |
//! | `mars` | returns of turns, normalised over the role's distinct values and 0 (as released) | [`Recipe::turn_advantages`] | gamma 1, ddof 1, 1e-6 |
//! | `ui_s1` | steps and episodes, means only (as released) | [`Recipe::step_advantages`] | gamma 0.5, omega 1 |
//! | `optimal_token_baseline` | returns against the optimal token baseline | [`Recipe::token_baseline_advantages`] | gamma 1, 1e-8 |
//!
//! `ppo` takes its advantages from the group, as the others; bring your own through
//! [`Advantage::PerToken`](crate::Advantage). `dr_grpo` needs the constant that your run uses: set `horizon`.
//! A peer's preset states its defaults as read in November 2026; the singleton of `slime` is our reading (it has
//! no rule of its own).

use super::{
    AdvantageChoice, Against, Aggregation, AggregationMode, CountedSequences, EntropyChoice, Estimator,
    GateChoice, GmpoBounds, GuardChoice, LengthGuard, MaskChoice, NormSetChoice, RatioChoice, RatioLevel,
    Recipe, RobustChoice, SingletonChoice, TimeChoice, ValueChoice, WhitenChoice, correction, named_peers,
    named_reward,
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
    "dapo_full",
    "psr",
    "nsr",
    "w_reinforce",
    "fapo",
    "rapo",
    "conciser",
    "evol_rl",
    "grpovi",
    "xrpo",
    "ace",
    "brpo",
    "mssr",
    "v0_5",
    "pass_at_k",
    "gdpo",
    "spiral",
    "vcpo_median",
    "vcpo_winsorised",
    "pf_ppo",
    "rapo_replay",
    // --- advantages over time
    "gae",
    "ppo_critic",
    "vapo",
    "vtrace",
    "mars",
    "ui_s1",
    "optimal_token_baseline",
    // --- importance ratios and rollout correction
    "verl_tis_token",
    "verl_tis_sequence",
    "verl_mis_sequence",
    "icepop",
    "geo_rs",
    "trl_vllm",
    "slime_tis",
    "nemo_seq_mask_tis",
    "areal_decoupled",
    // --- policy losses
    "gmpo",
    "kl_cov",
    "clip_cov",
    "minirl",
    "remix",
    "trl_two_sided",
    "dro",
    "vespo",
    "topr",
    "minpro",
    "opsm",
    "top_entropy",
    // --- prefix trees
    "tempo",
    // --- peers
    "verl_dr_grpo",
    "verl_cispo",
    "verl_rloo_vectorized",
    "verl_geo_rs",
    "trl_cispo",
    "trl_dr_grpo",
    "trl_gdpo",
    "trl_vespo",
    "slime_cispo",
    "slime_gspo",
    "areal",
    "areal_gspo",
    "areal_sapo",
    "nemo_kl",
    "nemo_gspo",
    "nemo_gdpo",
    "mlperf_v6_1",
    "openrlhf_gspo",
    "roll",
    "ms_swift",
    "ui_s1_paper",
    "tempo_released",
    "spiral_paper",
    "mars_paper",
    "vcpo_full",
    "remix_full",
];

impl Recipe {
    /// The recipe called `name`; [`NAMES`] lists them and the table in the source says what each is.
    ///
    /// Errors: an unknown name, with the known ones.
    pub fn named(name: &str) -> Result<Recipe, Error> {
        if let Some(recipe) = named_peers::of(name)? {
            return Ok(recipe);
        }
        let own = AdvantageChoice::default();
        let centred = AdvantageChoice { norm_by_std: false, ..own };
        let verl = AdvantageChoice { singleton: SingletonChoice::RawReward, ..own };
        let trl = AdvantageChoice { eps: 1e-4, singleton: SingletonChoice::Zero, ..own };
        let openrlhf = AdvantageChoice { eps: 1e-9, ..own };
        let slime = AdvantageChoice { singleton: SingletonChoice::Zero, ..own };

        let raw = |estimator| AdvantageChoice { estimator, ..verl };
        let zero = |estimator| AdvantageChoice { estimator, ..slime };
        let vcpo =
            AdvantageChoice { estimator: Estimator::Vcpo, ddof: 0, eps: 0.0, least_std: Some(1e-8), ..own };
        let robust = |choice| AdvantageChoice { robust: Some(choice), ..vcpo };
        let mssr = AdvantageChoice { whiten: Some(WhitenChoice::Mssr), ..zero(Estimator::ReMax) };
        let lite_ppo = AdvantageChoice { estimator: Estimator::GrpoBatch, ..trl };

        let over_time = |choice, whiten| AdvantageChoice { over_time: Some(choice), whiten, ..own };
        let gae = |lambda, lambda_critic, length_alpha| {
            let choice = TimeChoice::Gae { gamma: 1.0, lambda, lambda_critic, length_alpha };
            over_time(choice, Some(WhitenChoice::Verl))
        };
        let vtrace = TimeChoice::Vtrace { gamma: 1.0, lambda: 1.0, rho_bar: 1.0, rho_pg: 1.0, c_bar: 1.0 };
        let mars = TimeChoice::Mars { gamma: 1.0, set: NormSetChoice::UniqueValuesAndZero };
        let ui_s1 = TimeChoice::UiS1 { gamma: 0.5, include_first_mismatch: false, omega: 1.0 };
        let token_baseline = TimeChoice::OptimalTokenBaseline { gamma: 1.0, lone_tail_is_raw: false };

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

        let kl_cov = GateChoice::KlCov {
            kl_cov_ratio: 2e-4,
            ppo_kl_coef: 1.0,
            clip_ratio_low: None,
            clip_ratio_high: None,
        };
        let clip_cov = GateChoice::ClipCov {
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.2,
            clip_cov_ratio: 2e-4,
            clip_cov_lb: 1.0,
            clip_cov_ub: 5.0,
        };
        let gmpo = GateChoice::Gmpo { clip_log_low: 0.4, clip_log_high: 0.4, bounds: GmpoBounds::Log };
        let minirl = GateChoice::Minirl { clip_ratio_low: 0.2, clip_ratio_high: 0.27, clip_ratio_c: 5.0 };
        let two_sided = GateChoice::TwoSided { clip_ratio_low: 0.2, clip_ratio_high: 0.2, delta: 4.0 };
        let vespo = GateChoice::Vespo {
            k_pos: 2.0,
            lambda_pos: 3.0,
            k_neg: 3.0,
            lambda_neg: 2.0,
            against: Against::Second,
        };
        let given = RatioChoice { level: RatioLevel::Given, ..clamp };
        let mask = match name {
            "opsm" => MaskChoice { opsm_delta: Some(0.1), ..MaskChoice::default() },
            "top_entropy" => MaskChoice { top_entropy: Some(0.2), ..MaskChoice::default() },
            _ => MaskChoice::default(),
        };

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
            "nemo" => (zero(Estimator::GrpoLeaveOneOut), unguarded, clip, by_token),
            "remax" => (zero(Estimator::ReMax), clamp, clip, by_token),
            "vcpo" => (vcpo, clamp, clip, by_token),
            "reinforce_plus_plus" => (raw(Estimator::ReinforcePlusPlus), clamp, clip, by_token),
            "reinforce_plus_plus_baseline" => {
                (raw(Estimator::ReinforcePlusPlusBaseline), clamp, clip, by_token)
            }
            // --- outcome rewards and advantages of sequences
            "dapo_full" => (own, clamp, higher, by_token),
            "psr" | "nsr" | "w_reinforce" | "brpo" => (raw(Estimator::Reward), clamp, clip, by_token),
            "fapo" | "conciser" | "evol_rl" => (zero(Estimator::Grpo), clamp, higher, by_token),
            "vcpo_median" => (robust(RobustChoice::Median), clamp, clip, by_token),
            "vcpo_winsorised" => (robust(RobustChoice::Winsorised), clamp, clip, by_token),
            "pf_ppo" => (zero(Estimator::Grpo), clamp, dual, by_token),
            "rapo" | "rapo_replay" => (AdvantageChoice { ddof: 0, ..slime }, clamp, clip, by_token),
            "grpovi" | "xrpo" | "ace" => (zero(Estimator::Grpo), clamp, clip, by_token),
            "mssr" => (mssr, clamp, clip, by_token),
            "v0_5" => (zero(Estimator::V05), clamp, clip, by_token),
            "pass_at_k" => (zero(Estimator::PassAtK), clamp, clip, by_token),
            "gdpo" => (zero(Estimator::Gdpo), clamp, clip, by_token),
            "spiral" => (zero(Estimator::RoleBaseline), clamp, clip, by_token),
            // --- advantages over time
            "gae" | "ppo_critic" => (gae(0.95, None, None), clamp, dual, by_token),
            "vapo" => (gae(1.0, Some(1.0), Some(0.05)), clamp, higher, by_token),
            "vtrace" => (over_time(vtrace, None), clamp, clip, by_token),
            "mars" => (over_time(mars, None), clamp, clip, by_token),
            "ui_s1" => {
                (AdvantageChoice { norm_by_std: false, ..over_time(ui_s1, None) }, clamp, clip, by_token)
            }
            "optimal_token_baseline" => (over_time(token_baseline, None), clamp, clip, by_token),
            // --- importance ratios and rollout correction
            "verl_tis_token" | "verl_tis_sequence" | "verl_mis_sequence" | "geo_rs" => {
                (verl, clamp, dual, by_token)
            }
            "icepop" => (own, clamp, clip, by_token),
            "trl_vllm" => {
                (trl, unguarded, clip, Aggregation { sequences: CountedSequences::All, ..by_token })
            }
            "slime_tis" => (slime, unguarded, clip, trl_by_sequence),
            "nemo_seq_mask_tis" => (zero(Estimator::GrpoLeaveOneOut), unguarded, clip, by_token),
            "areal_decoupled" => (slime, unguarded, clip, by_token),
            // --- policy losses
            "gmpo" => (own, clamp, gmpo, by_sequence),
            "kl_cov" => (own, unguarded, kl_cov, by_token),
            "clip_cov" => (own, unguarded, clip_cov, by_token),
            "minirl" => (
                centred,
                clamp,
                minirl,
                Aggregation { mode: AggregationMode::SeqMeanTokenSum, ..by_sequence },
            ),
            "remix" => {
                (own, clamp, GateChoice::Remix { clip_ratio_low: 0.2, clip_ratio_high: 0.2 }, by_token)
            }
            "trl_two_sided" => {
                (trl, unguarded, two_sided, Aggregation { sequences: CountedSequences::All, ..by_token })
            }
            "dro" => (own, clamp, GateChoice::Dro { beta: 0.1 }, by_token),
            "vespo" => (trl, unguarded, vespo, trl_by_sequence),
            "topr" => (own, clamp, GateChoice::Topr {}, by_sequence),
            "minpro" => (own, given, cispo, by_token),
            "opsm" => (own, clamp, clip, by_sequence),
            "top_entropy" => (own, clamp, higher, by_token),
            // --- prefix trees
            "tempo" => (zero(Estimator::Tempo), clamp, clip, by_token),
            _ => {
                return Err(Error::Recipe(format!(
                    "no recipe is called `{name}`: known are {}",
                    NAMES.join(", ")
                )));
            }
        };
        let (correction, reward) = (correction::named(name), named_reward::of(name));
        let critic = name == "ppo_critic";
        let value = critic.then(|| ValueChoice { cliprange_value: Some(0.5), ..ValueChoice::default() });
        let entropy = critic.then_some(EntropyChoice { coef: 0.001 });
        let name = name.into();
        Ok(Recipe {
            value,
            entropy,
            name,
            reward,
            advantage,
            ratio,
            gate,
            mask,
            correction,
            aggregation,
            ..Recipe::default()
        })
    }
}
