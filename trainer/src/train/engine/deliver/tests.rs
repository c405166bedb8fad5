//! The engine at work under every schedule.

use super::*;
use crate::model::{Model, round_to_bf16};
use crate::policy::{Pass, Sequence};
use crate::routing::{Mode, Record, Routing};

const R3: Option<Routing> = Some(Routing { mode: Mode::R3, balance: 0.0 });

fn trainer(name: &str, settings: Asynchronous, routing: Option<Routing>) -> Trainer {
    Trainer::small(name, "grpo", |config| {
        (config.rl.prompts, config.rl.group) = (6, 3);
        (config.asynchronous, config.routing) = (Some(settings), routing);
        if routing.is_some() {
            (config.model.experts, config.model.top_k) = (4, 1);
        }
    })
}

/// Policies that have nothing in common: a token's log-probability says which one sampled it.
fn weights(trainer: &Trainer, step: u64) -> Weights {
    trainer.config().model.init(100 + step)
}

/// The groups of each step.
fn delivered(
    settings: Asynchronous,
    routing: Option<Routing>,
    steps: u64,
) -> (Trainer, State, Vec<Vec<Group>>) {
    let trainer = trainer("addition:2", settings, routing);
    let mut state = State::new(trainer.config());
    let mut step = |step| {
        state.weights = weights(&trainer, step);
        let groups = trainer.deliver(&mut state, &settings, step).unwrap();
        trainer.meanwhile(&mut state, &settings, step).unwrap();
        groups
    };
    let groups = (0..steps).map(&mut step).collect();
    (trainer, state, groups)
}

fn responses(groups: &[Group]) -> impl Iterator<Item = (&Group, &Response)> {
    groups.iter().flat_map(|group| group.responses.iter().map(move |response| (group, response)))
}

#[test]
fn every_token_has_the_version_that_sampled_it() {
    for schedule in [Schedule::April, Schedule::Areal] {
        let settings = Asynchronous { train_time: 20.0, ..Asynchronous::new(schedule) };
        let (trainer, _, steps) = delivered(settings, None, 6);
        let mut stitched = 0;
        for (step, groups) in (0..).zip(&steps) {
            assert_eq!(groups.len(), 6);
            for (group, response) in responses(groups) {
                let versions = &response.versions;
                assert!(versions.is_sorted() && versions.iter().all(|version| *version <= step));
                stitched += usize::from(versions.first() != versions.last());
                for version in 0..=step {
                    let logp = trainer.in_one_pass(&weights(&trainer, version), group, response);
                    for (t, (engine, own)) in response.logp.iter().zip(&logp).enumerate() {
                        let same = (engine - own).abs() < 1e-4;
                        assert!(same || versions[t] != version, "token {t} of step {step}");
                    }
                }
            }
        }
        assert!(stitched >= 5, "{schedule:?}: {stitched}");
    }
}

/// New weights arrive in the middle of a result.
#[test]
fn a_tool_finishes_what_it_writes() {
    let trainer = trainer("calculator:2", Asynchronous::new(Schedule::Areal), None);
    let State { weights, .. } = State::new(trainer.config());
    let mut member = Member::new(0.0, 1.0);
    member.tokens = trainer.vocab.encode("[34*57]19").unwrap();
    (member.logp, member.versions) = (vec![-1.0; 9], vec![0; 9]);
    let problem = Problem { prompt: "34*57+21=".into(), solution: String::new(), answer: "1959".into() };
    let mut flights = vec![Flight { step: 0, row: 0, version: None, problem, members: vec![member] }];
    trainer.sample_flights(&mut flights, &weights, 1).unwrap();
    let Member { tokens, versions, .. } = &flights[0].members[0];
    assert!(trainer.vocab.decode(tokens).starts_with("[34*57]1938 "));
    assert!(versions[..9] == [0; 9] && versions[9..].iter().all(|version| *version == 1));
    assert!(versions.len() == tokens.len() && tokens.len() > 12);
}

/// The queue throws nothing away: it waits.
#[test]
fn nothing_is_older_than_the_bound() {
    use Schedule::{April, Areal, Ssp};
    for (schedule, staleness) in [(Areal, 0), (Areal, 2), (April, 1), (Ssp, 0), (Ssp, 2)] {
        let settings = Asynchronous {
            staleness: Some(staleness),
            train_time: 20.0,
            tail: 1.5,
            ..Asynchronous::new(schedule)
        };
        let (_, state, steps) = delivered(settings, None, 8);
        let age = |(step, groups): (u64, &Vec<Group>)| {
            responses(groups).flat_map(|(_, r)| r.versions.clone()).map(|v| step - v).max().unwrap()
        };
        let oldest = (0..).zip(&steps).map(age).max().unwrap();
        assert_eq!(oldest, u64::from(staleness), "{schedule:?}");
        assert_eq!(state.engine.thrown > 0, staleness > 0 && schedule != Ssp, "{schedule:?} {staleness}");
    }
}

