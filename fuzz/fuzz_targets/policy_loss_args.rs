//! Fuzzes the arguments of the fused policy loss, through a recipe and with parameters of the op itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::gate::{
    Cispo, Divergence, DppoKl, DppoTv, MiniRl, PpoClip, Reinforce, Remix, Sapo, TrustRegion,
};
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::core::policy_loss::gmpo::Mean;
use lockstep::core::ratio::{Guard, RatioGranularity};
use lockstep::ops::policy_loss::{GmpoParams, PolicyParams, gmpo, policy_loss};
use lockstep::recipe::*;
use lockstep::{
    Advantage, Batch, Counts, Credit, Device, Error, Loss, Metrics, Outputs, PolicyInput, PolicyOutput,
    Recipe, Rollouts,
};
use lockstep_fuzz::*;

/// Everything that an error may name.
const NAMES: [&str; 34] = [
    "`kl`",
    "`kl gradient`",
    "`logp`",
    "`logp_old`",
    "`logp_ref`",
    "`logp_second`",
    "`clip_log_low`",
    "`clip_log_high`",
    "`denominator`",
    "`ratio.level`",
    "`weights`",
    "`advantage`",
    "`credit.advantage`",
    "`credit.weights`",
    "`clip_ratio_low`",
    "`clip_ratio_high`",
    "`clip_ratio_c`",
    "`cispo.low`",
    "`cispo.high`",
    "`ratio.log_max`",
    "`tau_pos`",
    "`tau_neg`",
    "`guard`",
    "`kl.",
    "`coef`",
    "`token_loss`",
    "`loss",
    "`aggregation ",
    "recipe: kl.",
    "recipe: ratio.",
    "recipe: aggregation.",
    "recipe: metrics.",
    "recipe: advantage.",
    "missing columns: logp_ref (for kl)",
];

fn recipe(draw: &mut Draw<'_>) -> Recipe {
    let mode = draw.one_of(&[
        AggregationMode::TokenMean,
        AggregationMode::TokenSum,
        AggregationMode::SeqMeanTokenSum,
        AggregationMode::SeqMeanTokenMean,
        AggregationMode::SeqMeanTokenSumNorm,
    ]);
    let with_horizon = (mode == AggregationMode::SeqMeanTokenSumNorm) ^ (draw.byte() == 0xff);
    let guard = draw.one_of(&[GuardChoice::Clamp, GuardChoice::None, GuardChoice::StraightThrough]);
    let bound = draw.optional(Like::Parameter).filter(|_| guard != GuardChoice::None);
    Recipe {
        ratio: RatioChoice { guard, guard_bound: bound.unwrap_or(20.0), ..RatioChoice::default() },
        gate: if draw.flag() {
            GateChoice::Sapo { tau_pos: draw.float(Like::Parameter), tau_neg: draw.float(Like::Parameter) }
        } else {
            GateChoice::PpoClip {
                clip_ratio_low: draw.optional(Like::Parameter).unwrap_or(0.2),
                clip_ratio_high: draw.optional(Like::Parameter).unwrap_or(0.28),
                clip_ratio_c: draw.optional(Like::Parameter).map(|c| c + 1.0),
            }
        },
        kl: draw.flag().then(|| KlChoice {
            estimator: draw.one_of(&[KlEstimator::K3, KlEstimator::K1, KlEstimator::Abs, KlEstimator::K2]),
            coef: draw.float(Like::Parameter),
            clamp_in: draw.optional(Like::Parameter),
            clamp_out: draw.optional(Like::Parameter),
            straight_through: draw.flag(),
            importance_weighted: KlWeighting::None,
            ratio: KlRatio::Token,
            place: KlPlace::Loss,
        }),
        aggregation: Aggregation {
            mode,
            sequences: draw.one_of(&[CountedSequences::Nonempty, CountedSequences::All]),
            length: draw.one_of(&[LengthGuard::AddEps, LengthGuard::AtLeastOne]),
            horizon: with_horizon.then(|| Horizon::Tokens(draw.double(Like::Parameter))),
            ..Aggregation::default()
        },
        metrics: MetricsChoice {
            band: match draw.flag() {
                false => [0.8, 1.2],
                true => [draw.float(Like::Parameter), draw.float(Like::Parameter)],
            },
            reduction: draw.one_of(&[Reduction::Tree, Reduction::Exact]),
        },
        ..Recipe::default()
    }
}

