//! The public API on slices returns what the kernels return, and its metrics are what their names say.

use lockstep::core::kl::Kl;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::kl_importance::ThreePolicies;
use lockstep::ops::logits::Logits;
use lockstep::ops::policy_loss::{GmpoParams, PolicyParams, gmpo as gmpo_loss};
use lockstep::ops::reward::{Bands, ShapeParams, VarianceParams};
use lockstep::ops::sharpen::EntropyOf;
use lockstep::ops::step_return::Steps;
use lockstep::ops::value_loss::ValueInput;
use lockstep::ops::vtrace::{VTraceInput, VTraceParams};
use lockstep::ops::{self, advantage::GroupParams, whiten::WhitenParams};
use lockstep::{
    Advantage, Batch, Counts, Device, Error, Metrics, Outputs, PolicyInput, PolicyOutput, RatioStats,
};
use lockstep_conformance::cases::params::BAND;
use lockstep_conformance::cases::{AnyGate, Case, Params, Policy, corpus, slot};
use lockstep_conformance::launch;
use lockstep_conformance::ops::discounted_return::DiscountedReturn;
use lockstep_conformance::ops::exact_sum::ExactSum;
use lockstep_conformance::ops::gae::Gae;
use lockstep_conformance::ops::gmpo::Gmpo;
use lockstep_conformance::ops::kl_importance::KlImportance;
use lockstep_conformance::ops::logits::{Logits as LogitsTest, Which};
use lockstep_conformance::ops::sequence_weight::SequenceWeight;
use lockstep_conformance::ops::step_return;
use lockstep_conformance::ops::vtrace::VTrace;
use lockstep_conformance::ops::{
    AnyOp, check::Check, combine::Combine, filter::Filter, group::Group, moments::Moments, novelty::Novelty,
    pass_at_k::PassAtK, shape::Shape,
};
use lockstep_conformance::oracle::vtrace::Constants;
use lockstep_conformance::output::Output;
use lockstep_conformance::precision::{BY_HAND, WORKED};
use lockstep_core::advantage::Baseline;
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::gate::{Gate, Sapo};
use lockstep_core::reward::Shaping;
use std::collections::BTreeMap;

/// The outputs of a launch by name, as numbers.
struct Launch(BTreeMap<&'static str, Vec<f64>>);

impl Launch {
    fn new(device: &Device, case: &Case) -> Launch {
        let numbers = |o: &Output| (0..o.len()).map(|i| o.number(i)).collect();
        Launch(launch::run(device, case).unwrap().iter().map(|o| (o.name, numbers(o))).collect())
    }

    fn same(&self, name: &str, got: &[f32]) {
        assert!(got.iter().map(|x| f64::from(*x)).eq(self.0[name].iter().copied()), "{name}");
    }

    fn same64(&self, name: &str, got: &[f64]) {
        assert_eq!(got, self.0[name], "{name}");
    }

    /// As [`Launch::same`], where NaN is "no score".
    fn scored(&self, name: &str, got: &[f32]) {
        let same = |(x, want): (&f32, &f64)| x.is_nan() || f64::from(*x) == *want;
        assert!(got.len() == self.0[name].len() && got.iter().zip(&self.0[name]).all(same), "{name}");
    }

    fn sum(&self, name: &str) -> f64 {
        self.0[name].iter().sum()
    }

    /// Largest entry of a row statistic.
    fn max(&self, name: &str) -> f64 {
        self.0[name].iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b))
    }

    /// A mean over tokens: what the API says against the sum of the rows, relative to the magnitudes of the rows.
    fn mean(&self, name: &str, got: f64, tokens: u64) {
        let scale: f64 = self.0[name].iter().map(|x| x.abs()).sum::<f64>() / tokens as f64;
        let want = self.sum(name) / tokens as f64;
        assert!((got - want).abs() <= BY_HAND * scale, "{name}: {got}, from the rows {want}");
    }
}

