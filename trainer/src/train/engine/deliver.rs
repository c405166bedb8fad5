//! The engine at work for a trainer: what it begins, samples and hands over.

use anyhow::{Context, Result};
use lockstep::RolloutsBuf;
use lockstep::schedule::april_order;
use lockstep::schedules::april::fresh;
use lockstep::schedules::staleness::{Areal, roll_admits};

use super::clock::{Flight, Member, pace};
use super::{Asynchronous, Engine, EngineRecord, OldPolicy, Schedule};
use crate::model::Weights;
use crate::policy::Sampled;
use crate::random::Phase;
use crate::task::Problem;
use crate::train::group::{Group, Response};
use crate::train::sampling::Begun;
use crate::train::state::State;
use crate::train::trainer::Trainer;

impl Trainer {
    /// Responses that the engine has room for.
    fn slots(&self) -> usize {
        self.config().rl.prompts * self.group_size()
    }

    /// Takes a round's groups from the engine, which works on until they are there.
    pub(in crate::train) fn deliver(
        &self,
        state: &mut State,
        settings: &Asynchronous,
        step: u64,
    ) -> Result<Vec<Group>> {
        let wanted = self.config().rl.prompts;
        if settings.queue(wanted).is_none() {
            if state.engine.flights.iter().any(|flight| flight.version != Some(step)) {
                state.engine.stop();
            }
            if let Some(versions) = settings.staleness {
                // The bound is finite and at least 0, so that there is no error.
                let admits = |version| matches!(roll_admits(version, step, versions.into()), Ok(true));
                state.engine.throw_away(admits);
            }
        }
        let mut flights = loop {
            self.begin(state, settings, step, step)?;
            if let Some(flights) = state.engine.take(settings, step, wanted)? {
                break flights;
            }
            state.engine.advance(self.slots(), f64::INFINITY);
        };
        if settings.schedule == Schedule::April {
            state.engine.stop();
        }
        // In the order in which they were begun: what is learnt from first must not be what is short.
        flights.sort_unstable_by_key(|flight| (flight.step, flight.row));
        let asked: Vec<&Problem> =
            flights.iter().flat_map(|flight| flight.members.iter().map(|_| &flight.problem)).collect();
        let sampled = |member: &Member| Sampled { response: member.tokens.clone(), ..Sampled::default() };
        let responses: Vec<Sampled> =
            flights.iter().flat_map(|flight| &flight.members).map(sampled).collect();
        let mut rewards = self.rewards(&asked, &responses).into_iter();
        let group = |flight: Flight| {
            let response = |member: Member| {
                let old = if settings.old == OldPolicy::Engine { member.logp.clone() } else { Vec::new() };
                let Member { tokens, logp, versions, routed, .. } = member;
                state.engine.tokens += tokens.len() as u64;
                let reward = rewards.next().unwrap_or_default();
                Response { tokens, logp, reward, old, versions, routed }
            };
            let Flight { row, problem, members, .. } = flight;
            Group { row, problem, responses: members.into_iter().map(response).collect(), baseline: 0.0 }
        };
        Ok(flights.into_iter().map(group).collect())
    }

    /// Lets the engine go on, or sleep, while the trainer trains.
    pub(in crate::train) fn meanwhile(
        &self,
        state: &mut State,
        settings: &Asynchronous,
        step: u64,
    ) -> Result<()> {
        if !settings.schedule.overlaps() {
            state.engine.sleep(settings.train_time);
            return Ok(());
        }
        let until = state.engine.clock + settings.train_time;
        loop {
            self.begin(state, settings, step, step + 1)?;
            if !state.engine.advance(self.slots(), until) {
                return Ok(());
            }
        }
    }

