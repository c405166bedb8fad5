//! Measures policies: pass rates by sampling, the exploitability in a game exactly.

use std::collections::HashMap;

use anyhow::Result;
use lockstep::Credit;

use super::group::Group;
use super::trainer::{Trainer, mean};
use crate::model::Weights;
use crate::policy::{Pass, Sequence};
use crate::random::Phase;
use crate::task::{Game, Problem};

/// Training problems, or games, sampled to decide whether the warm start is over.
const WARM_CHECK_PROBLEMS: u64 = 256;

/// Games that are read at once, so that they need little memory.
const SEQUENCES_AT_ONCE: usize = 4096;

impl Trainer {
    fn pass_at_1(&self, weights: &Weights, problems: &[&Problem], phase: Phase, step: u64) -> Result<f64> {
        let rewards = self.rewards(problems, &self.rollouts(weights, problems, phase, step, 0)?);
        Ok(mean(rewards.iter().map(|&r| f64::from(r))))
    }

    /// Held-out pass@1 after RL step `step`, one sample per problem at temperature 1; in a game the
    /// exploitability instead.
    pub(super) fn measure(&self, weights: &Weights, step: u64) -> Result<(Option<f64>, Option<f64>)> {
        if let Some(game) = self.task.game() {
            return Ok((None, Some(self.exploitability(weights, game)?)));
        }
        let problems: Vec<&Problem> = self.held_out.iter().collect();
        Ok((Some(self.pass_at_1(weights, &problems, Phase::Measure, step)?), None))
    }

    /// The fraction of training problems solved after warm-start step `step`; in a game the fraction of games
    /// that are played to the end by the rules.
    pub(super) fn training_pass(&self, weights: &Weights, step: u64) -> Result<f64> {
        if let Some(game) = self.task.game() {
            let deals: Vec<[Problem; 2]> =
                (0..WARM_CHECK_PROBLEMS).map(|row| self.deal(game, Phase::WarmCheck, step, row)).collect();
            let played = self.play(weights, game, &deals, Phase::WarmCheck, step, 0)?;
            let legal = |moves: &[u32]| game.is_by_the_rules(&self.vocab.decode(moves));
            return Ok(mean(played.iter().map(|[one, _]| f64::from(u8::from(legal(&one.response))))));
        }
        let check: Vec<Problem> =
            (0..WARM_CHECK_PROBLEMS).map(|row| self.training_problem(Phase::WarmCheck, step, row)).collect();
        self.pass_at_1(weights, &check.iter().collect::<Vec<_>>(), Phase::WarmCheck, step)
    }

    /// Held-out pass@k at temperature 1, for k = 1, 2, 4, … up to `samples`, from as many samples of every
    /// problem; nothing in a game.
    pub fn pass_at_k(&self, weights: &Weights, samples: usize) -> Result<Vec<f64>> {
        if self.held_out.is_empty() {
            return Ok(Vec::new());
        }
        let problems: Vec<&Problem> =
            self.held_out.iter().flat_map(|p| std::iter::repeat_n(p, samples)).collect();
        let rewards = self.rewards(&problems, &self.rollouts(weights, &problems, Phase::PassAtK, 0, 0)?);
        let ks = (0..32).map(|power| 1 << power).take_while(|k| *k as usize <= samples);
        ks.map(|k| self.algorithm.pass_at_k(&rewards, samples, k)).collect()
    }

    /// How much of the blame for a wrong response its first wrong token has: minus its advantage, over the
    /// mean |advantage| of the response's tokens; 1 where all tokens have the same. The mean over the
    /// responses that are wrong and have advantages; none without such a response. The first wrong token is
    /// the first one that is not the worked solution's.
    pub(super) fn blame(&self, groups: &[Group], credit: &Credit) -> Result<Option<f64>> {
        let (mut at, mut shares) = (0, Vec::new());
        for (s, (group, response)) in
            groups.iter().flat_map(|group| group.responses.iter().map(move |r| (group, r))).enumerate()
        {
            let tokens = at..at + response.tokens.len();
            at = tokens.end;
            let advantage =
                |token: usize| f64::from(credit.advantage[if credit.per_token { token } else { s }]);
            let size = mean(tokens.clone().map(|token| advantage(token).abs()));
            if group.problem.reward(&self.vocab.decode(&response.tokens)) == 1.0 || size == 0.0 {
                continue;
            }
            let worked = self.worked(&group.problem)?;
            let wrong = response.tokens.iter().zip(&worked).position(|(own, right)| own != right);
            // A response that was cut off at the limit may have no wrong token.
            shares.extend(wrong.map(|k| -advantage(tokens.start + k) / size));
        }
        Ok((!shares.is_empty()).then(|| mean(shares.into_iter())))
    }

    /// See [`Game::exploitability`]; the policy is the one that samples.
    fn exploitability(&self, weights: &Weights, game: Game) -> Result<f64> {
        let histories = game.histories();
        let sequence = |(prompt, moves): &(String, String)| {
            Ok(Sequence { prompt: self.vocab.encode(prompt)?, response: self.vocab.encode(moves)? })
        };
        let sequences = histories.iter().map(sequence).collect::<Result<Vec<_>>>()?;
        let engine = self.engine(weights)?;
        let mut logp = Vec::new();
        for part in sequences.chunks(SEQUENCES_AT_ONCE) {
            logp.extend(Pass::new(&engine, part)?.logp);
        }
        let mut logp = logp.into_iter();
        let mut policy = HashMap::new();
        for (prompt, moves) in histories {
            for (end, logp) in (1..=moves.len()).zip(&mut logp) {
                policy.insert(format!("{prompt}{}", &moves[..end]), f64::from(logp).exp());
            }
        }
        Ok(game.exploitability(&|text| policy.get(text).copied().unwrap_or(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::END;

    /// Worked by hand on `1+2=`, whose working is `1+2=3 #3`.
    #[test]
    fn blame_falls_on_the_first_wrong_token() {
        let trainer = Trainer::small("addition:1", "grpo", |_| ());
        let group = |said: &str| {
            let problem = Problem { prompt: "1+2=".into(), solution: "1+2=3 #3".into(), answer: "3".into() };
            Group { row: 0, problem, responses: vec![trainer.saying(said, &[END], 0.0)], baseline: 0.0 }
        };
        let blame = |said: &str, advantage: &[f32]| {
            let credit =
                Credit { advantage: advantage.to_vec(), per_token: advantage.len() > 1, ..Credit::default() };
            trainer.blame(&[group(said)], &credit).unwrap()
        };
        // Token 4, the 4, is wrong: −(−6) over a mean |advantage| of (4·1 + 6 + 4·0 + 0)/9.
        let advantage = [1.0, -1.0, 1.0, -1.0, -6.0, 0.0, 0.0, 0.0, 0.0];
        assert!((blame("1+2=4 #4", &advantage).unwrap() - 5.4).abs() < 1e-12);
        assert_eq!(blame("1+2=4 #4", &[-0.5]), Some(1.0), "all tokens alike");
        assert_eq!(blame("1+2=4 #4", &[0.5]), Some(-1.0), "praise");
        assert_eq!(blame("1+2=3 #3", &[-0.5]), None, "right");
        assert_eq!(blame("1+2=4 #4", &[0.0]), None, "no advantage");
    }
}
