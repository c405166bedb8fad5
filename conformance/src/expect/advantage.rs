//! `group_advantage`.

use super::Want;
use crate::cases::{Case, Params, slot};
use crate::oracle::grpo;
use lockstep_core::advantage::{Singleton, grpo::status};

pub(super) fn expect(case: &Case) -> Vec<Want> {
    let Params::GroupAdvantage { norm_by_std, ddof, eps, singleton } = case.params else { return Vec::new() };
    let singleton = match singleton {
        Singleton::Zero => grpo::Singleton::Zero,
        Singleton::RawReward => grpo::Singleton::RawReward,
    };
    let oracle = grpo::Grpo { norm_by_std, ddof, eps, singleton };
    let names = ["advantage", "mean", "std", "counted", "status"];
    let [mut advantage, mut mean, mut std, mut counted, mut bits] = names.map(Want::new);
    for row in 0..case.data.rows() {
        let span = case.data.span(row);
        let rewards: Vec<f64> = span.clone().map(|i| case.data.element[slot::FIRST][i].into()).collect();
        let valid: Vec<bool> = span.map(|i| case.data.live(i)).collect();
        let group = oracle.group(&rewards, &valid);
        let member = |i: usize| valid[i] && !rewards[i].is_nan();
        let members: Vec<f64> = (0..rewards.len()).filter(|i| member(*i)).map(|i| rewards[i]).collect();
        // Core's mean is a binary64 sum in its own order: off by 1e-8 of a unit of 2⁻²⁴ of the largest
        // reward.
        let noise = 1e-8 * members.iter().fold(0.0, |m: f64, r| m.max(r.abs()));
        let divisor = if norm_by_std { group.std + eps } else { 1.0 };
        for (i, a) in group.advantage.iter().enumerate() {
            let noise = if member(i) && *a != 0.0 { noise / divisor } else { 0.0 };
            advantage.push(*a, a.abs() + noise);
        }
        mean.push(group.mean, group.mean.abs() + noise);
        std.push(group.std, group.std);
        counted.push(group.counted as f64, 0.0);
        let constant = members.iter().all(|r| *r == members[0]) && !members.is_empty();
        let nan = (0..rewards.len()).any(|i| valid[i] && rewards[i].is_nan());
        let want: u32 = [
            (members.len() == 1, status::SINGLETON),
            (constant, status::CONSTANT),
            (members.is_empty(), status::NONE_COUNTED),
            (nan, status::NAN_EXCLUDED),
        ]
        .into_iter()
        .map(|(yes, bit)| if yes { bit } else { 0 })
        .sum();
        bits.push(want.into(), 0.0);
    }
    vec![advantage, mean, std, counted, bits]
}
