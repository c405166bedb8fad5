//! Routing replay in the trainer: replay keeps its promises, and the model without it is unchanged.
#![cfg(feature = "model")]

mod killed;
mod small;

use std::path::Path;
use std::process::Command;

use killed::{killed, moved};
use lockstep::routing::{RoutingTrace, mismatch};
use lockstep_trainer::config::Config;
use lockstep_trainer::model::{Manner, Model, Precision, Shape, Weights, round_to_bf16};
use lockstep_trainer::policy::{Further, Pass, Sequence, sample};
use lockstep_trainer::random::{Phase, Stream};
use lockstep_trainer::routing::{Mode, Record, Routing, balance, compare};
use lockstep_trainer::train::{RlRecord, RlStep, State, Trainer, read};
use small::{gradients_agree, sequences, shape};

const ROUTED: Manner = Manner { lockstep_router: true, precision: Precision::F32 };

fn frozen(weights: &Weights, manner: Manner) -> Model {
    Model::frozen(&shape(), weights).unwrap().run_as(manner).unwrap()
}

/// The records of a pass that replays nothing.
fn records(weights: &Weights) -> Vec<Record> {
    Pass::new(&frozen(weights, ROUTED), &sequences()).unwrap().routed
}

/// Lockstep's router and candle's compute the same function.
#[test]
fn the_two_routers_agree_to_rounding() {
    let weights = shape().init(1);
    let models = [Manner::default(), ROUTED].map(|manner| frozen(&weights, manner));
    let [own, routed] = models.each_ref().map(|model| Pass::new(model, &sequences()).unwrap());
    assert!(own.routed.is_empty());
    for (own, routed) in own.logp.iter().zip(&routed.logp) {
        assert!((own - routed).abs() < 1e-5, "{own} {routed}");
    }
}

/// Every token fed to the model has a record in every layer, the last one none; padding of another shard
/// changes nothing.
#[test]
fn records_cover_what_is_read() {
    let weights = shape().init(2);
    for (record, s) in records(&weights).iter().zip(sequences()) {
        let tokens = s.prompt.len() + s.response.len();
        assert_eq!(record.trace.tokens(), tokens);
        assert_eq!(record.trace.view().validate(tokens, 8), Ok((tokens - 1) * 2));
        let model = frozen(&weights, ROUTED);
        assert_eq!(Pass::new(&model, &[s]).unwrap().routed[0].trace, record.trace);
        assert_eq!(record.gates.len(), tokens * 2 * 2);
        let sums = record.gates.chunks(2).map(|gates| gates.iter().sum::<f32>());
        for (i, sum) in sums.enumerate() {
            let expected = if i < (tokens - 1) * 2 { 1.0 } else { 0.0 };
            assert!((sum - expected).abs() < 1e-6, "{i}: {sum}");
        }
    }
}

/// Replaying a pass's own choice changes no bit: R2 in the first update.
#[test]
fn replaying_the_own_choice_changes_no_bit() {
    let weights = shape().init(3);
    let model = frozen(&weights, ROUTED);
    let own = Pass::new(&model, &sequences()).unwrap();
    let again = Pass::run(&model, &sequences(), Some(&own.routed.iter().collect::<Vec<_>>()), false).unwrap();
    assert_eq!((&own.logp, &own.routed, own.replayed), (&again.logp, &again.routed, 0));
    let rows: usize = sequences().iter().map(|s| 2 * (s.prompt.len() + s.response.len() - 1)).sum();
    assert_eq!(again.replayed, rows, "padding is not replayed");
}

