//! Fuzzes the arguments of the KL estimators.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops::kl::{KlOutput, kl};
use lockstep_fuzz::*;

fn same(a: &KlOutput, b: &KlOutput) {
    assert_same_bits("kl", bits32(&a.kl), bits32(&b.kl));
    assert_same_bits("gradient", bits32(&a.gradient), bits32(&b.gradient));
    assert_same_bits("row_sum", bits64(&a.row_sum), bits64(&b.row_sum));
    assert_same_bits("sum", bits64(&[a.sum]), bits64(&[b.sum]));
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let packed = Packed::draw(draw);
    let Some(batch) = packed.batch() else { return };
    let estimator = draw.one_of(&[KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3]);
    let params = Kl {
        clamp_in: draw.optional(Like::Parameter).unwrap_or(Kl::K3_IN),
        clamp_out: draw.optional(Like::Parameter).unwrap_or(f32::INFINITY),
        straight_through: draw.flag(),
        ..Kl::new(estimator)
    };
    let logp = draw.floats(batch.tokens(), Like::LogProbability);
    let logp_ref = draw.floats(batch.tokens(), Like::LogProbability);

    let result = on_every_level(|device| kl(device, &batch, &logp, &logp_ref, &params), same);
    let live = |i: usize| packed.live(i);
    assert_domain(&result, "logp", &logp, Domain::LogProbability, live);
    assert_domain(&result, "logp_ref", &logp_ref, Domain::LogProbability, live);
    let out = match result {
        Ok(out) => out,
        Err(error) => {
            let message = error.to_string();
            let names = ["`logp`", "`logp_ref`", "`kl.clamp_in`", "`kl.clamp_out`", "`kl`[", "`kl gradient`"];
            assert!(names.iter().any(|name| message.contains(name)), "{message}");
            return;
        }
    };

    assert_eq!((logp.len(), logp_ref.len()), (batch.tokens(), batch.tokens()), "a wrong length was accepted");
    assert!(params.clamp_in > 0.0 && params.clamp_out > 0.0, "{params:?} was accepted");
    for (name, values) in [("kl", &out.kl), ("gradient", &out.gradient)] {
        assert_finite(name, values.iter().map(|x| f64::from(*x)));
        assert_masked_zero(name, values, live);
    }
    assert_finite("row_sum", out.row_sum.iter().copied());
    assert_finite("sum", [out.sum]);
    for i in (0..batch.tokens()).filter(|i| live(*i)) {
        // All estimators but k1 are never negative, and all are 0 where the policies agree.
        assert!(estimator == KlFormula::K1 || out.kl[i] >= 0.0, "kl[{i}] is {}", out.kl[i]);
        assert!(logp[i] != logp_ref[i] || out.kl[i] == 0.0, "equal policies, kl[{i}] is {}", out.kl[i]);
    }
});
