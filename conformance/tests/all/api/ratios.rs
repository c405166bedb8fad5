//! Log-ratios of prefixes, the proximal policy, staleness, effective sample sizes.

use super::launch::Launch;
use crate::prelude::*;
use lockstep::core::ratio::ess::EPS;
use lockstep_conformance::ops::ratios::Ratios;

pub(crate) fn check(expected: &Launch<'_>, params: &Ratios) {
    let (device, case, batch) = (expected.device, expected.case, &expected.batch());
    let [logp, logp_old, weights] =
        [slot::LOGP, slot::LOGP_OLD, slot::WEIGHTS].map(|k| &case.data.element[k][..]);
    let versions: Vec<i32> = case.data.index.iter().map(|v| v.cast_signed()).collect();
    match *params {
        Ratios::Scan { kind, cap } => {
            let out = ops::log_ratio_scan(device, batch, logp, logp_old, kind, cap).unwrap();
            expected.same("log_ratio", &out);
        }
        Ratios::Proximal { current, interpolation } => {
            let out = ops::proximal_logp(device, batch, &versions, current, logp_old, logp, interpolation);
            expected.same("logp_prox", &out.unwrap());
        }
        Ratios::Staleness { current, max } => {
            let out = ops::staleness(device, batch, &versions, current, max).unwrap();
            expected.same("kept_mask", &out.kept_mask);
            let start: Vec<u32> = out.start_version.iter().map(|v| v.cast_unsigned()).collect();
            expected.same("row_start", &start);
            let left = expected.outputs["row_kept"].iter().map(|n| u8::from(*n > 0.0));
            assert!(left.eq(out.kept.iter().copied()), "{}", case.label);
        }
        // The API only ever adds one constant.
        Ratios::Ess { eps } => {
            let out = ops::token_sample_sizes(device, batch, weights).unwrap();
            if eps == EPS {
                expected.same("ess", &out.rows);
            }
        }
    }
}
