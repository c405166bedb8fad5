//! Self-play: the policy plays both roles of a game. A group has the responses of one role to one deal; the
//! two roles of a deal are groups next to each other, over the same episodes. (In a group of both roles every
//! mean reward would be 0.)

use anyhow::Result;

use super::group::{Group, Response};
use super::state::State;
use super::trainer::Trainer;
use crate::model::{Model, Weights};
use crate::policy::{Pass, Sampled, Sequence, greedy, sample};
use crate::random::{Phase, Stream};
use crate::task::{Game, Problem};
use crate::vocab::END;

impl Trainer {
    /// A deal, as the problems of both roles.
    pub(super) fn deal(&self, game: Game, phase: Phase, step: u64, row: u64) -> [Problem; 2] {
        let mut stream = Stream::new(self.config().seed, phase, step, row);
        game.deal(&mut |n| stream.below(n))
    }

    /// Plays the games of a round; `first` is the index in its step of the round's first prompt.
    pub(super) fn play_groups(&self, state: &State, game: Game, step: u64, first: u64) -> Result<Vec<Group>> {
        let size = self.group_size();
        let rows = first / 2..first / 2 + self.config().rl.prompts as u64 / 2;
        let deals: Vec<_> = rows.map(|row| self.deal(game, Phase::RlProblems, step, row)).collect();
        let asked: Vec<_> = deals.iter().flat_map(|deal| std::iter::repeat_n(deal.clone(), size)).collect();
        let played =
            self.play(&state.weights, game, &asked, Phase::Rollout, step, first / 2 * size as u64)?;
        let mut groups = Vec::new();
        for (deal, episodes) in deals.iter().zip(played.chunks(size)) {
            for (role, problem) in deal.iter().enumerate() {
                let own: Vec<Sampled> = episodes.iter().map(|episode| episode[role].clone()).collect();
                let rewards = self.rewards(&vec![problem; size], &own);
                let responses = own.into_iter().zip(rewards).map(|(own, reward)| Response::new(own, reward));
                groups.push(Group {
                    row: first + groups.len() as u64,
                    problem: problem.clone(),
                    responses: responses.collect(),
                    baseline: 0.0,
                });
            }
        }
        Ok(groups)
    }

    /// Plays each deal once, every move at temperature 1; the first deal uses the random stream of row
    /// `first`. Returns the responses of both roles.
    pub(super) fn play(
        &self,
        weights: &Weights,
        game: Game,
        deals: &[[Problem; 2]],
        phase: Phase,
        step: u64,
        first: u64,
    ) -> Result<Vec<[Sampled; 2]>> {
        let engine = self.engine(weights)?;
        self.play_by(&engine, game, deals, |asked, episodes, turn| {
            let stream = |row: u64| {
                let row = first + episodes[row as usize] as u64;
                Stream::new(self.config().seed, phase, step, row).after(turn)
            };
            sample(&engine, asked, 1, stream)
        })
    }

    /// Plays the deals of groups with the most probable moves. Returns a response for each group.
    pub(super) fn play_greedily(
        &self,
        weights: &Weights,
        game: Game,
        problems: &[&Problem],
    ) -> Result<Vec<Sampled>> {
        let deals: Vec<[Problem; 2]> =
            problems.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
        let engine = self.engine(weights)?;
        let played =
            self.play_by(&engine, game, &deals, |asked, _, _| greedy(&engine, asked, 1, &|_| None))?;
        Ok(played.into_iter().flatten().collect())
    }

    /// Plays all deals at once, a move a turn. `choose` gets what the players to move read, the indices of
    /// their deals and the number of the turn.
    fn play_by(
        &self,
        engine: &Model,
        game: Game,
        deals: &[[Problem; 2]],
        choose: impl Fn(&[Vec<u32>], &[usize], usize) -> Result<Vec<Sampled>>,
    ) -> Result<Vec<[Sampled; 2]>> {
        let mut sequences = Vec::new();
        for problem in deals.iter().flatten() {
            sequences.push(Sequence { prompt: self.vocab.encode(&problem.prompt)?, response: Vec::new() });
        }
        let mut chosen = vec![Vec::new(); deals.len()];
        for turn in 0.. {
            let is_over =
                |moves: &[u32]| moves.last() == Some(&END) || game.is_over(&self.vocab.decode(moves));
            let open: Vec<usize> =
                (0..deals.len()).filter(|at| !is_over(&sequences[2 * at].response)).collect();
            if open.is_empty() {
                break;
            }
            let mover = |at: &usize| &sequences[2 * at + turn % 2];
            let asked: Vec<Vec<u32>> =
                open.iter().map(mover).map(|s| [&s.prompt[..], &s.response].concat()).collect();
            for (at, sampled) in open.iter().zip(choose(&asked, &open, turn)?) {
                chosen[*at].push(sampled.logp[0]);
                sequences[2 * at..2 * at + 2].iter_mut().for_each(|s| s.response.push(sampled.response[0]));
            }
        }
        for sequence in sequences.iter_mut().filter(|s| s.response.last() != Some(&END)) {
            sequence.response.push(END);
        }
        // The engine reads what the other player did, too.
        let pass = Pass::new(engine, &sequences)?;
        let (mut read, mut routed) = (&pass.logp[..], pass.routed.into_iter());
        let mut played = sequences.into_iter().enumerate().map(|(i, Sequence { response, .. })| {
            let (own, rest) = read.split_at(response.len());
            read = rest;
            let mut logp = own.to_vec();
            for (turn, own) in chosen[i / 2].iter().enumerate().filter(|(turn, _)| turn % 2 == i % 2) {
                logp[turn] = *own;
            }
            Sampled { response, logp, routed: routed.next() }
        });
        let mut episodes = Vec::new();
        while let (Some(one), Some(other)) = (played.next(), played.next()) {
            episodes.push([one, other]);
        }
        Ok(episodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_is_the_same_moves_for_both_roles() {
        for (task, game) in [("kuhn", Game::Kuhn), ("tictactoe", Game::TicTacToe)] {
            let trainer = Trainer::small(task, "spiral", |config| {
                (config.rl.prompts, config.rl.group, config.rl.minibatches) = (6, 5, 2);
            });
            let state = State::new(trainer.config());
            let groups = trainer.play_groups(&state, game, 3, 6).unwrap();
            assert_eq!(groups.iter().map(|group| group.row).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11]);
            for pair in groups.chunks(2) {
                assert_eq!([0, 1].map(|role| Game::role(&pair[role].problem.prompt)), [0, 1]);
                for (one, other) in pair[0].responses.iter().zip(&pair[1].responses) {
                    assert_eq!((&one.tokens, one.reward), (&other.tokens, -other.reward));
                    assert_eq!(one.tokens.last(), Some(&END));
                }
                for group in pair {
                    for response in &group.responses {
                        let logp = trainer.in_one_pass(&state.weights, group, response);
                        let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-4;
                        assert!(logp.len() == response.logp.len());
                        assert!(!logp.iter().zip(&response.logp).any(far), "{logp:?} {response:?}");
                    }
                }
            }
            assert_ne!(groups[0].responses, groups[2].responses);
        }
    }
}