    /// Begins as many groups as the schedule allows after `batches` batches, and samples what has no tokens
    /// under the weights of this step.
    fn begin(&self, state: &mut State, settings: &Asynchronous, step: u64, batches: u64) -> Result<()> {
        let wanted = self.config().rl.prompts as u32;
        let (running, done) = (state.engine.flights.len(), state.engine.done.len());
        let new = match settings.schedule {
            Schedule::Sync if running == 0 => fresh(wanted, done as u32),
            Schedule::Sync => 0,
            Schedule::April => {
                let in_flight = (f64::from(wanted) * settings.over_provision).ceil() as u32;
                fresh(in_flight, (running + done) as u32)
            }
            Schedule::Areal => {
                let areal = Areal {
                    max_concurrent: wanted,
                    max_staleness: settings.staleness.unwrap_or(0),
                    batch: wanted,
                };
                let accepted = areal.recovered(batches) + done as u64;
                areal.capacity(step, running as u64, accepted).max(0) as u32
            }
            Schedule::Ssp => {
                // A batch that is being learnt from still counts.
                let learnt = (batches - step) * u64::from(wanted);
                let queue = settings.queue(wanted as usize).context("a schedule without its queue")?;
                let room = queue.room(running as u64 + done as u64 + learnt);
                room.min(u64::from(wanted).saturating_sub(running as u64)) as u32
            }
        };
        let size = self.group_size();
        for _ in 0..new {
            let [version, number] = state.engine.begun;
            let row = if version == step { number } else { 0 };
            state.engine.begun = [step, row + 1];
            let member = |i| {
                Member::new(
                    state.engine.work,
                    pace(self.config().seed, step, row * size as u64 + i, settings.tail),
                )
            };
            let members = (0..size as u64).map(member).collect();
            let problem = self.unsolved_problem(&state.memory, step, row);
            state.engine.flights.push(Flight { step, row, version: None, problem, members });
        }
        let State { engine, weights, .. } = state;
        self.sample_flights(&mut engine.flights, weights, step)
    }

    /// Samples the rest of every response that has no version yet, the oldest ones first.
    fn sample_flights(&self, flights: &mut Vec<Flight>, weights: &Weights, step: u64) -> Result<()> {
        if flights.iter().all(|flight| flight.version.is_some()) {
            return Ok(());
        }
        let starts: Vec<u32> = flights.iter().map(|f| f.oldest().unwrap_or(step) as u32).collect();
        let order = april_order(&starts)?;
        let mut unsorted: Vec<Option<Flight>> = std::mem::take(flights).into_iter().map(Some).collect();
        flights.extend(order.into_iter().filter_map(|index| unsorted[index as usize].take()));
        let (limit, size) = (self.limit(), self.group_size() as u64);
        let (mut open, mut begun, mut fed) = (Vec::new(), Vec::new(), Vec::new());
        for flight in flights.iter_mut().filter(|flight| flight.version.is_none()) {
            flight.version = Some(step);
            let prompt = self.vocab.encode(&flight.problem.prompt)?;
            for (i, member) in (0..).zip(&mut flight.members).filter(|(_, member)| member.is_open(limit)) {
                let name = (Phase::Rollout, flight.step, flight.row * size + i);
                begun.push(Begun::new(&prompt, &member.tokens, name));
                fed.push(prompt.len() + member.tokens.len() - 1);
                open.push(member);
            }
        }
        let sampled = self.rest(&self.engine(weights)?, begun, limit)?;
        for ((member, sampled), fed) in open.into_iter().zip(sampled).zip(fed) {
            member.routed = match (&member.routed, sampled.routed) {
                // The last token that was kept goes through the new policy, to sample the next one.
                (Some(old), Some(new)) if !member.tokens.is_empty() => Some(old.stitch(fed, &new)?),
                (_, new) => new,
            };
            member.versions.extend(sampled.response.iter().map(|_| step));
            member.tokens.extend(sampled.response);
            member.logp.extend(sampled.logp);
        }
        Ok(())
    }

    /// The engine's numbers after a step that learnt from these responses at version `step`.
    pub(in crate::train) fn engine_record(
        &self,
        engine: &Engine,
        rollouts: &RolloutsBuf,
        responses: &[&Response],
        step: u64,
    ) -> Result<EngineRecord> {
        let versions: Vec<i32> =
            responses.iter().flat_map(|response| &response.versions).map(|version| *version as i32).collect();
        let found = self.algorithm.staleness(rollouts, &versions, step as i32)?;
        let oldest = found.start_version.iter().min().context("a step without responses")?;
        let many = responses.len() as f64;
        let stitched = responses.iter().filter(|r| r.versions.first() != r.versions.last()).count();
        Ok(EngineRecord {
            clock: engine.clock,
            tokens: engine.tokens,
            thrown: engine.thrown,
            idle: 1.0 - engine.busy / engine.clock,
            waiting: (engine.flights.len() + engine.done.len()) as u64,
            off_policy: found.off_policy_fraction,
            stitched: stitched as f64 / many,
            oldest: step.saturating_sub(*oldest as u64),
        })
    }
}

#[cfg(test)]
mod tests;
