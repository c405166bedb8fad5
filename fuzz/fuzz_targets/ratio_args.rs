//! Fuzzes the arguments of the token ratio and of the mismatch statistics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::RatioStats;
use lockstep::core::ratio::Guard;
use lockstep::ops::ratio::{Ratios, mismatch, token_ratio};
use lockstep_fuzz::*;

fn same(a: &Ratios, b: &Ratios) {
    assert_same_bits("ratio", bits32(&a.ratio), bits32(&b.ratio));
    assert_same_bits("log_ratio", bits32(&a.log_ratio), bits32(&b.log_ratio));
    same_stats(&a.stats, &b.stats);
}

/// Rust prints the shortest text that reads back as the same bits.
fn same_stats(a: &RatioStats, b: &RatioStats) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

/// `bounded`: the ratios are guarded, so nothing can overflow.
fn check_stats(stats: &RatioStats, tokens: usize, bounded: bool) {
    let RatioStats {
        tokens: n,
        kl_k1,
        kl_k3,
        ratio_mean,
        ratio_std,
        ratio_min,
        ratio_max,
        ess,
        guarded_tokens,
        in_band_fraction,
        ..
    } = *stats;
    assert_eq!(n as usize, tokens);
    assert!(guarded_tokens <= n && (0.0..=1.0).contains(&in_band_fraction), "{stats:?}");
    let all = [kl_k1, kl_k3, ratio_mean, ratio_std, ratio_min, ratio_max, ess];
    assert!(all.iter().all(|x| !x.is_nan()), "{stats:?}");
    if bounded {
        assert_finite("stats", all);
        assert!(ratio_std >= 0.0 && (0.0..=1.0 + 1e-5).contains(&ess) && kl_k3 >= 0.0, "{stats:?}");
        assert!(ratio_min <= ratio_max, "{stats:?}");
        // The mean is summed from r − 1 in binary32.
        let slack = 1e-6 * (1.0 + ratio_max);
        assert!(ratio_min - slack <= ratio_mean && ratio_mean <= ratio_max + slack, "{stats:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let packed = Packed::draw(draw);
    let Some(batch) = packed.batch() else { return };
    let (guard, bound) = match draw.below(4) {
        0 => (Guard::NONE, f32::INFINITY),
        1 => (Guard::clamp(20.0), 20.0),
        kind => {
            let bound = draw.float(Like::Parameter);
            (if kind == 2 { Guard::clamp(bound) } else { Guard::straight_through(bound) }, bound)
        }
    };
    let band = [draw.float(Like::Parameter), draw.float(Like::Parameter)];
    let logp = draw.floats(batch.tokens(), Like::LogProbability);
    let logp_old = draw.floats(batch.tokens(), Like::LogProbability);
    let live = |i: usize| packed.live(i);
    let tokens = (0..batch.tokens()).filter(|i| live(*i)).count();

    let result = on_every_level(|device| token_ratio(device, &batch, &logp, &logp_old, guard, band), same);
    assert_domain(&result, "logp", &logp, Domain::LogProbability, live);
    assert_domain(&result, "logp_old", &logp_old, Domain::LogProbability, live);
    match result {
        Ok(out) => {
            assert_eq!((logp.len(), logp_old.len()), (batch.tokens(), batch.tokens()));
            assert!(bound > 0.0, "guard {bound} was accepted");
            assert_finite("log_ratio", out.log_ratio.iter().map(|x| f64::from(*x)));
            // Without a guard a ratio may overflow to infinity, as documented; it is never NaN.
            assert!(out.ratio.iter().all(|r| *r >= 0.0), "{:?}", out.ratio);
            assert_masked_zero("ratio", &out.ratio, live);
            assert_masked_zero("log_ratio", &out.log_ratio, live);
            check_stats(&out.stats, tokens, bound <= 40.0);
        }
        Err(error) => {
            let message = error.to_string();
            let names = ["`logp`", "`logp_old`", "`guard`", "`ratio`"];
            assert!(names.iter().any(|name| message.contains(name)), "{message}");
        }
    }

    let result = on_every_level(|device| mismatch(device, &batch, &logp, &logp_old), same_stats);
    assert_domain(&result, "logp_rollout", &logp, Domain::LogProbability, live);
    assert_domain(&result, "logp_old", &logp_old, Domain::LogProbability, live);
    match result {
        Ok(stats) => check_stats(&stats, tokens, true),
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("`logp_rollout`") || message.contains("`logp_old`"), "{message}");
        }
    }
});