/// The trainer replays what the engine ran through its cache, step by step, even where its own choice
/// differs.
#[test]
fn the_rollout_is_replayed() {
    let weights = shape().init(4);
    let engine = frozen(&round_to_bf16(&weights), Manner { precision: Precision::Bf16, ..ROUTED });
    let prompts: Vec<Vec<u32>> = (0..40).map(|i| vec![1 + i % 6, 1 + i / 7, 3]).collect();
    let sampled = sample(&engine, &prompts, 9, |row| Stream::new(1, Phase::Rollout, 0, row)).unwrap();
    let sequences: Vec<Sequence> = prompts
        .iter()
        .zip(&sampled)
        .map(|(p, s)| Sequence { prompt: p.clone(), response: s.response.clone() })
        .collect();
    let engine: Vec<&Record> = sampled.iter().map(|s| s.routed.as_ref().unwrap()).collect();
    let model = frozen(&weights, ROUTED);
    let free = Pass::new(&model, &sequences).unwrap();
    let replayed = Pass::run(&model, &sequences, Some(&engine), false).unwrap();
    let pack = |records: Vec<&Record>| Record::concat(&shape(), records).unwrap();
    let (engine, free) = (pack(engine), pack(free.routed.iter().collect()));
    let again = pack(replayed.routed.iter().collect());
    let without = compare(&shape(), &engine, &free, &free).unwrap();
    assert!(without.differ > 0.0 && without.differ < 0.5 && without.replay_kl > 0.0, "{without:?}");
    assert!(without.tokens_differ >= without.differ && without.overlap < 1.0, "{without:?}");
    let with = compare(&shape(), &engine, &again, &again).unwrap();
    assert_eq!((with.differ, with.tokens_differ, with.overlap, with.differ_old), (0.0, 0.0, 1.0, 0.0));
    assert_eq!(with.routers, without.routers);
    assert_eq!(mismatch(&engine.trace.view(), &again.trace.view()).unwrap().differing, 0);
    // The gates are the live ones: close to the engine's, but not equal.
    assert!(with.gate_kl > 0.0 && with.gate_kl < 0.01, "{with:?}");
    // A trace of other sequences is refused, not truncated to fit.
    let few: Vec<&Record> = sampled[..3].iter().map(|s| s.routed.as_ref().unwrap()).collect();
    assert!(Pass::run(&model, &sequences, Some(&few), false).is_err());
    let own = frozen(&weights, Manner::default());
    assert!(Pass::run(&own, &sequences[..3], Some(&few), false).is_err(), "candle's router cannot replay");
}

/// sum(logp · c) + sum(scores · d), in binary64.
fn objective(weights: &Weights, replay: &[&Record], c: &[f32], d: &[f32]) -> f64 {
    let model = frozen(weights, ROUTED);
    let pass = Pass::run(&model, &sequences(), Some(replay), false).unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let scores = Record::concat(&shape(), &pass.routed).unwrap().scores;
    dot(&pass.logp, c) + dot(&scores, d)
}

/// The gradient of the layer with Lockstep's router, replaying another policy's choice, against central
/// differences in every tensor, including the routers; with and without a gradient entering at the scores.
#[test]
fn gradients_agree_with_differences_under_replay() {
    let weights = shape().init(5);
    let other = records(&shape().init(6));
    let replay: Vec<&Record> = other.iter().collect();
    let model = Model::trainable(&shape(), &weights).unwrap().run_as(ROUTED).unwrap();
    let pass = Pass::run(&model, &sequences(), Some(&replay), false).unwrap();
    let c: Vec<f32> = (0..pass.logp.len()).map(|i| [0.5, -1.0, 0.25][i % 3]).collect();
    let scores: usize = pass.routed.iter().map(|record| record.scores.len()).sum();
    for d in [vec![0.0; scores], (0..scores).map(|i| [0.02, -0.03, 0.01, 0.0, 0.05][i % 5]).collect()] {
        let grads = pass.gradients_with(&c, &Further { scores: Some(&d), ..Further::default() }).unwrap().sum;
        if d[0] == 0.0 {
            assert_eq!(grads, pass.gradients(&c).unwrap());
        }
        gradients_agree(&weights, &grads, |weights| objective(weights, &replay, &c, &d));
    }
}

/// The load-balance loss is 1 for even scores, larger for uneven ones, and a step against its gradient lowers
/// it.
#[test]
fn the_load_balance_loss_goes_down() {
    let mut weights = shape().init(7);
    // A router that prefers expert 0.
    let router = weights.iter_mut().find(|w| w.name == "layer1.moe.router").unwrap();
    router.values.iter_mut().step_by(8).for_each(|w| *w += 1.0);
    let loss = |weights: &Weights| {
        let record = Record::concat(&shape(), &records(weights)).unwrap();
        balance(&shape(), &record, 1.0).unwrap()
    };
    let before = loss(&weights);
    assert!(before.loss > 1.01, "{}", before.loss);
    let model = Model::trainable(&shape(), &weights).unwrap().run_as(ROUTED).unwrap();
    let pass = Pass::new(&model, &sequences()).unwrap();
    let further = Further { scores: Some(&before.gradient), ..Further::default() };
    let grads = pass.gradients_with(&vec![0.0; pass.logp.len()], &further).unwrap().sum;
    for (weight, grad) in weights.iter_mut().zip(&grads) {
        weight.values.iter_mut().zip(grad).for_each(|(w, g)| *w -= 0.01 * g);
    }
    assert!(loss(&weights).loss < before.loss);
}

