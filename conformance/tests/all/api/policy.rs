//! Policy losses, KL, ratios and their statistics.

use super::launch::{Launch, counts};
use lockstep::core::kl::Kl;
use lockstep::ops;
use lockstep::ops::policy_loss::{GmpoParams, PolicyParams, gmpo as gmpo_loss};
use lockstep::{
    Advantage, Batch, Compiled, Counts, Device, Metrics, Outputs, PolicyInput, PolicyOutput, RatioStats,
};
use lockstep_conformance::cases::params::BAND;
use lockstep_conformance::cases::{Case, slot};
use lockstep_conformance::ops::gmpo::Gmpo;
use lockstep_conformance::ops::policy_loss::Policy;
use lockstep_conformance::precision::BY_HAND;
use lockstep_core::gate::Gate;
use lockstep_core::policy_loss::PolicyLoss;

/// Mean, population standard deviation and effective sample size from sums.
pub(crate) fn check_spread(sums: &Launch, n: f64, mean: f64, std: f64, ess: f64) {
    let (excess, squares) = (sums.sum("sum_excess") / n, sums.sum("sum_excess_squared") / n);
    let variance = (squares - excess * excess).max(0.0);
    assert!((mean - 1.0 - excess).abs() <= BY_HAND * mean);
    // A difference of two close numbers, compared before the root and relative to them.
    assert!((std * std - variance).abs() <= BY_HAND * squares);
    let kept = (1.0 + excess).powi(2) / (squares + 2.0 * excess + 1.0);
    assert!((ess - kept.min(1.0)).abs() <= BY_HAND && ess <= 1.0);
}

pub(crate) fn check_metrics(sums: &Launch, m: &Metrics, counts: Counts) {
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

pub(crate) fn check_ratios(sums: &Launch, s: &RatioStats, counts: Counts) {
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

pub(crate) fn check_policy<G: Gate>(device: &Device, case: &Case, policy: &Policy, gate: G, expected: &Launch)
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let Policy { level, guard, kl, weight, per_token, weights, loss, token_loss, metrics, .. } = *policy;
    let params = PolicyParams { gate, level, guard, kl, kl_weighted: false, weight, band: BAND };
    let input = PolicyInput {
        logp_ref: kl.map(|_| &data.element[slot::LOGP_REF][..]),
        logp_second: G::SECOND.then_some(&data.element[policy.gate.second()][..]),
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
    // A reused output: nothing from the last call may show.
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

pub(crate) fn check_kl(device: &Device, case: &Case, kl: &Kl, expected: &Launch) {
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let out = ops::kl(device, &batch, &data.element[slot::LOGP], &data.element[slot::LOGP_OLD], kl).unwrap();
    expected.same64("row_sum", &out.row_sum);
    if expected.0.contains_key("kl") {
        expected.same("kl", &out.kl);
        expected.same("gradient", &out.gradient);
    }
}

pub(crate) fn check_gmpo(device: &Device, case: &Case, gmpo: &Gmpo, expected: &Launch) {
    let (data, groups) = (&case.data, [0, case.data.rows() as u32]);
    let batch = Batch::with_empty_rows(&data.offsets, &groups, data.mask.as_deref()).unwrap();
    let Gmpo {
        mean,
        guard,
        clip: [clip_log_low, clip_log_high],
        denominator,
        per_token,
        weights,
        loss,
        metrics,
        ..
    } = *gmpo;
    let params = GmpoParams { mean, clip_log_low, clip_log_high, guard, denominator, band: BAND };
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
