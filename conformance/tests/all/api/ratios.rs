//! Log-ratios of prefixes, the proximal policy, staleness, effective sample sizes.

use super::launch::Launch;
use lockstep::core::ratio::ess::EPS;
use lockstep::ops;
use lockstep::{Batch, Device};
use lockstep_conformance::cases::{Case, slot};
use lockstep_conformance::ops::ratios::Ratios;

pub(crate) fn check(device: &Device, case: &Case, batch: &Batch<'_>, params: &Ratios, expected: &Launch) {
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
            let kept: Vec<f32> = out.kept_mask.iter().map(|m| f32::from(*m)).collect();
            expected.same("kept_mask", &kept);
            let start = out.start_version.iter().map(|v| f64::from(v.cast_unsigned()));
            assert!(start.eq(expected.0["row_start"].iter().copied()), "{}", case.label);
            let left = expected.0["row_kept"].iter().map(|n| u8::from(*n > 0.0));
            assert!(left.eq(out.kept.iter().copied()), "{}", case.label);
        }
        // The API only ever adds one constant.
        Ratios::Ess { eps } => {
            let out = ops::token_sample_sizes(device, batch, weights).unwrap();
            if eps == EPS {
                expected.same64("ess", &out.rows);
            }
        }
    }
}