/// Steps of a small run whose initial policy is the same for all modes.
fn steps(routing: Option<Mode>, precision: Precision) -> (Vec<RlRecord>, Option<RoutingTrace>, State) {
    let mut config = Config::new("addition:1", "dapo").unwrap();
    config.model = Shape { layers: 2, width: 16, hidden: 16, ..config.model };
    (config.rl.prompts, config.rl.keep, config.rl.group, config.rl.minibatches) = (6, 6, 4, 3);
    (config.rl.rate, config.measure.problems) = (0.02, 4);
    config.routing = routing.map(|mode| Routing { mode, balance: 0.01 });
    config.precision.rollout = precision;
    config.check().unwrap();
    let trainer = Trainer::on_cpu(config).unwrap();
    let mut state = State::new(trainer.config());
    state.progress.warm_done = true;
    state.reference = Some(state.weights.clone());
    let mut done = Vec::new();
    let mut trace = None;
    for _ in 0..3 {
        let RlStep { record, routing, .. } = trainer.rl_step(&mut state, drop).unwrap();
        done.push(record);
        trace = routing;
    }
    (done, trace, state)
}

/// Each mode keeps its promise in every step, with a bf16 rollout and several updates per batch.
#[test]
fn each_mode_runs_the_experts_that_it_promises() {
    let routing = |mode| -> Vec<_> {
        steps(Some(mode), Precision::Bf16).0.into_iter().map(|r| r.routing.unwrap()).collect()
    };
    let none = routing(Mode::None);
    assert!(none.iter().all(|m| m.replayed == 0 && m.differ == m.differ_live));
    assert!(none.iter().any(|m| m.differ > 0.0 && m.differ_old > 0.0), "{none:?}");
    let r2 = routing(Mode::R2);
    assert!(r2.iter().all(|m| m.differ_old == 0.0 && m.replayed == m.routers), "{r2:?}");
    assert!(r2.iter().any(|m| m.differ > 0.0), "the engine is not the old policy: {r2:?}");
    let r3 = routing(Mode::R3);
    for m in &r3 {
        assert_eq!((m.differ, m.tokens_differ, m.layers_per_token, m.overlap), (0.0, 0.0, 0.0, 1.0));
        assert_eq!(m.replayed, 2 * m.routers, "in the pass of the old policy and in the updates");
        assert!(m.balance > 0.0 && m.gap_old > 0.0);
    }
    assert!(r3.iter().any(|m| m.differ_live > 0.0), "replay had something to do: {r3:?}");
    // The first rollout is the same for all modes.
    assert_eq!(none[0].routers, r3[0].routers);
    assert_eq!(none[0].gap_old, r2[0].gap_old);
}

/// Unless routing is requested nothing is recorded, not even in the metrics; at full precision the engine
/// differs from the trainer only by its cache.
#[test]
fn nothing_is_recorded_unless_asked() {
    let (records, trace, _) = steps(None, Precision::Bf16Weights);
    assert!(trace.is_none() && records.iter().all(|r| r.routing.is_none()));
    let line = serde_json::to_string(&records[0]).unwrap();
    assert!(!line.contains("routing"), "{line}");
    let (records, trace, _) = steps(Some(Mode::R3), Precision::F32);
    assert!(trace.unwrap().tokens() > 0);
    assert!(records.iter().all(|r| r.routing.as_ref().unwrap().gap_old < 1e-4));
}

fn lockstep(folder: &Path, arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const SIZES: &str = "--task addition:1 --seed 3 --prompts 4 --group 4 --minibatches 2 --warm-steps 2 \
                     --warm-updates 2 --measure 4 --layers 1 --width 16 --routing r3 --rollout-precision \
                     bf16 --balance 0.01 --threads 1 --flip-rewards 0.3";

/// A run with replay that is interrupted and resumed has the bits of an uninterrupted one; its dumped traces
/// load, and its report shows them.
#[test]
fn runs_with_replay_resume_and_report() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    lockstep(at, &format!("train {SIZES} --steps 3 --out whole --dump-rollouts dump"));
    assert!(moved(&at.join("whole")) >= 2);
    killed(&format!("{SIZES} --steps 3"), &at.join("killed"), 3);
    lockstep(at, "train --resume killed --routing r3");
    for name in ["checkpoint.safetensors", "metrics.jsonl"] {
        let of = |run: &str| std::fs::read(at.join(run).join(name)).unwrap();
        assert_eq!(of("whole"), of("killed"), "{name}");
    }
    assert_eq!(read(&at.join("whole")).unwrap().len(), 5);
    let report = std::fs::read_to_string(at.join("whole/report.html")).unwrap();
    for text in ["<h2>Routing</h2>", "Routing: KL of gates", "router rows replayed", "layer by layer"] {
        assert!(report.contains(text), "{text}");
    }
    let trace = std::fs::read(at.join("dump/routing-000003.safetensors")).unwrap();
    let trace = RoutingTrace::from_safetensors(&trace).unwrap();
    assert_eq!((trace.layers(), trace.top_k(), trace.experts()), (1, 2, 8));
    assert!(trace.tokens() > 0);
}
