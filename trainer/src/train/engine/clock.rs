//! The engine's state: rollouts in flight, and the clock.

use anyhow::Result;
use lockstep::core::num::exp64;
use lockstep::schedules::random::{Purpose, Stream};
use serde::{Deserialize, Serialize};

use super::Asynchronous;
use crate::routing::Record;
use crate::task::Problem;
use crate::train::bits;
use crate::vocab::END;

/// The purpose of the streams that the pace of a rollout comes from.
const PACE: Purpose = Purpose(256);

/// The engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Simulated time.
    #[serde(with = "bits::double")]
    pub(super) clock: f64,
    /// Time that passed for a response in flight: the clock, less where the engine slept or was too full.
    #[serde(with = "bits::double")]
    pub(super) work: f64,
    /// Time for which the engine was full, or would have been with the same work.
    #[serde(with = "bits::double")]
    pub(super) busy: f64,
    /// Tokens handed over.
    pub(super) tokens: u64,
    /// Tokens thrown away.
    pub(super) thrown: u64,
    /// Groups begun at this version.
    pub(super) begun: [u64; 2],
    /// Groups under way.
    pub(super) flights: Vec<Flight>,
    /// Complete groups, first come first.
    pub(super) done: Vec<Flight>,
}

/// A group under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flight {
    /// The version at which it was begun, and its number among those begun there: the name of its streams.
    pub(super) step: u64,
    /// See `step`.
    pub(super) row: u64,
    /// The version that samples from here on; `None`: not sampled yet.
    pub(super) version: Option<u64>,
    /// The prompt.
    pub(super) problem: Problem,
    /// The responses.
    pub(super) members: Vec<Member>,
}

/// A response, up to its end under the current weights: what new weights arriving earlier cut off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Member {
    pub(super) tokens: Vec<u32>,
    #[serde(with = "bits::floats")]
    pub(super) logp: Vec<f32>,
    /// The version that sampled each token.
    pub(super) versions: Vec<u64>,
    /// Tokens that were there at `at`.
    pub(super) kept: usize,
    /// When the token after those began, in the engine's work.
    #[serde(with = "bits::double")]
    pub(super) at: f64,
    /// Work for a token.
    #[serde(with = "bits::double")]
    pub(super) pace: f64,
    /// The routing of prompt and response, if recorded: of each token that of the policy that sampled the
    /// next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) routed: Option<Record>,
}

impl Member {
    /// A response that begins now.
    pub(super) fn new(at: f64, pace: f64) -> Self {
        Self { at, pace, ..Self::default() }
    }

    /// When it ends.
    fn end(&self) -> f64 {
        self.at + (self.tokens.len() - self.kept) as f64 * self.pace
    }

    /// Whether it goes on under the weights of a later version.
    pub(super) fn is_open(&self, limit: usize) -> bool {
        self.tokens.last() != Some(&END) && self.tokens.len() < limit
    }

    /// Cuts off what is not sampled yet. Returns the number of tokens cut off.
    fn cut(&mut self, now: f64) -> usize {
        let ahead = self.tokens.len() - self.kept;
        let passed = (((now - self.at) / self.pace) as usize).min(ahead);
        self.at += passed as f64 * self.pace;
        self.kept += passed;
        self.tokens.truncate(self.kept);
        self.logp.truncate(self.kept);
        self.versions.truncate(self.kept);
        ahead - passed
    }
}

impl Flight {
    /// The oldest version among its tokens.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.members.iter().flat_map(|member| &member.versions).min().copied()
    }

    fn end(&self) -> f64 {
        self.members.iter().map(Member::end).fold(0.0, f64::max)
    }
}

/// The pace of a response: exp(σ·normal).
pub(super) fn pace(seed: u64, step: u64, row: u64, tail: f64) -> f64 {
    exp64(tail * Stream::new(seed, PACE, step as u32, row as u32).normal())
}

impl Engine {
    /// Lets the engine sleep.
    pub(super) fn sleep(&mut self, time: f64) {
        self.clock += time;
    }

    /// Goes to the next end of a response, or only to `until`. Returns whether a response ended.
    pub(super) fn advance(&mut self, slots: usize, until: f64) -> bool {
        let ends = || self.flights.iter().flat_map(|flight| &flight.members).map(Member::end);
        let ahead = || ends().filter(|end| *end > self.work);
        let (running, next) = (ahead().count() as f64 / slots as f64, ahead().fold(f64::INFINITY, f64::min));
        let (share, slower) = (running.min(1.0), running.max(1.0));
        let arrival = self.clock + (next - self.work) * slower;
        if arrival > until {
            self.busy += (until - self.clock) * share;
            self.work += (until - self.clock) / slower;
            self.clock = until;
            return false;
        }
        if next.is_finite() {
            self.busy += (arrival - self.clock) * share;
            (self.clock, self.work) = (arrival, next);
        }
        let now = self.work;
        self.done.extend(self.flights.extract_if(.., |flight| flight.end() <= now));
        true
    }

