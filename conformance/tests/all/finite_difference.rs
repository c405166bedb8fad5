//! Every closed-form gradient against central differences of the oracle's loss: all gates × aggregations × KL
//! estimators × guards, through the public API.
//!
//! For gates whose weight is a stopped constant the oracle's difference is its closed form; `surrogates.rs`
//! differentiates the objective of every gate, written out apart from the oracle.
//!
//! L = Σ W·l with constant W, so moving one logp moves one term: the difference of L is W times that of l.

use crate::differences::{Compared, slope, token};
use crate::gate_batch::{credit, data, input};
use crate::prelude::*;
use lockstep::recipe::{CountedSequences, KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting, LengthGuard};
use lockstep_conformance::oracle::aggregate::{Denominators, Mode};
use lockstep_conformance::oracle::kl::{Kl, KlFormula};
use lockstep_conformance::oracle::policy_loss::{Gate, PolicyLoss};
use lockstep_conformance::oracle::sapo::Sapo;
use lockstep_conformance::oracle::token::Guard;
use lockstep_conformance::whole::gate as oracle_gate;

const BETA: f32 = 0.25;

fn gates() -> [GateChoice; 9] {
    [
        "kind = 'ppo_clip', clip_ratio_low = 0.2, clip_ratio_high = 0.28, clip_ratio_c = 3.0",
        "kind = 'ppo_clip', clip_ratio_low = 0.1, clip_ratio_high = 0.1",
        "kind = 'ppo_clip', clip_ratio_low = 0.5, clip_ratio_high = 2.0, clip_ratio_c = 1.5",
        "kind = 'sapo', tau_pos = 1.0, tau_neg = 1.05",
        "kind = 'sapo', tau_pos = 4.0, tau_neg = 0.5",
        "kind = 'cispo', low = 0.9, high = 1.125",
        "kind = 'reinforce'",
        "kind = 'dppo_tv', clip_ratio_low = 0.05, clip_ratio_high = 0.05, clip_ratio_c = 1.25",
        "kind = 'dppo_kl', clip_ratio_low = 0.05, clip_ratio_high = 0.05, clip_ratio_c = 1.25",
    ]
    .map(|gate| Recipe::from_toml(&format!("gate = {{ {gate} }}\n")).unwrap().gate)
}

fn guards() -> [(Guard, GuardChoice, f32); 3] {
    [
        (Guard::None, GuardChoice::None, 20.0),
        (Guard::Clamp(0.25), GuardChoice::Clamp, 0.25),
        (Guard::StraightThrough(0.25), GuardChoice::StraightThrough, 0.25),
    ]
}

fn estimators() -> Vec<Option<(Kl, KlChoice)>> {
    let names = [
        (KlFormula::K1, KlEstimator::K1),
        (KlFormula::Abs, KlEstimator::Abs),
        (KlFormula::K2, KlEstimator::K2),
        (KlFormula::K3, KlEstimator::K3),
    ];
    let mut all = vec![None];
    for (formula, estimator) in names {
        for straight_through in [false, true] {
            for (clamp_in, clamp_out) in [(None, None), (Some(0.5f32), None), (None, Some(0.03125f32))] {
                let [wide_in, wide_out] = [clamp_in, clamp_out].map(|c| c.map_or(f64::INFINITY, f64::from));
                let oracle =
                    Kl { estimator: formula, clamp_in: wide_in, clamp_out: wide_out, straight_through };
                let choice = KlChoice {
                    estimator,
                    coef: BETA,
                    clamp_in,
                    clamp_out,
                    straight_through,
                    importance_weighted: KlWeighting::None,
                    ratio: KlRatio::Token,
                    place: KlPlace::Loss,
                };
                all.push(Some((oracle, choice)));
            }
        }
    }
    all
}

const MODES: [(AggregationMode, Mode); 5] = [
    (AggregationMode::TokenMean, Mode::TokenMean),
    (AggregationMode::TokenSum, Mode::TokenSum),
    (AggregationMode::SeqMeanTokenSum, Mode::SeqMeanTokenSum),
    (AggregationMode::SeqMeanTokenMean, Mode::SeqMeanTokenMean { at_least_one: false }),
    (AggregationMode::SeqMeanTokenSumNorm, Mode::SeqMeanTokenSumNorm { horizon: 100.0 }),
];