/// The route of a token is that of the policy that sampled the next one, and what replays it takes that one.
#[test]
fn routes_are_stitched() {
    for schedule in [Schedule::April, Schedule::Areal] {
        let settings = Asynchronous { train_time: 20.0, ..Asynchronous::new(schedule) };
        let (trainer, _, steps) = delivered(settings, R3, 6);
        let shape = &trainer.config().model;
        let manner = trainer.config().engine_manner();
        // Of tokens that the two policies route differently: with the route of the one that sampled, and not.
        let (mut own, mut other) = (0, 0);
        for (group, response) in steps.iter().flat_map(|groups| responses(groups)) {
            let prompt = trainer.vocab.encode(&group.problem.prompt).unwrap();
            let (first, tokens) = (prompt.len() - 1, response.tokens.len());
            let sequence = Sequence { prompt, response: response.tokens.clone() };
            let record = response.routed.as_ref().unwrap();
            assert_eq!(record.trace.tokens(), first + 1 + tokens);
            let under = |version: u64| {
                let weights = round_to_bf16(&weights(&trainer, version));
                let model = Model::frozen(shape, &weights).unwrap().run_as(manner).unwrap();
                Pass::new(&model, std::slice::from_ref(&sequence)).unwrap().routed.remove(0)
            };
            let versions = &response.versions;
            let ends = [versions[0], versions[tokens - 1]].map(under);
            for t in 0..tokens {
                let of = |record: &Record| {
                    let view = record.trace.view();
                    view.at(view.position(first + t))
                };
                let [old, new] = ends.each_ref().map(of);
                if old != new && (versions[t] == versions[0] || versions[t] == versions[tokens - 1]) {
                    let expected = if versions[t] == versions[0] { old } else { new };
                    if of(record) == expected { own += 1 } else { other += 1 }
                }
            }
        }
        // Rounding may turn a close choice round.
        assert!(own > 50 && other * 50 < own, "{schedule:?}: {own} {other}");
    }
}

/// A queued response has one policy, that of the step in which it began; each group comes once.
#[test]
fn a_queued_response_has_one_policy() {
    let settings = Asynchronous { train_time: 20.0, ..Asynchronous::new(Schedule::Ssp) };
    let (trainer, _, steps) = delivered(settings, None, 6);
    let (mut behind, mut seen) = (0, Vec::new());
    for (step, groups) in (0..).zip(&steps) {
        assert_eq!(groups.len(), 6);
        for (group, response) in responses(groups) {
            let version = response.versions[0];
            assert!(response.versions.iter().all(|own| *own == version) && version <= step);
            behind += usize::from(version < step);
            let logp = trainer.in_one_pass(&weights(&trainer, version), group, response);
            let near = |(engine, own): (&f32, &f32)| (engine - own).abs() < 1e-4;
            assert!(response.logp.iter().zip(&logp).all(near), "step {step}");
            seen.push((version, group.row));
        }
    }
    assert!(behind >= 5, "{behind}");
    seen.dedup();
    let handed = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((handed, seen.len()), (36, 36));
}

/// What is under way is in the checkpoint, with every bit.
#[test]
fn the_engine_survives_a_checkpoint() {
    for schedule in [Schedule::Areal, Schedule::Ssp] {
        let settings = Asynchronous::new(schedule);
        let (trainer, mut state, _) = delivered(settings, R3, 3);
        assert!(state.engine.flights.iter().all(|flight| flight.members[0].routed.is_some()));
        assert!(!state.engine.flights.is_empty());
        let bytes = state.to_bytes(trainer.config()).unwrap();
        let (_, mut again) = State::from_bytes(&bytes).unwrap();
        assert_eq!(again, state);
        for step in 3..5 {
            for state in [&mut state, &mut again] {
                state.weights = weights(&trainer, step);
            }
            let groups = trainer.deliver(&mut state, &settings, step).unwrap();
            assert_eq!(trainer.deliver(&mut again, &settings, step).unwrap(), groups);
        }
    }
}

/// A fuller engine wastes less: the other schedules hand over more tokens in the same time than the one
/// that waits, the more so the longer the tail.
#[test]
fn overlapping_and_stopping_pay() {
    let rate = |schedule, tail| {
        let (_, state, _) = delivered(Asynchronous { tail, ..Asynchronous::new(schedule) }, None, 8);
        state.engine.tokens as f64 / state.engine.clock
    };
    for schedule in [Schedule::April, Schedule::Areal, Schedule::Ssp] {
        let gain = |tail| rate(schedule, tail) / rate(Schedule::Sync, tail);
        assert!(gain(1.5) > gain(0.5) && gain(1.5) > 1.2, "{schedule:?} {} {}", gain(1.5), gain(0.5));
    }
}