/// Any gate.
#[derive(Clone, Copy, Debug)]
enum AnyGate {
    Ppo(PpoClip),
    Sapo(Sapo),
    Cispo(Cispo),
    Reinforce(Reinforce),
    DppoTv(DppoTv),
    DppoKl(DppoKl),
    MiniRl(MiniRl),
    Remix(Remix),
    TrustRegion(TrustRegion),
    /// How far a log-ratio may fall and rise.
    Gmpo([f32; 2]),
}

/// Parameters of the op itself, not checked by any recipe.
struct Params {
    gate: AnyGate,
    level: RatioGranularity,
    guard: Guard,
    kl: Option<(Kl, f32)>,
    weight: Weight,
    band: [f32; 2],
}

fn params(draw: &mut Draw<'_>) -> Params {
    let mut parameter = || draw.float(Like::Parameter);
    let [a, b, c, bound, coef, clamp_in, clamp_out, low, high] = std::array::from_fn(|_| parameter());
    let kl = |estimator| Kl { clamp_in, clamp_out, straight_through: false, ..Kl::new(estimator) };
    Params {
        gate: match draw.below(10) {
            0 => AnyGate::Ppo(PpoClip { clip_ratio_low: a, clip_ratio_high: b, clip_ratio_c: c + 1.0 }),
            1 => AnyGate::Sapo(Sapo::new(a, b)),
            2 => AnyGate::Cispo(Cispo { low: a, high: a + b }),
            3 => AnyGate::Reinforce(Reinforce),
            4 => AnyGate::DppoTv(DppoTv { clip_ratio_low: a, clip_ratio_high: b, clip_ratio_c: c }),
            6 => AnyGate::MiniRl(MiniRl { clip_ratio_low: a, clip_ratio_high: b, clip_ratio_c: c }),
            7 => AnyGate::Remix(Remix { clip_ratio_low: a, clip_ratio_high: b }),
            8 => AnyGate::Gmpo([a, b]),
            9 => AnyGate::TrustRegion(TrustRegion {
                divergence: draw.one_of(&[
                    Divergence::TotalVariation,
                    Divergence::BinaryKl,
                    Divergence::Given,
                ]),
                clip_ratio_low: a,
                clip_ratio_high: b,
                clip_ratio_c: c,
            }),
            _ => AnyGate::DppoKl(DppoKl { clip_ratio_low: a, clip_ratio_high: b, clip_ratio_c: c }),
        },
        level: if draw.flag() {
            RatioGranularity::Token
        } else {
            RatioGranularity::Sequence { log_max: bound }
        },
        guard: if draw.flag() { Guard::clamp(bound) } else { Guard::straight_through(bound) },
        kl: draw.flag().then(|| (kl(draw.one_of(&[KlFormula::K1, KlFormula::K2, KlFormula::K3])), coef)),
        weight: Weight {
            per_row: match draw.below(4) {
                0 => PerRow::One,
                1 => PerRow::Length { eps: draw.double(Like::Parameter) },
                2 => PerRow::AtLeastOne,
                _ => PerRow::Constant(draw.double(Like::Parameter)),
            },
            denominator: draw.double(Like::Parameter),
            scale: draw.double(Like::Parameter),
        },
        band: [low, high],
    }
}

impl Params {
    fn run(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
    ) -> Result<PolicyOutput, Error> {
        let Params { level, guard, kl, weight, band, .. } = *self;
        let mut out = PolicyOutput::default();
        macro_rules! run {
            ($gate:expr) => {{
                let params = PolicyParams { gate: $gate, level, guard, kl, kl_weighted: false, weight, band };
                policy_loss(device, batch, input, &params, &mut out)?
            }};
        }
        match self.gate {
            AnyGate::Ppo(gate) => run!(gate),
            AnyGate::Sapo(gate) => run!(gate),
            AnyGate::Cispo(gate) => run!(gate),
            AnyGate::Reinforce(gate) => run!(gate),
            AnyGate::DppoTv(gate) => run!(gate),
            AnyGate::DppoKl(gate) => run!(gate),
            AnyGate::MiniRl(gate) => run!(gate),
            AnyGate::Remix(gate) => run!(gate),
            AnyGate::TrustRegion(gate) => run!(gate),
            AnyGate::Gmpo([clip_log_low, clip_log_high]) => {
                let denominator = weight.denominator;
                let mean = Mean::Geometric;
                let params = GmpoParams { mean, clip_log_low, clip_log_high, guard, denominator, band };
                gmpo(device, batch, input, &params, &mut out)?
            }
        }
        Ok(out)
    }
}

