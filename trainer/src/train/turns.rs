//! The columns of responses of several turns, between which the policy reads what another player or a tool
//! wrote.

use lockstep::{Column, RolloutsBuf};

use super::group::Group;
use super::state::State;
use super::trainer::Trainer;
use crate::task::Game;

impl Trainer {
    /// Fills them in a task that has such responses: which tokens the policy chose, the turns, and in games
    /// the roles. A turn is what the policy reads and then what it writes; the last turn goes on to the end
    /// and has the reward.
    pub(super) fn turn_columns(&self, state: &State, groups: &[Group], out: &mut RolloutsBuf) {
        let (mut mask, mut cu_turns) = (Vec::new(), vec![0]);
        let (mut rewards, mut turn_roles, mut roles) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups {
            let role = self.task.game().map_or(0, |_| Game::role(&group.problem.prompt)) as u32;
            for response in &group.responses {
                let (text, tokens) = (self.vocab.decode(&response.tokens), response.tokens.len());
                let Some(own) = self.task.own(&group.problem, &text, tokens) else { return };
                let start = mask.len();
                mask.extend(own);
                let is_end = |t: &usize| mask[*t] && mask.get(t + 1) != Some(&true);
                let mut ends: Vec<usize> = (start..mask.len()).filter(is_end).map(|t| t + 1).collect();
                ends.pop();
                ends.push(mask.len());
                rewards.extend(ends.iter().map(|end| if *end == mask.len() { response.reward } else { 0.0 }));
                turn_roles.extend(ends.iter().map(|_| role));
                cu_turns.extend(ends.iter().map(|end| *end as u32));
                roles.push(role);
            }
        }
        out.loss_mask = Some(mask.into_iter().map(u8::from).collect());
        let reads = self.algorithm.reads(None);
        if reads.contains(Column::roles) && self.task.game().is_some() {
            let values = &state.memory.role_values;
            out.roles = Some(roles);
            out.role_values = Some(if values.is_empty() { vec![0.0; 2] } else { values.clone() });
        }
        if reads.contains(Column::cu_turns) {
            (out.cu_turns, out.turn_rewards, out.turn_roles) =
                (Some(cu_turns), Some(rewards), Some(turn_roles));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Sequence, log_probs};
    use crate::random::Phase;
    use crate::task::Problem;
    use crate::vocab::END;

    fn trainer(task: &str, recipe: &str) -> Trainer {
        Trainer::small(task, recipe, |config| {
            (config.rl.prompts, config.rl.group, config.rl.minibatches) = (6, 5, 2);
            config.warm.updates = 1;
        })
    }

    /// K against Q: pass, bet, call; then an end in place of the second player's move.
    #[test]
    fn a_game_by_hand() {
        let trainer = trainer("kuhn", "mars");
        let response = |moves: &str, reward| trainer.saying(moves, &[END], reward);
        let group = |row, prompt: &str, sign: f32| Group {
            row,
            problem: Problem { prompt: prompt.into(), solution: "pp".into(), answer: "KQ".into() },
            responses: vec![response("pbb", sign * 2.0), response("p", sign * 2.0)],
            baseline: 0.0,
        };
        let mut out = RolloutsBuf::default();
        let state = State::new(trainer.config());
        trainer.turn_columns(&state, &[group(0, "1K", 1.0), group(1, "2Q", -1.0)], &mut out);
        assert_eq!(out.loss_mask.unwrap(), [1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(out.cu_turns.unwrap(), [0, 1, 4, 6, 10, 12]);
        assert_eq!(out.turn_rewards.unwrap(), [0.0, 2.0, 2.0, -2.0, -2.0]);
        assert_eq!(out.turn_roles.unwrap(), [0, 0, 0, 1, 1]);
        assert_eq!(out.roles, None, "mars reads the roles of turns alone");
    }

    /// Two calls and the answer; a call that fails, and a wrong answer; a response that is cut off in a
    /// result.
    #[test]
    fn calls_by_hand() {
        let trainer = trainer("calculator:1", "mars");
        let problem = Problem { prompt: "3*5+2=".into(), solution: String::new(), answer: "17".into() };
        let said = [("[3*5]15 [15+2]17 #17", &[END][..]), ("[3*5+2]!#15", &[END]), ("[9*9]8", &[])];
        let responses = said.map(|(text, end)| {
            let reward = trainer.task.reward(&problem, text);
            trainer.saying(text, end, reward)
        });
        let group = Group { row: 0, problem, responses: responses.to_vec(), baseline: 0.0 };
        let mut out = RolloutsBuf::default();
        trainer.turn_columns(&State::new(trainer.config()), &[group], &mut out);
        let mask: String = out.loss_mask.unwrap().iter().map(u8::to_string).collect();
        assert_eq!(mask, ["11111000111111000", "1111", "1111111", "01111", "11111", "0"].concat());
        assert_eq!(out.cu_turns.unwrap(), [0, 5, 14, 21, 28, 33, 39]);
        assert_eq!(out.turn_rewards.unwrap(), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(out.turn_roles.unwrap(), [0; 6]);
    }

    /// An untrained policy ends many calls that it never began.
    #[test]
    fn what_the_tool_writes_is_neither_sampled_nor_learnt_from() {
        let mut trainer = trainer("calculator:1", "ppo_critic");
        let mut state = State::new(trainer.config());
        state.reference = Some(state.weights.clone());
        // Rewards of both kinds.
        trainer.trial = true;
        let groups = trainer.generate(&mut state, 0).unwrap().groups;
        let rollouts = trainer.pack(&state, &groups, None).unwrap().rollouts;
        let credit = trainer.algorithm.advantages(&rollouts).unwrap();
        let loss = trainer.algorithm.loss(&rollouts, &credit).unwrap();
        let gradients =
            [&loss.coef, &loss.entropy.as_ref().unwrap().coef, &loss.value.as_ref().unwrap().gradient];
        let (mut at, mut told, mut learnt) = (0, 0, [0; 3]);
        for group in &groups {
            for response in &group.responses {
                let mut read = trainer.vocab.encode(&group.problem.prompt).unwrap();
                for token in &response.tokens {
                    let of_token = gradients.map(|gradient| usize::from(gradient[at] != 0.0));
                    if let Some(written) = trainer.environment(&read) {
                        assert_eq!((written, of_token), (*token, [0; 3]), "{read:?}");
                        told += 1;
                    }
                    learnt.iter_mut().zip(of_token).for_each(|(sum, more)| *sum += more);
                    read.push(*token);
                    at += 1;
                }
            }
        }
        assert!(told > 10 && learnt.iter().all(|some| 4 * some > at), "{told}, {learnt:?} of {at} tokens");
    }

    #[test]
    fn the_warm_start_learns_what_the_policy_writes() {
        let trainer = trainer("calculator:1", "grpo");
        let mut state = State::new(trainer.config());
        let (mut sequences, mut own) = (Vec::new(), Vec::new());
        for row in 0..trainer.config().warm.batch as u64 {
            let problem = trainer.training_problem(Phase::WarmProblems, 0, row);
            let mut told = false;
            for c in problem.solution.chars() {
                own.push(!told);
                told = c == ']' || told && c != ' ';
            }
            own.push(true);
            let prompt = trainer.vocab.encode(&problem.prompt).unwrap();
            sequences.push(Sequence { prompt, response: trainer.worked(&problem).unwrap() });
        }
        let logp = log_probs(&trainer.config().model, &state.weights, &sequences).unwrap();
        let learnt: Vec<f32> = logp.into_iter().zip(own).filter(|(_, own)| *own).map(|(l, _)| l).collect();
        let loss = trainer.warm_step(&mut state, drop).unwrap().loss;
        let expected = -learnt.iter().map(|logp| f64::from(*logp)).sum::<f64>() / learnt.len() as f64;
        assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
    }
}
