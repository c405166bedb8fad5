use std::sync::LazyLock;

use super::*;
use crate::threads::on_pool;
use crate::train::group::{Group, Response};
use crate::train::memory::Memory;
use crate::train::record::RlRecord;
use crate::vocab::END;

fn trainer(sampler: Sampler, look_ahead: Option<u32>) -> Trainer {
    Trainer::small("addition:1", "grpo", |config| {
        config.model.hidden = 16;
        (config.rl.prompts, config.rl.minibatches, config.rl.steps) = (16, 2, 4);
        (config.warm.target, config.warm.updates, config.measure.problems) = (0.2, 2, 4);
        config.sampling = Sampling { sampler, look_ahead, fall_behind: None };
        config.check().unwrap();
    })
}

/// A policy that is right now and then.
static WARM: LazyLock<State> = LazyLock::new(|| {
    let trainer = trainer(Sampler::Plain, None);
    let mut state = State::new(trainer.config());
    while !state.progress.warm_done {
        trainer.warm_step(&mut state, drop).unwrap();
    }
    state
});

fn sampled(trainer: &Trainer, threads: usize, step: u64) -> (Vec<Group>, SamplerRecord) {
    let sample = || {
        let mut record = RlRecord::default();
        let groups = trainer.sample_groups(&mut WARM.clone(), step, 0, &mut record)?;
        Ok((groups, record.sampler.unwrap_or_default()))
    };
    on_pool(Some(threads), sample).unwrap()
}

fn tokens(groups: &[Group]) -> u64 {
    groups.iter().flat_map(|group| &group.responses).map(|response| response.tokens.len() as u64).sum()
}

/// The log-probabilities of a response that is sampled by itself, token by token.
fn alone(engine: &crate::model::Model, prompt: &[u32], response: &[u32]) -> Vec<f32> {
    let (mut cache, mut read) = (engine.cache(1).unwrap(), prompt.to_vec());
    let mut next = |token: &u32| {
        let hidden = engine.hidden(&read, 1, Some(&mut cache), None).unwrap();
        let last = hidden.narrow(0, read.len() - 1, 1).unwrap();
        read = vec![*token];
        engine.log_probs(&last).unwrap().to_vec2::<f32>().unwrap()[0][*token as usize]
    };
    response.iter().map(&mut next).collect()
}

/// Whatever the sampler, a token has the log-probability that the policy gives it after the tokens before it,
/// and threads change no bit. A tree's rollouts have the bits of rollouts by themselves.
#[test]
fn log_probs_are_those_of_the_policy() {
    for (sampler, look_ahead) in
        [(Sampler::Latr, None), (Sampler::Latr, Some(3)), (Sampler::Arrol, None), (Sampler::Scope, None)]
    {
        let trainer = trainer(sampler, look_ahead);
        let (groups, record) = sampled(&trainer, 1, 1);
        assert!((groups.clone(), record) == sampled(&trainer, 2, 1), "{sampler:?}");
        let engine = trainer.engine(&WARM.weights).unwrap();
        for group in &groups {
            let prompt = trainer.vocab.encode(&group.problem.prompt).unwrap();
            for response in &group.responses {
                let (forced, logp) = (trainer.in_one_pass(&WARM.weights, group, response), &response.logp);
                let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-4;
                assert!(forced.len() == logp.len() && !forced.iter().zip(logp).any(far), "{sampler:?}");
                assert!(sampler != Sampler::Latr || alone(&engine, &prompt, &response.tokens) == *logp);
            }
        }
    }
}

/// With a share of 1 a group may be one tree; the later share leaves ordinary rollouts.
#[test]
fn a_tree_fills_its_group() {
    let [(groups, wide), (_, pruned)] =
        [None, Some(3)].map(|age| sampled(&trainer(Sampler::Latr, age), 2, 0));
    assert!(groups.iter().all(|group| group.responses.len() == 8));
    assert!(wide.branches > 8 && wide.pruned == 0 && pruned.pruned > 0, "{wide:?} {pruned:?}");
    assert_eq!(wide.tokens + wide.saved, tokens(&groups));
    // After three quarters of the run the share is 0.4375: at most 4 of 8 are the tree's.
    let (plain, _) = sampled(&trainer(Sampler::Plain, None), 2, 3);
    let (late, _) = sampled(&trainer(Sampler::Latr, None), 2, 3);
    for (late, plain) in late.iter().zip(&plain) {
        let same = |at: usize| late.responses[at].tokens == plain.responses[at].tokens;
        assert!((4..8).all(same), "ordinary rollouts are those of a run without a sampler");
    }
}

