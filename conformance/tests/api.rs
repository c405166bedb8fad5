//! The public API on slices returns what the kernels return, and its metrics are what their names say.

use lockstep::core::kl::Kl;
use lockstep::ops::{self, advantage::GroupParams, policy_loss::PolicyParams, whiten::WhitenParams};
use lockstep::{Advantage, Batch, Counts, Device, Metrics, Outputs, PolicyInput, PolicyOutput, RatioStats};
use lockstep_conformance::cases::params::BAND;
use lockstep_conformance::cases::{AnyGate, Case, Params, Policy, corpus, slot};
use lockstep_conformance::launch;
use lockstep_conformance::ops::discounted_return::DiscountedReturn;
use lockstep_conformance::ops::{
    AnyOp, check::Check, combine::Combine, group::Group, moments::Moments, pass_at_k::PassAtK,
};
use lockstep_conformance::output::Output;
use lockstep_conformance::precision::{BY_HAND, WORKED};
use lockstep_core::advantage::Baseline;
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::gate::{Gate, Sapo};
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
    let params = PolicyParams { gate, level, guard, kl, weight, band: BAND };
    let input = PolicyInput {
        logp_ref: kl.map(|_| &data.element[slot::LOGP_REF][..]),
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
            // The API chains the three: `tests/trees.rs`.
            Params::Op(AnyOp::Tree(_)) => {}
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