    /// Takes the groups of a step; none while they are not there.
    pub(super) fn take(
        &mut self,
        settings: &Asynchronous,
        step: u64,
        wanted: usize,
    ) -> Result<Option<Vec<Flight>>> {
        let Some(queue) = settings.queue(wanted) else {
            return Ok((self.done.len() >= wanted).then(|| self.done.drain(..wanted).collect()));
        };
        let name = |flight: &Flight| (flight.step, flight.row);
        let running = self.flights.iter().map(|flight| (name(flight), false));
        let mut waiting: Vec<_> =
            running.chain(self.done.iter().map(|flight| (name(flight), true))).collect();
        waiting.sort_unstable();
        let (begun, complete): (Vec<u64>, Vec<bool>) =
            waiting.iter().map(|((version, _), done)| (version, done)).unzip();
        let mut chosen = vec![0; wanted];
        if !queue.take(step, &begun, &complete, &mut chosen)? {
            return Ok(None);
        }
        let names: Vec<_> = chosen.iter().map(|at| waiting[*at as usize].0).collect();
        Ok(Some(self.done.extract_if(.., |flight| names.contains(&name(flight))).collect()))
    }

    /// Stops what is under way; its tokens so far stay.
    pub(super) fn stop(&mut self) {
        let now = self.work;
        for flight in &mut self.flights {
            flight.version = None;
            for member in &mut flight.members {
                if member.end() > now {
                    member.cut(now);
                }
            }
        }
    }

    /// Begins the groups again whose oldest token `admits` refuses, complete ones too.
    pub(super) fn throw_away(&mut self, admits: impl Fn(u64) -> bool) {
        let old = |flight: &Flight| flight.oldest().is_some_and(|version| !admits(version));
        self.flights.extend(self.done.extract_if(.., |flight| old(flight)));
        let now = self.work;
        for flight in self.flights.iter_mut().filter(|flight| old(flight)) {
            flight.version = None;
            for member in &mut flight.members {
                self.thrown += member.tokens.len() as u64;
                *member = Member::new(now, member.pace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response of `tokens` tokens that begins now.
    fn member(pace: f64, tokens: usize) -> Member {
        Member {
            tokens: vec![1; tokens],
            logp: vec![-1.0; tokens],
            versions: vec![0; tokens],
            ..Member::new(0.0, pace)
        }
    }

    fn engine(groups: &[&[(f64, usize)]]) -> Engine {
        let problem = Problem { prompt: "1+1=".into(), solution: "#2".into(), answer: "2".into() };
        let flight = |(row, members): (usize, &&[(f64, usize)])| Flight {
            step: 0,
            row: row as u64,
            version: Some(0),
            problem: problem.clone(),
            members: members.iter().map(|&(pace, tokens)| member(pace, tokens)).collect(),
        };
        Engine { flights: groups.iter().enumerate().map(flight).collect(), ..Engine::default() }
    }

    /// Worked by hand: three responses on two slots share them until the first ends.
    #[test]
    fn a_full_engine_is_slower_and_an_empty_one_idle() {
        let mut engine = engine(&[&[(1.0, 4), (2.0, 4)], &[(1.0, 6)]]);
        // 3 responses on 2 slots: 4 tokens take 6 units.
        assert!(engine.advance(2, f64::INFINITY));
        assert_eq!((engine.clock, engine.work, engine.busy, engine.done.len()), (6.0, 4.0, 6.0, 0));
        // Then 2 on 2: the second group ends 2 units later.
        assert!(engine.advance(2, f64::INFINITY));
        assert_eq!((engine.clock, engine.done[0].row), (8.0, 1));
        // Then 1 on 2 slots: half of the room is empty, for one unit here.
        assert!(!engine.advance(2, 9.0));
        assert_eq!((engine.clock, engine.work, engine.busy), (9.0, 7.0, 8.5));
        engine.stop();
        let slow = &engine.flights[0].members[1];
        assert_eq!((slow.tokens.len(), slow.kept, slow.at, engine.flights[0].version), (3, 3, 6.0, None));
        assert_eq!(engine.flights[0].members[0].tokens.len(), 4, "complete");
    }

    #[test]
    fn what_is_too_old_begins_again() {
        let mut engine = engine(&[&[(1.0, 2)], &[(1.0, 9)]]);
        assert!(engine.advance(4, f64::INFINITY));
        engine.throw_away(|version| version == 0);
        assert_eq!((engine.thrown, engine.done.len(), engine.flights.len()), (0, 1, 1));
        engine.stop();
        engine.throw_away(|version| version > 0);
        assert_eq!((engine.thrown, engine.done.len(), engine.flights.len()), (4, 0, 2));
        assert!(engine.flights.iter().all(|f| f.oldest().is_none() && f.members[0].at == 2.0));
    }

    #[test]
    fn paces_have_the_tail_that_was_asked_for() {
        assert_eq!(pace(1, 2, 3, 0.0), 1.0);
        let logs: Vec<f64> = (0..4000).map(|row| pace(7, 0, row, 1.5).ln()).collect();
        let mean = logs.iter().sum::<f64>() / 4000.0;
        let square = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0;
        // Four and a half standard errors.
        assert!(mean.abs() < 4.5 * 1.5 / 4000_f64.sqrt(), "{mean}");
        assert!((square.sqrt() / 1.5 - 1.0).abs() < 4.5 / 8000_f64.sqrt(), "{square}");
    }
}