fn counts(case: &Case) -> Counts {
    let live = |row: usize| case.data.span(row).filter(|i| case.data.live(*i)).count() as u64;
    let rows: Vec<u64> = (0..case.data.rows()).map(live).collect();
    Counts {
        tokens: rows.iter().sum(),
        nonempty: rows.iter().filter(|n| **n > 0).count() as u64,
        sequences: rows.len() as u64,
    }
}

/// Mean, population standard deviation and effective sample size from sums.
/// A call over the case's rows as groups of sequences of one token.
fn of_groups<R>(case: &Case, call: impl Fn(&Batch<'_>) -> Result<R, Error>) -> R {
    let one_token_each: Vec<u32> = (0..=case.data.elements() as u32).collect();
    let batch = Batch::with_empty_rows(&one_token_each, &case.data.offsets, None).unwrap();
    call(&batch).unwrap()
}

fn check_spread(sums: &Launch, n: f64, mean: f64, std: f64, ess: f64) {
    let (excess, squares) = (sums.sum("sum_excess") / n, sums.sum("sum_excess_squared") / n);
    let variance = (squares - excess * excess).max(0.0);
    assert!((mean - 1.0 - excess).abs() <= BY_HAND * mean);
    // The difference of two near numbers: compared before the root, relative to them.
    assert!((std * std - variance).abs() <= BY_HAND * squares);
    let kept = (1.0 + excess).powi(2) / (squares + 2.0 * excess + 1.0);
    assert!((ess - kept.min(1.0)).abs() <= BY_HAND && ess <= 1.0);
}

fn check_metrics(sums: &Launch, m: &Metrics, counts: Counts) {
    assert_eq!(m.tokens, counts.tokens);
    if m.tokens == 0 {
        return assert_eq!(*m, Metrics::default());
    }
    let n = m.tokens;
    for (name, got) in [
        ("sum_policy", m.policy_loss_mean),
        ("sum_kl_ref", m.kl_ref_mean),
        ("sum_k1", m.approx_kl),
        ("sum_gate", m.gate_mean),
        ("sum_clip_high", m.clip_fraction_high),
        ("sum_clip_low", m.clip_fraction_low),
        ("sum_clip_dual", m.clip_fraction_dual),
        ("sum_in_band", m.in_band_fraction),
        ("sum_neg_logp", m.neg_mean_logp),
    ] {
        sums.mean(name, got, n);
    }
    assert!((m.clip_fraction - m.clip_fraction_high - m.clip_fraction_low).abs() <= BY_HAND);
    assert_eq!(m.guarded_tokens as f64, sums.sum("sum_guarded"));
    assert_eq!((m.ratio_max, -m.ratio_min), (sums.max("max_ratio"), sums.max("max_neg_ratio")));
    check_spread(sums, n as f64, m.ratio_mean, m.ratio_std, m.ess);
}

fn check_ratios(sums: &Launch, s: &RatioStats, counts: Counts) {
    assert_eq!(s.tokens, counts.tokens);
    if s.tokens == 0 {
        return assert_eq!(*s, RatioStats::default());
    }
    for (name, got) in [("sum_k1", s.kl_k1), ("sum_k3", s.kl_k3), ("sum_in_band", s.in_band_fraction)] {
        sums.mean(name, got, s.tokens);
    }
    assert_eq!(s.guarded_tokens as f64, sums.sum("sum_guarded"));
    assert_eq!((s.ratio_max, -s.ratio_min), (sums.max("max_ratio"), sums.max("max_neg_ratio")));
    check_spread(sums, s.tokens as f64, s.ratio_mean, s.ratio_std, s.ess);
}

fn check_policy<G: Gate>(device: &Device, case: &Case, policy: &Policy, gate: G, expected: &Launch) {
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let Policy { level, guard, kl, weight, per_token, weights, loss, token_loss, metrics, .. } = *policy;
    let params = PolicyParams { gate, level, guard, kl, kl_weighted: false, weight, band: BAND };
    let input = PolicyInput {
        logp_ref: kl.map(|_| &data.element[slot::LOGP_REF][..]),
        logp_second: G::SECOND.then_some(&data.element[slot::SECOND][..]),
        weights: weights.then_some(&data.element[slot::WEIGHTS][..]),
        outputs: Outputs { loss, token_loss, metrics },
        ..PolicyInput::new(
            &data.element[slot::LOGP],
            &data.element[slot::LOGP_OLD],
            if per_token {
                Advantage::PerToken(&data.element[slot::ADVANTAGE])
            } else {
                Advantage::PerSequence(&data.row[0])
            },
        )
    };
    // A used output: nothing of the last call may show.
    let mut out = PolicyOutput::default();
    (out.coef, out.row_loss, out.loss) = (vec![9.0; 99_999], vec![9.0; 9], Some(9.0));
    ops::policy_loss::policy_loss(device, &batch, &input, &params, &mut out).unwrap();
    expected.same("coef", &out.coef);
    assert_eq!(out.counts, counts(case));
    assert_eq!(out.token_loss.is_empty(), !token_loss || data.elements() == 0);
    assert_eq!((out.loss.is_some(), out.metrics.is_some()), (policy.wants_loss(), metrics));
    if token_loss {
        expected.same("token_loss", &out.token_loss);
    }
    if let Some(loss) = out.loss {
        expected.same64("row_loss", &out.row_loss);
        let scale: f64 = out.row_loss.iter().map(|x| x.abs()).sum();
        assert!((loss - out.row_loss.iter().sum::<f64>()).abs() <= BY_HAND * scale);
    }
    if let Some(metrics) = &out.metrics {
        check_metrics(expected, metrics, out.counts);
    }
}

fn check_kl(device: &Device, case: &Case, kl: &Kl, expected: &Launch) {
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let out = ops::kl(device, &batch, &data.element[slot::LOGP], &data.element[slot::LOGP_OLD], kl).unwrap();
    expected.same64("row_sum", &out.row_sum);
    if expected.0.contains_key("kl") {
        expected.same("kl", &out.kl);
        expected.same("gradient", &out.gradient);
    }
}

fn check_gmpo(device: &Device, case: &Case, gmpo: &Gmpo, expected: &Launch) {
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let Gmpo { guard, clip: [clip_log_low, clip_log_high], denominator, per_token, weights, loss, metrics } =
        *gmpo;
    let params = GmpoParams { clip_log_low, clip_log_high, guard, denominator, band: BAND };
    let advantage = match per_token {
        true => Advantage::PerToken(&data.element[slot::ADVANTAGE]),
        false => Advantage::PerSequence(&data.row[0]),
    };
    let input = PolicyInput {
        weights: weights.then_some(&data.element[slot::WEIGHTS][..]),
        outputs: Outputs { loss, token_loss: false, metrics },
        ..PolicyInput::new(&data.element[slot::LOGP], &data.element[slot::LOGP_OLD], advantage)
    };
    let mut out = PolicyOutput::default();
    gmpo_loss(device, &batch, &input, &params, &mut out).unwrap();
    expected.same("coef", &out.coef);
    if loss {
        expected.same64("row_loss", &out.row_loss);
    }
    if let Some(metrics) = &out.metrics {
        check_metrics(expected, metrics, out.counts);
    }
}

/// The cases whose batch statistics are not those of some larger batch.
fn check_group(device: &Device, case: &Case, group: &Group, expected: &Launch) {
    if group.scale.needs_moments() || group.baseline == Baseline::Length {
        return;
    }
    let data = &case.data;
    let one_token_each: Vec<u32> = (0..=data.elements() as u32).collect();
    let batch = Batch::with_empty_rows(&one_token_each, &data.offsets, None).unwrap();
    let params = GroupParams {
        limit: group.limit,
        weights: group.baseline.needs_weights().then_some(&data.element[1][..]),
        given: group.baseline.needs_given().then_some(&data.row[0][..]),
        ..GroupParams::new(group.baseline, group.scale).singleton(group.singleton)
    };
    let out = ops::group_advantage(device, &batch, &data.element[0], data.mask.as_deref(), &params).unwrap();
    expected.same("advantage", &out.advantage);
    expected.same("mean", &out.mean);
    expected.same("std", &out.std);
    if !out.pivot.is_empty() {
        assert!(out.pivot.iter().map(|p| f64::from(*p)).eq(expected.0["pivot"].iter().copied()));
    }
}

/// What is whitened by its own moments has mean 0 and, with nothing added to the variance, variance 1.
fn check_whiten(device: &Device, case: &Case, batch: &Batch<'_>) {
    let values = &case.data.element[0];
    let params = WhitenParams { eps: 0.0, ..WhitenParams::VERL };
    let own = ops::token_moments(device, batch, values).unwrap();
    let out = ops::whiten(device, batch, Advantage::PerToken(values), &params).unwrap();
    let whitened = ops::token_moments(device, batch, &out).unwrap();
    if own.high > own.low {
        let variance = whitened.squares / (whitened.count - 1.0);
        assert!(whitened.mean.abs() < WORKED && (variance - 1.0).abs() < WORKED, "{whitened:?}");
    } else {
        assert!(out.iter().all(|y| *y == 0.0));
    }
}

fn check_logits(device: &Device, case: &Case, params: &LogitsTest, expected: &Launch) {
    let row = &case.data.row;
    let labels: Vec<u32> = row[0].iter().map(|a| *a as u32).collect();
    let live: Vec<u8> = row[1].iter().map(|x| *x as u8).collect();
    let loss_mask = params.masked.then_some(&live[..]);
    let rows = Logits { logits: &case.data.element[0], labels: &labels, loss_mask };
    let t = params.temperature;
    match params.which {
        Which::Statistics { moments } => {
            let out = ops::logits_statistics(device, &rows, t, moments).unwrap();
            expected.same("logp", &out.logp);
            expected.same("lse", &out.lse);
            if moments {
                expected.same("entropy", &out.entropy);
                expected.same("collision", &out.collision);
                expected.same("score_norm", &out.score_norm);
            }
        }
        Which::Gradient { entropy } => {
            let statistics = ops::logits_statistics(device, &rows, t, entropy).unwrap();
            let of_entropy = entropy.then_some(&row[3][..]);
            let out = ops::logits_gradient(device, &rows, &statistics, &row[2], of_entropy).unwrap();
            expected.same("gradient", &out);
        }
        // The API's coefficients are those of a mean.
        Which::Otr { beta, gradient } => {
            let out = ops::otr_exact(device, &rows, t, beta, None, gradient).unwrap();
            expected.same("loss", &out.row_loss);
        }
    }
}

#[test]
fn slices_in_kernels_out() {
    let device = Device::cpu();
    let mut checked = BTreeMap::<&str, usize>::new();
    for case in corpus(31) {
        let (data, expected) = (&case.data, Launch::new(&device, &case));
        let groups = [0, data.rows() as u32];
        let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref());
        match case.params {
            Params::GroupAdvantage { norm_by_std, ddof, eps, singleton } => {
                let one_token_each: Vec<u32> = (0..=data.elements() as u32).collect();
                let batch = Batch::with_empty_rows(&one_token_each, &data.offsets, None).unwrap();
                let params = GroupParams::grpo(norm_by_std, ddof, eps).singleton(singleton);
                let valid = data.mask.as_deref();
                let out = ops::group_advantage(&device, &batch, &data.element[0], valid, &params).unwrap();
                expected.same("advantage", &out.advantage);
                expected.same("mean", &out.mean);
                expected.same("std", &out.std);
                assert!(out.counted.iter().map(|n| f64::from(*n)).eq(expected.0["counted"].iter().copied()));
                assert!(out.status.iter().map(|n| f64::from(*n)).eq(expected.0["status"].iter().copied()));
            }
            Params::TokenRatio { guard, outputs } => {
                let (logp, old) = (&data.element[slot::LOGP], &data.element[slot::LOGP_OLD]);
                let out = ops::token_ratio(&device, &batch.unwrap(), logp, old, guard, BAND).unwrap();
                if outputs {
                    expected.same("ratio", &out.ratio);
                    expected.same("log_ratio", &out.log_ratio);
                }
                check_ratios(&expected, &out.stats, counts(&case));
            }
            Params::Policy(policy) => match policy.gate {
                AnyGate::Ppo(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::Cispo(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::Reinforce(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::DppoTv(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::DppoKl(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::MiniRl(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::Remix(gate) => check_policy(&device, &case, &policy, gate, &expected),
                AnyGate::Sapo(taus) => {
                    check_policy(&device, &case, &policy, Sapo::new(taus.tau_pos, taus.tau_neg), &expected);
                }
            },
            Params::Kl { kl, .. } => check_kl(&device, &case, &kl, &expected),
            Params::Aggregate { values: true } => {
                let weight = lockstep::core::aggregate::Weight {
                    per_row: lockstep::core::aggregate::PerRow::One,
                    denominator: 1.0,
                    scale: 1.0,
                };
                let out = ops::aggregate(&device, &batch.unwrap(), &data.element[0], &weight).unwrap();
                expected.same64("row_sum", &out.row_sum);
            }
            Params::Aggregate { values: false } => {
                assert_eq!(batch.unwrap().counts(&device).unwrap(), counts(&case));
            }
            Params::RowScan { direction } => {
                let out = ops::row_scan(&device, &batch.unwrap(), &data.element[0], direction).unwrap();
                expected.same("scanned", &out);
            }
            Params::FoldRows => {
                let rows = data.elements() / data.rows();
                expected.same64("totals", &ops::fold_rows(&device, &data.element64, rows).unwrap());
            }
            // For arrays that the host cannot read; on slices the constructors and alarms check.
            Params::Op(AnyOp::Check(Check::Offsets { elements })) => {
                let found =
                    lockstep::core::ragged::check_offsets("offsets", &data.index, elements, "elements");
                let clean = expected.0["first_fault"].iter().all(|fault| *fault == f64::from(u32::MAX));
                // Offsets of no row at all are an error of their own.
                assert_eq!(found.is_ok(), clean && data.index.len() > 1, "{}", case.label);
            }
            Params::Op(AnyOp::Check(Check::Values { domain })) => {
                let fault =
                    data.element[0].iter().enumerate().position(|(i, x)| data.live(i) && !domain.holds(*x));
                let first = expected.0["first_fault"].iter().copied().fold(f64::INFINITY, f64::min);
                assert_eq!(fault.map_or(f64::from(u32::MAX), |i| i as f64), first, "{}", case.label);
            }
            Params::Op(AnyOp::Group(group)) => check_group(&device, &case, &group, &expected),
            Params::Op(AnyOp::DiscountedReturn(DiscountedReturn { gamma })) => {
                let out = ops::discounted_return(&device, &batch.unwrap(), &data.element[0], gamma).unwrap();
                expected.same("returns", &out);
            }
            Params::Op(AnyOp::Moments(Moments::Rows { per_row: false, nan_is_missing: false })) => {
                let out = ops::token_moments(&device, &batch.unwrap(), &data.element[0]).unwrap();
                assert_eq!(out.count, expected.sum("count"), "{}", case.label);
                assert_eq!(out.high, expected.max("high"), "{}", case.label);
            }
            Params::Op(AnyOp::Moments(Moments::Rows { .. })) => {}
            Params::Op(AnyOp::Moments(Moments::Fold)) => {
                let rows = data.elements() / MOMENTS;
                assert_eq!(expected.sum("count"), data.element64[..rows].iter().sum::<f64>());
            }
            Params::Op(AnyOp::PassAtK(PassAtK { k, threshold })) => {
                let one_token_each: Vec<u32> = (0..=data.elements() as u32).collect();
                let batch = Batch::with_empty_rows(&one_token_each, &data.offsets, None).unwrap();
                let (rewards, valid) = (&data.element[0], data.mask.as_deref());
                let out = ops::pass_at_k(&device, &batch, rewards, valid, k, threshold);
                // Some groups are smaller than every k: an error that names the first.
                let few = expected.0["counted"].iter().position(|n| *n < f64::from(k)).unwrap();
                let error = out.unwrap_err().to_string();
                assert!(error.starts_with(&format!("`cu_groups`[{few}]")), "{error}");
            }
            // A batch has at least one sequence.
            Params::Op(AnyOp::Combine(_)) if data.elements() == 0 => {}
            Params::Op(AnyOp::Combine(Combine { kinds, weights })) => {
                let one_token_each: Vec<u32> = (0..=data.elements() as u32).collect();
                let batch = Batch::with_empty_rows(&one_token_each, &data.offsets, None).unwrap();
                let components = data.element[..kinds].concat();
                let out = ops::combine(&device, &batch, &components, &weights[..kinds]).unwrap();
                let scored = |(x, want): (&f32, &f64)| x.is_nan() || f64::from(*x) == *want;
                assert!(out.iter().zip(&expected.0["combined"]).all(scored), "{}", case.label);
            }
            Params::Op(AnyOp::ExactSum(ExactSum::Double)) => {
                // The op of the API takes no mask.
                let live = (0..data.element64.len()).filter(|i| data.live(*i)).map(|i| data.element64[i]);
                let live: Vec<f64> = live.collect();
                let added = live.iter().copied().collect();
                let counted = ops::exact_sum(&device, &live).unwrap();
                assert_eq!(counted, (added, live.len() as u64), "{}", case.label);
            }
            Params::Op(AnyOp::ExactSum(ExactSum::Single { square })) => {
                let one_sequence = [0, data.element[0].len() as u32];
                let batch = Batch::new(&one_sequence, &[0, 1], data.mask.as_deref()).unwrap();
                let values = data.element[0].iter().enumerate().filter(|(i, _)| data.live(*i));
                let values = values.map(|(_, x)| f64::from(*x)).map(|x| if square { x * x } else { x });
                let values: Vec<f64> = values.collect();
                let counted = ops::exact_token_sum(&device, &batch, &data.element[0], square).unwrap();
                assert_eq!(
                    counted,
                    (values.iter().copied().collect(), values.len() as u64),
                    "{}",
                    case.label
                );
            }
            Params::Op(AnyOp::Gmpo(params)) => check_gmpo(&device, &case, &params, &expected),
            Params::Op(AnyOp::SequenceWeight(SequenceWeight { rule, weights })) => {
                let logps = [&data.element[slot::LOGP][..], &data.element[slot::LOGP_OLD]];
                let weights = weights.then_some(&data.element[slot::WEIGHTS][..]);
                let out = ops::sequence_weight(&device, &batch.unwrap(), logps, &data.row[0], weights, &rule)
                    .unwrap();
                expected.same("weight", &out);
            }
            // The API chains them; tests/gates.rs holds the chain against a sort.
            Params::Op(AnyOp::Selection(_)) => {}
            Params::Op(AnyOp::Gae(params)) => check_gae(&device, &case, &batch.unwrap(), &params, &expected),
            Params::Op(AnyOp::VTrace(params)) => {
                check_vtrace(&device, &case, &batch.unwrap(), &params, &expected)
            }
            Params::Op(AnyOp::StepReturn(params)) => {
                let matches = step_return::matches(data);
                let steps = Steps { cu_steps: &data.offsets, rewards: &data.element[0], matches: &matches };
                let out =
                    ops::step_return(&device, &steps, params.gamma, params.include_first_mismatch).unwrap();
                expected.same("returns", &out);
            }
            // Records and loads are the oracle's own there: tests/routing.rs holds the API.
            Params::Op(AnyOp::Gating(_) | AnyOp::Balance(_)) => {}
            // The API makes the weights itself: tests/over_time.rs.
            Params::Op(AnyOp::OptimalTokenBaseline(_)) => {}
            Params::Op(AnyOp::ValueLoss(params)) => {
                let [values, old, returns] = [0, 1, 2].map(|k| &data.element[k][..]);
                let input = ValueInput { values, values_old: params.old.then_some(old), returns };
                let out = ops::value_loss(&device, &batch.unwrap(), &input, params.range, &params.weight);
                let out = out.unwrap();
                expected.same("gradient", &out.gradient);
                expected.same64("row_loss", &out.row_loss);
            }
            Params::Op(AnyOp::KlImportance(params)) => {
                let [logp, logp_old, logp_ref] =
                    [slot::LOGP, slot::LOGP_OLD, slot::LOGP_REF].map(|k| &data.element[k][..]);
                let policies = ThreePolicies { logp, logp_old, logp_ref };
                let KlImportance { kl, guard, through, .. } = params;
                let out = ops::kl_importance(&device, &batch.unwrap(), &policies, &kl, guard, through);
                expected.same64("row_sum", &out.unwrap().row_sum);
            }
            Params::Op(AnyOp::Logits(params)) => check_logits(&device, &case, &params, &expected),
            // A batch has at least one sequence.
            Params::Op(_) if data.elements() == 0 => {}
            Params::Op(AnyOp::Shape(Shape { shaping, threshold })) => {
                // References beyond their group are refused by the API.
                if shaping != Shaping::Preferred {
                    let flags: Vec<u8> = data.element[1].iter().map(|x| u8::from(*x > 0.0)).collect();
                    let (lengths, flags) = (Some(&data.index[..]), Some(&flags[..]));
                    let params = ShapeParams { shaping, threshold, lengths, flags, reference: None };
                    let (rewards, valid) = (&data.element[0], data.mask.as_deref());
                    let out = of_groups(&case, |b| ops::shape_rewards(&device, b, rewards, valid, &params));
                    expected.scored("shaped", &out);
                }
            }
            Params::Op(AnyOp::Filter(Filter { criterion })) => {
                let (metric, valid) = (&data.element[0], data.mask.as_deref());
                let out = of_groups(&case, |b| ops::filter_groups(&device, b, metric, valid, criterion));
                expected.same("statistic", &out.statistic);
                assert_eq!(expected.sum("kept"), f64::from(out.kept.iter().sum::<u32>()), "{}", case.label);
                assert_eq!(out.keep.len() - out.dropped_sequences(), expected.sum("keep") as usize);
            }
            Params::Op(AnyOp::MaskSequences(_)) => {
                let keep: Vec<u8> = data.row[0].iter().map(|x| u8::from(*x > 0.0)).collect();
                let out = ops::mask_sequences(&device, &batch.unwrap(), &keep).unwrap();
                assert!(out.iter().zip(&expected.0["masked"]).all(|(x, want)| f64::from(*x) == *want));
            }
            Params::Op(AnyOp::Novelty(Novelty { mean_weight, bands })) => {
                let [majority, minority, width, invalid] = bands;
                let bands = Bands { mean_weight, majority, minority, width, invalid };
                let one = |i: usize, j: usize| {
                    data.element[0][i] * data.element[0][j] + data.element[1][i] * data.element[1][j]
                };
                let group = |g| data.span(g).flat_map(move |i| data.span(g).map(move |j| one(i, j)));
                let similarity: Vec<f32> = (0..data.rows()).flat_map(group).collect();
                let valid = data.mask.as_deref();
                let out = of_groups(&case, |b| {
                    ops::novelty_bands(&device, b, &data.index, &similarity, valid, &bands)
                });
                expected.scored("shaped", &out.rewards);
                expected.same("novelty", &out.novelty);
            }
            Params::Op(AnyOp::VarianceIncrease(p)) => {
                let logp = p.weighted.then_some(&data.element64[..]);
                let (low, high) = (p.bounds[0], p.bounds[1]);
                let params = VarianceParams { logp, low, high, margin: p.margin, merge_ties: p.merge_ties };
                let (rewards, valid) = (&data.element[0], data.mask.as_deref());
                let out = of_groups(&case, |b| ops::variance_increase(&device, b, rewards, valid, &params));
                expected.scored("shaped", &out);
            }
            // The API sums log-probabilities itself, and sorts by role: conformance/tests/outcome.rs.
            Params::Op(AnyOp::Sharpen(_) | AnyOp::RoleBaseline(_)) => {}
            Params::Op(AnyOp::EntropyBonus(p)) => {
                let advantage = match p.per_token {
                    true => Advantage::PerToken(&data.element[0]),
                    false => Advantage::PerSequence(&data.row[0]),
                };
                let (source, batch) = (&data.element[1][..], batch.unwrap());
                let source =
                    if p.full { EntropyOf::Distribution(source) } else { EntropyOf::Sampled(source) };
                let out = ops::entropy_bonus(&device, &batch, advantage, source, p.alpha, p.kappa).unwrap();
                expected.same("shaped", &out);
            }
            // Their statistics are sums over a batch of which these outputs are rows: tests/correction.rs, tests/ratios.rs.
            Params::Op(AnyOp::Correction(_) | AnyOp::Ratios(_)) => {}
            Params::Op(AnyOp::Whiten(params)) => {
                // The kernel has the moments of another batch, the API those of its own.
                if !params.nan_is_missing {
                    check_whiten(&device, &case, &batch.unwrap());
                }
            }
        }
        *checked.entry(case.op()).or_default() += 1;
    }
    println!("{checked:?}");
    assert!(checked.len() == lockstep_core::op::OPS.len() && checked.values().all(|n| *n >= 5));
}

/// Which sequences are terminated and which truncated.
fn flags(case: &Case, bootstrap: bool) -> [Vec<u8>; 2] {
    let truncated: Vec<u8> = case.data.row[1].iter().map(|x| u8::from(*x != 0.0 && bootstrap)).collect();
    [truncated.iter().map(|x| 1 - x).collect(), truncated]
}

fn check_gae(device: &Device, case: &Case, batch: &Batch<'_>, params: &Gae, expected: &Launch) {
    let [terminated, truncated] = flags(case, params.bootstrap);
    let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &case.data.row[0] };
    let input = GaeInput { rewards: &case.data.element[0], values: &case.data.element[1], ends };
    let lambda =
        params.length_alpha.map_or(Lambda::Fixed(params.lambda), |alpha| Lambda::LengthAdaptive { alpha });
    let mut out = GaeOutput::default();
    let of = |lambda_critic| GaeParams { gamma: params.gamma, lambda, lambda_critic };
    ops::gae(device, batch, &input, &of(None), &mut out).unwrap();
    let mut apart = GaeOutput::default();
    ops::gae(device, batch, &input, &of(Some(lambda)), &mut apart).unwrap();
    assert!(out.advantage == apart.advantage && out.returns == apart.returns, "{}", case.label);
    if params.advantage {
        expected.same("advantage", &out.advantage);
    }
    if params.returns {
        expected.same("returns", &out.returns);
        expected.same("returns", &ops::td_lambda(device, batch, &input, params.gamma, lambda).unwrap());
    }
}

fn check_vtrace(device: &Device, case: &Case, batch: &Batch<'_>, params: &VTrace, expected: &Launch) {
    let [terminated, truncated] = flags(case, params.bootstrap);
    let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &case.data.row[0] };
    let [rewards, values, logp, logp_rollout] = [0, 1, 2, 3].map(|k| &case.data.element[k][..]);
    let input = VTraceInput { logp, logp_rollout, rewards, values, ends };
    let Constants { gamma, lambda, rho_bar, rho_pg, c_bar } = params.constants;
    let out =
        ops::vtrace(device, batch, &input, &VTraceParams { gamma, lambda, rho_bar, rho_pg, c_bar }).unwrap();
    expected.same("vs", &out.vs);
    expected.same("advantage", &out.advantage);
}

#[test]
fn mismatch_is_the_ratio_of_old_to_rollout() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let (rollout, old) = ([-1.0, -0.5], [-0.5, -0.5]);
    let stats = ops::ratio::mismatch(&device, &batch, &rollout, &old).unwrap();
    assert_eq!(stats.kl_k1, -0.25, "mean(logp_rollout - logp_old)");
    assert!((stats.ratio_max - 0.5f64.exp()).abs() <= WORKED && stats.ratio_min == 1.0);
    let other = ops::token_ratio(
        &device,
        &batch,
        &old,
        &rollout,
        lockstep::core::ratio::Guard::clamp(20.0),
        [0.5, 2.0],
    );
    assert_eq!(other.unwrap().stats, stats);
}