/// Half of each group is left, begun as without pruning; what is pruned has no more tokens than the
/// checkpoint.
#[test]
fn pruned_groups_are_halves() {
    let trainer = trainer(Sampler::Arrol, None);
    let (plain, _) = sampled(&super::tests::trainer(Sampler::Plain, None), 2, 0);
    let (groups, record) = sampled(&trainer, 2, 0);
    assert_eq!(record.pruned, 64);
    for (group, plain) in groups.iter().zip(&plain) {
        let begins = |tokens: &[u32]| tokens[..tokens.len().min(6)].to_vec();
        let all: Vec<_> = plain.responses.iter().map(|response| begins(&response.tokens)).collect();
        assert_eq!(group.responses.len(), 4);
        assert!(group.responses.iter().all(|response| all.contains(&begins(&response.tokens))));
    }
    assert!(record.tokens <= tokens(&groups) + 64 * 6 && record.tokens < tokens(&plain));
    let off = (record.tokens + record.saved).abs_diff(tokens(&plain));
    assert!(record.saved > 0 && off < tokens(&plain) / 20, "{record:?}, all: {}", tokens(&plain));
}

/// 2 of 3 right where the working stood right, 0 of 1 where it did not: Beta(3, 2) and Beta(1, 2). The next
/// time the former counts 0.99 · 0.8 of that: 1 + 0.792 · 2 and 1 + 0.792 · 1, plus 1 of 1.
#[test]
fn chances_by_hand() {
    let trainer = trainer(Sampler::Arrol, None);
    let problem = Problem { prompt: "1+2=".into(), solution: "1+2=3 #3".into(), answer: "3".into() };
    let response = |(said, reward): &(&str, f32)| trainer.saying(said, &[END], *reward);
    let group = |said: &[(&str, f32)]| Group {
        row: 0,
        problem: problem.clone(),
        responses: said.iter().map(response).collect(),
        baseline: 0.0,
    };
    let mut memory = Memory::default();
    assert_eq!(memory.chances().map(|chance| chance.mean()), [0.5, 0.5]);
    // The checkpoint is after six tokens: what is said later does not count.
    let said = [("1+2=3 #3", 1.0), ("1+2=4 #4", 0.0), ("1+2=3 #4", 0.0), ("1+2=3 #3", 1.0)];
    trainer.observe_chances(&mut memory, &[group(&said)]).unwrap();
    assert_eq!(memory.chances, [1.0, 2.0, 3.0, 2.0]);
    trainer.observe_chances(&mut memory, &[group(&said[..1])]).unwrap();
    let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-12;
    assert!(memory.chances[2..].iter().zip([3.584, 1.792]).all(near), "{:?}", memory.chances);
}

/// Right rollouts stay, and so do those that are wrong in their first step. The others keep their first step,
/// with its bits; some of them are right then.
#[test]
fn wrong_rollouts_go_on_from_their_first_error() {
    let plain = trainer(Sampler::Plain, None);
    let trainer = trainer(Sampler::Scope, None);
    let (mut salvaged, mut right) = (0, 0);
    for step in 0..12 {
        let (plain, _) = sampled(&plain, 2, step);
        let (groups, record) = sampled(&trainer, 2, step);
        let (mut branches, mut saved, mut anew) = (0, 0, 0);
        for (group, plain) in groups.iter().zip(&plain) {
            for (own, plain) in group.responses.iter().zip(&plain.responses) {
                let steps = trainer.judged_steps(&group.problem, &plain.tokens).unwrap();
                let first: usize =
                    steps.iter().take_while(|(_, right)| *right).map(|(step, _)| step.len()).sum();
                if plain.reward == 1.0 || first == 0 {
                    assert_eq!(own, plain);
                    continue;
                }
                let until = |response: &Response| {
                    (response.tokens[..first].to_vec(), response.logp[..first].to_vec())
                };
                assert_eq!(until(own), until(plain));
                (branches, saved) = (branches + 1, saved + first as u64);
                anew += (own.tokens.len() - first) as u64;
                right += u64::from(own.reward == 1.0);
            }
        }
        let tokens = tokens(&plain) + anew;
        assert_eq!(record, SamplerRecord { tokens, saved, branches, pruned: 0 });
        salvaged += branches;
    }
    assert!(right > 0, "{salvaged} salvaged");
}
