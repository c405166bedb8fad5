//! Fuzzes the arguments of the group advantage.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::advantage::{Singleton, grpo::status};
use lockstep::ops::advantage::{Advantages, GroupParams, group_advantage};
use lockstep_fuzz::*;

fn same(a: &Advantages, b: &Advantages) {
    assert_same_bits("advantage", bits32(&a.advantage), bits32(&b.advantage));
    assert_same_bits("mean", bits32(&a.mean), bits32(&b.mean));
    assert_same_bits("std", bits32(&a.std), bits32(&b.std));
    assert_eq!((&a.counted, &a.status), (&b.counted, &b.status));
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let packed = Packed::draw(draw);
    let Some(batch) = packed.batch() else { return };
    let norm_by_std = draw.flag();
    let ddof = draw.one_of(&[1, 0, 1, 0, 2, u32::MAX]);
    let eps = match draw.below(4) {
        0 => 1e-6,
        1 => 0.0,
        _ => draw.double(Like::Parameter),
    };
    let params = GroupParams {
        singleton: draw.one_of(&[None, Some(Singleton::Zero), Some(Singleton::RawReward)]),
        ..GroupParams::grpo(norm_by_std, ddof, eps)
    };
    let valid = draw.flag().then(|| draw.mask(batch.sequences()));
    let rewards = draw.floats(batch.sequences(), Like::Reward);

    let result =
        on_every_level(|device| group_advantage(device, &batch, &rewards, valid.as_deref(), &params), same);
    let counted = |i: usize| valid.as_ref().is_none_or(|v| v.get(i).is_some_and(|v| *v != 0));
    assert_domain(&result, "rewards", &rewards, Domain::NotInfinite, counted);
    let out = match result {
        Ok(out) => out,
        Err(error) => {
            let message = error.to_string();
            let names =
                ["`rewards`", "`valid`", "`ddof`", "`eps`", "`cu_groups`", "`advantage`", "`mean`", "`std`"];
            assert!(names.iter().any(|name| message.contains(name)), "{message}");
            return;
        }
    };

    assert_eq!(rewards.len(), batch.sequences(), "a wrong length was accepted");
    assert!(ddof <= 1 && (!norm_by_std || (eps >= 0.0 && eps.is_finite())), "{params:?} was accepted");
    for (name, values) in [("advantage", &out.advantage), ("mean", &out.mean), ("std", &out.std)] {
        assert_finite(name, values.iter().map(|x| f64::from(*x)));
    }
    let counted = |i: usize| counted(i) && !rewards[i].is_nan();
    assert_masked_zero("advantage", &out.advantage, counted);
    for group in 0..batch.groups() {
        let span = batch.cu_groups().span(group);
        let members: Vec<usize> = (span.start..span.end).filter(|i| counted(*i)).collect();
        assert_eq!(out.counted[group] as usize, members.len());
        let constant = !members.is_empty() && members.iter().all(|i| rewards[*i] == rewards[members[0]]);
        assert_eq!(out.status[group] & status::CONSTANT != 0, constant);
        assert_eq!(out.status[group] & status::SINGLETON != 0, members.len() == 1);
        assert_eq!(out.status[group] & status::NONE_COUNTED != 0, members.is_empty());
        if constant && members.len() > 1 {
            assert!(members.iter().all(|i| out.advantage[*i] == 0.0), "equal rewards, advantage not 0");
            assert_eq!(out.std[group], 0.0);
        }
    }
});
