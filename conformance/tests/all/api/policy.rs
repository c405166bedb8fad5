//! Policy losses, KL, ratios and their statistics.

use super::launch::Launch;
use crate::prelude::*;
use lockstep::ops::policy_loss::{GmpoParams, PolicyParams, gmpo as gmpo_loss};
use lockstep::{Metrics, PolicyInput, RatioStats};
use lockstep_conformance::cases::params::BAND;
use lockstep_conformance::ops::gmpo::Gmpo;
use lockstep_conformance::ops::policy_loss::Policy;
use lockstep_core::gate::Gate;
use lockstep_core::policy_loss::PolicyLoss;

/// Mean, population standard deviation and effective sample size from sums.
pub(crate) fn check_spread(sums: &Launch<'_>, n: f64, mean: f64, std: f64, ess: f64) {
    let (excess, squares) = (sums.sum("sum_excess") / n, sums.sum("sum_excess_squared") / n);
    let variance = (squares - excess * excess).max(0.0);
    assert!((mean - 1.0 - excess).abs() <= BY_HAND * mean);
    // A difference of two close numbers, compared before the root and relative to them.
    assert!((std * std - variance).abs() <= BY_HAND * squares);
    let kept = (1.0 + excess).powi(2) / (squares + 2.0 * excess + 1.0);
    assert!((ess - kept.min(1.0)).abs() <= BY_HAND && ess <= 1.0);
}

pub(crate) fn check_metrics(sums: &Launch<'_>, m: &Metrics, counts: Counts) {
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

pub(crate) fn check_ratios(sums: &Launch<'_>, s: &RatioStats, counts: Counts) {
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

fn input(data: &Data, per_token: bool) -> PolicyInput<'_> {
    let advantage = match per_token {
        true => Advantage::PerToken(&data.element[slot::ADVANTAGE]),
        false => Advantage::PerSequence(&data.row[0]),
    };
    PolicyInput::new(&data.element[slot::LOGP], &data.element[slot::LOGP_OLD], advantage)
}

pub(crate) fn check_policy<G: Gate>(expected: &Launch<'_>, policy: &Policy, gate: G)
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let (data, batch) = (&expected.case.data, expected.batch());
    let Policy { level, guard, kl, weight, per_token, weights, loss, token_loss, metrics, .. } = *policy;
    let params = PolicyParams { gate, level, guard, kl, kl_weighted: false, weight, band: BAND };
    let input = PolicyInput {
        logp_ref: kl.map(|_| &data.element[slot::LOGP_REF][..]),
        logp_second: G::SECOND.then_some(&data.element[policy.gate.second()][..]),
        weights: weights.then_some(&data.element[slot::WEIGHTS][..]),
        outputs: Outputs { loss, token_loss, metrics },
        ..input(data, per_token)
    };
    // A reused output: nothing from the last call may show.
    let mut out = PolicyOutput::default();
    (out.coef, out.row_loss, out.loss) = (vec![9.0; 99_999], vec![9.0; 9], Some(9.0));
    ops::policy_loss::policy_loss(expected.device, &batch, &input, &params, &mut out).unwrap();
    expected.same("coef", &out.coef);
    assert_eq!(out.counts, expected.counts());
    assert_eq!(out.token_loss.is_empty(), !token_loss || data.elements() == 0);
    assert_eq!((out.loss.is_some(), out.metrics.is_some()), (policy.wants_loss(), metrics));
    if token_loss {
        expected.same("token_loss", &out.token_loss);
    }
    if let Some(loss) = out.loss {
        expected.same("row_loss", &out.row_loss);
        let scale: f64 = out.row_loss.iter().map(|x| x.abs()).sum();
        assert!((loss - out.row_loss.iter().sum::<f64>()).abs() <= BY_HAND * scale);
    }
    if let Some(metrics) = &out.metrics {
        check_metrics(expected, metrics, out.counts);
    }
}

pub(crate) fn check_kl(expected: &Launch<'_>, kl: &Kl) {
    let [logp, logp_ref] = [slot::LOGP, slot::LOGP_OLD].map(|k| &expected.case.data.element[k]);
    let out = ops::kl(expected.device, &expected.batch(), logp, logp_ref, kl).unwrap();
    expected.same("row_sum", &out.row_sum);
    if expected.outputs.contains_key("kl") {
        expected.same("kl", &out.kl);
        expected.same("gradient", &out.gradient);
    }
}

pub(crate) fn check_gmpo(expected: &Launch<'_>, gmpo: &Gmpo) {
    let (data, batch) = (&expected.case.data, expected.batch());
    let Gmpo { mean, guard, denominator, per_token, weights, loss, metrics, .. } = *gmpo;
    let [clip_log_low, clip_log_high] = gmpo.clip;
    let params = GmpoParams { mean, clip_log_low, clip_log_high, guard, denominator, band: BAND };
    let input = PolicyInput {
        weights: weights.then_some(&data.element[slot::WEIGHTS][..]),
        outputs: Outputs { loss, token_loss: false, metrics },
        ..input(data, per_token)
    };
    let mut out = PolicyOutput::default();
    gmpo_loss(expected.device, &batch, &input, &params, &mut out).unwrap();
    expected.same("coef", &out.coef);
    if loss {
        expected.same("row_loss", &out.row_loss);
    }
    if let Some(metrics) = &out.metrics {
        check_metrics(expected, metrics, out.counts);
    }
}