/// Compares Lockstep's coefficients for `data` under `recipe` with differences of `oracle`.
fn check(device: &Device, data: &Data, recipe: &Recipe, oracle: &PolicyLoss, mode: Mode) -> Compared {
    let advantage = Credit::per_token(data.element[slot::ADVANTAGE].clone());
    let credit = Credit { weights: Some(data.element[slot::WEIGHTS].clone()), ..advantage };
    let rollouts = Rollouts { logp_ref: Some(&data.element[slot::LOGP_REF]), ..input(data) };
    let mut out = Loss::default();
    recipe.loss_into(device, &rollouts, &credit, Outputs::COEF, &mut out).unwrap();
    let coef = out.policy.coef;

    let lengths: Vec<usize> = (0..data.rows()).map(|row| data.members(row).len()).collect();
    let whole = Denominators {
        tokens: lengths.iter().sum::<usize>() as f64,
        sequences: lengths.iter().filter(|n| **n > 0).count() as f64,
    };
    let mut compared = Compared::default();
    for (row, length) in lengths.into_iter().enumerate() {
        let weight = mode.weight(length, whole);
        for i in data.span(row) {
            if !data.live(i) {
                assert_eq!(coef[i], 0.0);
                continue;
            }
            let t = token(data, i);
            if oracle.distance_to_kink(&t) < KINK {
                continue;
            }
            let want = slope(|step| oracle.moved(&t, step));
            compared.add(coef[i], weight * want, want == 0.0 && t.advantage * t.weight != 0.0);
        }
    }
    compared.check(&recipe.name, 200, 0);
    compared
}

#[test]
fn every_gate_guard_aggregation_and_kl() {
    let device = Device::cpu();
    let (mut combinations, mut compared, mut flat) = (0, 0, 0);
    for (k, gate) in gates().into_iter().enumerate() {
        for (guard, choice, bound) in guards() {
            for kl in estimators() {
                for (name, mode) in MODES {
                    let label = format!("{gate:?} {guard:?} {kl:?} {mode:?}");
                    let builder = Recipe::builder(&label).gate(gate);
                    let mut builder = builder.guard(choice, bound).aggregation(name);
                    if let Mode::SeqMeanTokenSumNorm { horizon } = mode {
                        builder = builder.horizon(horizon);
                    }
                    if let Some((_, choice)) = kl {
                        builder = builder.kl(choice);
                    }
                    let oracle = PolicyLoss {
                        guard,
                        log_max: None,
                        gate: oracle_gate(&gate),
                        kl: kl.map(|(kl, _)| (kl, BETA.into())),
                    };
                    let recipe = builder.build().unwrap();
                    let found = check(&device, &data(k as u64), &recipe, &oracle, mode);
                    combinations += 1;
                    (compared, flat) = (compared + found.count, flat + found.flat);
                }
            }
        }
    }
    println!("{combinations} combinations, {compared} tokens, {flat} of them clipped or clamped");
    assert_eq!(combinations, 9 * 3 * 25 * 5);
    // One combination in 25 has no KL term, whose own gradient would hide a clip.
    assert!(flat * 130 > compared, "the clips must be among what is compared");
}

#[test]
fn length_guard_at_least_one() {
    // TRL's preset, except for its count of sequences, which includes the empty ones.
    let mut recipe = Recipe::named("trl_sapo").unwrap();
    assert_eq!(recipe.aggregation.length, LengthGuard::AtLeastOne);
    recipe.aggregation.sequences = CountedSequences::Nonempty;
    let data = data(77);
    let sapo = Sapo { tau_pos: 1.0, tau_neg: f64::from(1.05f32) };
    let oracle = PolicyLoss { guard: Guard::None, log_max: None, gate: Gate::Sapo(sapo), kl: None };
    let mode = Mode::SeqMeanTokenMean { at_least_one: true };
    check(&Device::cpu(), &data, &recipe, &oracle, mode);
}

/// GSPO has one term per sequence, L = −(1/N₊) Σ_i min(s_i A_i, clip(s_i) A_i): the test takes its
/// differences, not those of a token form.
#[test]
fn gspo_is_the_gradient_of_one_term_a_sequence() {
    let data = data(41);
    let (low, high) = (0.05f32, 0.08f32);
    let recipe = Recipe::named("gspo").unwrap().rebuild("wide").ppo_clip(low, high, None).build().unwrap();
    let (logp, logp_old) = (&data.element[slot::LOGP], &data.element[slot::LOGP_OLD]);
    let advantage = &data.row[0];
    let coef = recipe.loss(&Device::cpu(), &input(&data), &credit(&data)).unwrap().policy.coef;

    let nonempty = (0..data.rows()).filter(|row| !data.members(*row).is_empty()).count() as f64;
    let term = |row: usize, moved: usize, step: f64| {
        let live = data.members(row);
        let d = |i: usize| f64::from(logp[i]) - f64::from(logp_old[i]) + if i == moved { step } else { 0.0 };
        let s = (live.iter().map(|i| d(*i)).sum::<f64>() / live.len() as f64).exp();
        let a = f64::from(advantage[row]);
        let clipped = s.clamp(1.0 - f64::from(low), 1.0 + f64::from(high));
        -(s * a).min(clipped * a) / nonempty
    };
    let mut compared = Compared::default();
    for row in 0..data.rows() {
        for i in data.members(row) {
            let flat = coef[i] == 0.0 && advantage[row] != 0.0;
            compared.add(coef[i], slope(|step| term(row, i, step)), flat);
        }
    }
    compared.check("gspo", 200, 21);
}
