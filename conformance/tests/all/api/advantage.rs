//! Advantages of groups and over time, whitening.

use super::launch::Launch;
use crate::prelude::*;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::vtrace::{VTraceInput, VTraceParams};
use lockstep_conformance::ops::{gae::Gae, group::Group, vtrace::VTrace};
use lockstep_conformance::oracle::vtrace::Constants;
use lockstep_core::advantage::Baseline;

/// Covers the cases whose batch statistics are not those of a larger batch.
pub(crate) fn check_group(expected: &Launch<'_>, group: &Group) {
    if group.scale.needs_moments() || group.baseline == Baseline::Length {
        return;
    }
    let data = &expected.case.data;
    let params = GroupParams {
        limit: group.limit,
        least_std: group.least_std,
        weights: group.baseline.needs_weights().then(|| &data.element[1][..]),
        given: group.baseline.needs_given().then(|| &data.row[0][..]),
        ..GroupParams::new(group.baseline, group.scale).singleton(group.singleton)
    };
    let (rewards, valid) = (&data.element[0], data.mask.as_deref());
    let out = expected.of_groups(|b| ops::group_advantage(expected.device, b, rewards, valid, &params));
    expected.same("advantage", &out.advantage);
    expected.same("mean", &out.mean);
    expected.same("std", &out.std);
    expected.same("counted", &out.counted);
    expected.same("status", &out.status);
    if !out.pivot.is_empty() {
        expected.same("pivot", &out.pivot);
    }
}

/// Values whitened by their own moments have mean 0 and, if nothing is added to the variance, variance 1.
pub(crate) fn check_whiten(of: &Launch<'_>) {
    let (device, batch, values) = (of.device, &of.batch(), &of.case.data.element[0]);
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

/// Which sequences are terminated and which truncated.
fn flags(case: &Case, bootstrap: bool) -> [Vec<u8>; 2] {
    let truncated: Vec<u8> = case.data.row[1].iter().map(|x| u8::from(*x != 0.0 && bootstrap)).collect();
    [truncated.iter().map(|x| 1 - x).collect(), truncated]
}

fn ends<'a>(case: &'a Case, [terminated, truncated]: &'a [Vec<u8>; 2]) -> Ends<'a> {
    Ends::Flags { terminated, truncated, bootstrap: &case.data.row[0] }
}

pub(crate) fn check_gae(expected: &Launch<'_>, params: &Gae) {
    let (device, case, batch) = (expected.device, expected.case, &expected.batch());
    let flags = flags(case, params.bootstrap);
    let (rewards, values, ends) = (&case.data.element[0], &case.data.element[1], ends(case, &flags));
    let input = GaeInput { rewards, values, ends };
    let lambda =
        params.length_alpha.map_or(Lambda::Fixed(params.lambda), |alpha| Lambda::LengthAdaptive { alpha });
    let [out, apart] = [None, Some(lambda)].map(|lambda_critic| {
        let (params, mut out) =
            (GaeParams { gamma: params.gamma, lambda, lambda_critic }, GaeOutput::default());
        ops::gae(device, batch, &input, &params, &mut out).unwrap();
        out
    });
    assert!(out.advantage == apart.advantage && out.returns == apart.returns, "{}", case.label);
    if params.advantage {
        expected.same("advantage", &out.advantage);
    }
    if params.returns {
        expected.same("returns", &out.returns);
        expected.same("returns", &ops::td_lambda(device, batch, &input, params.gamma, lambda).unwrap());
    }
}

pub(crate) fn check_vtrace(expected: &Launch<'_>, params: &VTrace) {
    let (device, case, batch) = (expected.device, expected.case, &expected.batch());
    let flags = flags(case, params.bootstrap);
    let ends = ends(case, &flags);
    let [rewards, values, logp, logp_rollout] = [0, 1, 2, 3].map(|k| &case.data.element[k][..]);
    let input = VTraceInput { logp, logp_rollout, rewards, values, ends };
    let Constants { gamma, lambda, rho_bar, rho_pg, c_bar } = params.constants;
    let out =
        ops::vtrace(device, batch, &input, &VTraceParams { gamma, lambda, rho_bar, rho_pg, c_bar }).unwrap();
    expected.same("vs", &out.vs);
    expected.same("advantage", &out.advantage);
}