fn same(a: &PolicyOutput, b: &PolicyOutput) {
    assert_same_bits("coef", bits32(&a.coef), bits32(&b.coef));
    assert_same_bits("token_loss", bits32(&a.token_loss), bits32(&b.token_loss));
    assert_same_bits("row_loss", bits64(&a.row_loss), bits64(&b.row_loss));
    assert_same_bits("loss", bits64(a.loss.as_slice()), bits64(b.loss.as_slice()));
    assert_eq!(a.counts, b.counts);
    // Rust prints the shortest text that reads back as the same bits.
    assert_eq!(format!("{:?}", a.metrics), format!("{:?}", b.metrics));
}

/// `bounded`: the gate weights a ratio, by at most 1; a score gate's weight is the importance weight itself.
fn check_metrics(metrics: &Metrics, live: u64, bounded: bool) {
    let Metrics {
        tokens,
        policy_loss_mean,
        kl_ref_mean,
        approx_kl,
        ratio_mean,
        ratio_std,
        ratio_min,
        ratio_max,
        ess,
        gate_mean,
        clip_fraction,
        clip_fraction_high,
        clip_fraction_low,
        clip_fraction_dual,
        guarded_tokens,
        in_band_fraction,
        neg_mean_logp,
        ..
    } = *metrics;
    assert_eq!(tokens, live);
    assert!(guarded_tokens <= tokens);
    let fractions = [
        clip_fraction,
        clip_fraction_high,
        clip_fraction_low,
        clip_fraction_dual,
        in_band_fraction,
        if bounded { gate_mean } else { 0.0 },
    ];
    assert!(gate_mean >= 0.0, "{metrics:?}");
    for fraction in fractions {
        assert!((0.0..=1.0 + 1e-6).contains(&fraction), "{metrics:?}");
    }
    assert_finite("metrics", [policy_loss_mean, kl_ref_mean, approx_kl, neg_mean_logp]);
    // Without a guard a ratio may overflow to infinity, and so may its mean; nothing is ever NaN.
    let of_ratio = [ratio_mean, ratio_std, ratio_min, ratio_max, ess];
    assert!(of_ratio.iter().all(|x| !x.is_nan()), "{metrics:?}");
    assert!(
        (0.0..=1.0 + 1e-5).contains(&ess) && ratio_std >= 0.0 && ratio_min <= ratio_max.max(0.0),
        "{metrics:?}"
    );
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let packed = Packed::draw(draw);
    let Some(batch) = packed.batch() else { return };
    let (by_recipe, recipe, params) = (draw.byte() < 0xc0, recipe(draw), params(draw));
    let tokens = batch.tokens();
    let per_token = draw.flag();
    let outputs = Outputs { token_loss: draw.flag(), metrics: draw.flag(), loss: draw.flag() };
    let counts =
        draw.flag().then(|| Counts { tokens: draw.u64(), nonempty: draw.u64(), sequences: draw.u64() });
    // Usually there is a reference exactly if there is a KL term. GMPO has neither a KL term nor a loss per
    // token.
    let is_gmpo = !by_recipe && matches!(params.gate, AnyGate::Gmpo(_));
    let has_kl = if by_recipe { recipe.kl.is_some() } else { params.kl.is_some() && !is_gmpo };
    let has_ref = has_kl ^ (draw.byte() == 0xff);
    let has_weights = draw.flag();
    let advantage = draw.floats(if per_token { tokens } else { batch.sequences() }, Like::Reward);
    let logp = draw.floats(tokens, Like::LogProbability);
    let logp_old = draw.floats(tokens, Like::LogProbability);
    let logp_ref = has_ref.then(|| draw.floats(tokens, Like::LogProbability));
    let weights = has_weights.then(|| draw.floats(tokens, Like::Weight));
    let reads_second =
        !by_recipe && matches!(params.gate, AnyGate::MiniRl(_) | AnyGate::Remix(_) | AnyGate::TrustRegion(_));
    // A trust region's top-k divergences are not log-probabilities.
    let (second_like, second_domain) = match params.gate {
        AnyGate::TrustRegion(TrustRegion { divergence: Divergence::Given, .. }) => {
            (Like::Weight, Domain::Weight)
        }
        _ => (Like::LogProbability, Domain::LogProbability),
    };
    let second = (reads_second && draw.flag()).then(|| draw.floats(tokens, second_like));
    let input = PolicyInput {
        logp: &logp,
        logp_old: &logp_old,
        advantage: if per_token {
            Advantage::PerToken(&advantage)
        } else {
            Advantage::PerSequence(&advantage)
        },
        logp_ref: logp_ref.as_deref(),
        weights: weights.as_deref(),
        logp_second: second.as_deref(),
        outputs,
        ..PolicyInput::new(&logp, &logp_old, Advantage::PerSequence(&[]))
    };
    let counts = counts.map(|c| [c.tokens, c.nonempty, c.sequences]);
    let rollouts = Rollouts {
        loss_mask: packed.loss_mask.as_deref(),
        logp: Some(&logp),
        logp_old: Some(&logp_old),
        logp_ref: logp_ref.as_deref(),
        counts: counts.as_ref().map(|counts| &counts[..]),
        ..Rollouts::new(&packed.cu_seqlens, &packed.cu_groups)
    };
    let credit = Credit { per_token, weights: weights.clone(), ..Credit::per_sequence(advantage.clone()) };

    let run = |device: &Device, outputs: Outputs| {
        if by_recipe {
            let mut out = Loss::default();
            recipe.loss_into(device, &rollouts, &credit, outputs, &mut out).map(|()| out.policy)
        } else {
            params.run(device, &batch, &PolicyInput { outputs, ..input })
        }
    };
    let result = on_every_level(|device| run(device, outputs), same);
    let live = |i: usize| packed.live(i);
    // A recipe without a KL term does not read the reference.
    let reference = logp_ref.as_deref().filter(|_| has_kl || !by_recipe).unwrap_or(&[]);
    assert_domain(&result, "logp", &logp, Domain::LogProbability, live);
    assert_domain(&result, "logp_old", &logp_old, Domain::LogProbability, live);
    assert_domain(&result, "logp_ref", reference, Domain::LogProbability, live);
    assert_domain(&result, "logp_second", second.as_deref().unwrap_or(&[]), second_domain, live);
    assert_domain(&result, "weights", weights.as_deref().unwrap_or(&[]), Domain::Weight, live);
    assert_domain(&result, "advantage", &advantage, Domain::Finite, |i| !per_token || live(i));
    let out = match result {
        Ok(out) => out,
        Err(error) => {
            let message = error.to_string();
            assert!(NAMES.iter().any(|name| message.contains(name)), "{message}");
            return;
        }
    };

    if by_recipe {
        recipe.check().expect("a recipe that does not pass its check was run");
    }
    assert_eq!((logp.len(), logp_old.len(), out.coef.len()), (tokens, tokens, tokens));
    let token_loss = outputs.token_loss && !is_gmpo;
    assert_eq!(out.token_loss.len(), if token_loss { tokens } else { 0 });
    let with_loss = outputs.loss || token_loss || outputs.metrics;
    assert_eq!(out.row_loss.len(), if with_loss { batch.sequences() } else { 0 });
    assert_eq!(out.loss.is_some(), with_loss);
    assert_finite("coef", out.coef.iter().map(|x| f64::from(*x)));
    assert_finite("token_loss", out.token_loss.iter().map(|x| f64::from(*x)));
    assert_finite("row_loss", out.row_loss.iter().copied());
    assert_finite("loss", out.loss);
    assert_masked_zero("coef", &out.coef, live);
    if token_loss {
        assert_masked_zero("token_loss", &out.token_loss, live);
    }
    let count = (0..tokens).filter(|i| live(*i)).count() as u64;
    let nonempty = (0..batch.sequences())
        .filter(|s| {
            let span = batch.cu_seqlens().span(*s);
            (span.start..span.end).any(live)
        })
        .count() as u64;
    assert_eq!(out.counts, Counts { tokens: count, nonempty, sequences: batch.sequences() as u64 });
    assert_eq!(out.metrics.is_some(), outputs.metrics);
    if let Some(metrics) = &out.metrics {
        let bounded = by_recipe || matches!(params.gate, AnyGate::Ppo(_) | AnyGate::Sapo(_));
        check_metrics(metrics, count, bounded);
    }
    // Requesting other outputs changes no coefficient.
    let alone = run(&devices()[0], Outputs::COEF);
    let alone = alone.expect("coefficients alone, where everything went well");
    assert_same_bits("coef alone", bits32(&out.coef), bits32(&alone.coef));
});
