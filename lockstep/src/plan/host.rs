//! Calls that a plan leaves to the host: it downloads the columns, runs the call on the CPU, and uploads the
//! results.

use super::exec::{Array, Exec};
use super::{Calls, Capacity, CreditViews, Memory, Plan, Queue};
use crate::columns::{Column, Columns};
use crate::ops::roles::ROLES;
use crate::recipe::{AdvantageEstimator, Call, GateChoice};
use crate::rollouts::Views;
use crate::stage::ENDS;
use crate::{ColumnElement, Counts, Device, Error, Metrics, RolloutsBuf};
use lockstep_core::aggregate::totals::COUNTS;
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::{In, Span};
use lockstep_ops::Plain;

impl Plan {
    /// Number of bytes that a call on the host copies, at full capacity.
    pub(super) fn host_bytes(&self, call: Call) -> usize {
        let of = |column: Column| {
            let len = self.capacity.length(column.shape()).unwrap_or(0);
            len * column.element().bytes()
        };
        let columns: usize = self.recipe.reads_of(call).iter().map(of).sum();
        let Capacity { tokens, sequences, .. } = self.capacity;
        let credit = if self.recipe.per_token() { 4 * tokens } else { 4 * sequences };
        match call {
            Call::Advantages => columns + credit + tokens,
            Call::Loss => columns + credit + 8 * tokens + (8 + 8 * sum::SUMS + 8) * sequences,
        }
    }

    /// Copies the columns of a call to the host, without the padding.
    fn fetch(&self, queue: &Queue, call: Call, columns: &Views<'_>) -> Result<RolloutsBuf, Error> {
        self.fetch_columns(queue, self.recipe.reads_of(call), columns)
    }

    fn fetch_columns(
        &self,
        queue: &Queue,
        wanted: Columns,
        columns: &Views<'_>,
    ) -> Result<RolloutsBuf, Error> {
        queue.synchronize()?;
        let wanted = wanted.and(Columns::of(&[Column::cu_seqlens, Column::cu_groups]));
        // SAFETY: a column, which the caller of `enqueue` guarantees.
        #[allow(unsafe_code)]
        let mut rollouts = columns.fetched(wanted, |from, to| unsafe { queue.download(from, to) })?;
        if !self.exact
            && let (Some(cu_seqlens), Some(cu_groups)) = (&rollouts.cu_seqlens, &rollouts.cu_groups)
        {
            let last = |offsets: &[u32]| offsets.last().map_or(0, |last| *last as usize);
            let (tokens, sequences) = (last(cu_seqlens), last(cu_groups));
            let groups = cu_groups.iter().position(|end| *end as usize == sequences).unwrap_or(0);
            let most = self.capacity;
            let size = Capacity {
                tokens: tokens.min(most.tokens),
                sequences: sequences.min(most.sequences),
                groups,
            };
            rollouts.resize(|shape| size.length(shape));
        }
        Ok(rollouts)
    }

    /// Errors as the op would for how sequences end; launches read `truncated` and `bootstrap` alone.
    pub(super) fn check_ends(&self, queue: &Queue, columns: &Views<'_>) -> Result<(), Error> {
        if !(self.calls.has(Call::Advantages) && self.recipe.reads_ends()) {
            return Ok(());
        }
        self.recipe.check_ends(&self.fetch_columns(queue, ENDS, columns)?.view())
    }

    /// The column `logp_rollout` with its NaNs replaced, for the advantages and for the loss; `None` if the
    /// recipe does not replace them.
    pub(super) fn samplers(&self, queue: &Queue, columns: &Views<'_>) -> Result<Option<[Memory; 2]>, Error> {
        let Some(sampler) = columns.logp_rollout.filter(|_| self.recipe.replaces_nan()) else {
            return Ok(None);
        };
        let sampler = read(queue, sampler)?;
        let by = |other: Option<In<'_, f32>>| {
            let other = other.map_or(Ok(sampler.clone()), |other| read(queue, other))?;
            queue.upload(bytemuck::cast_slice(&self.recipe.sampler(&sampler, &other)))
        };
        Ok(Some([by(columns.logp_old)?, by(columns.logp)?]))
    }

    /// Finds the bad value behind an error of [`Plan::alarms`]: runs the recipe's own calls on the CPU, over
    /// copies of the columns and the credit.
    ///
    /// Errors: those of [`Recipe::advantages`](crate::Recipe::advantages) and
    /// [`Recipe::loss`](crate::Recipe::loss), with the argument and the index.
    ///
    /// # Safety
    /// As for [`Plan::enqueue`].
    #[allow(unsafe_code)]
    pub unsafe fn diagnose(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
    ) -> Result<(), Error> {
        let (cpu, mut earned) = (Device::cpu(), crate::Credit::default());
        if self.calls.has(Call::Advantages) {
            let rollouts = self.fetch(queue, Call::Advantages, columns)?;
            earned = self.recipe.advantages(&cpu, &rollouts.view())?;
        }
        if self.calls.has(Call::Loss) {
            let rollouts = self.fetch(queue, Call::Loss, columns)?;
            if let Some(credit) = credit.filter(|_| self.calls == Calls::Loss) {
                earned = fetch_credit(queue, credit, &rollouts)?;
            }
            self.recipe.loss(&cpu, &rollouts.view(), &earned)?;
        }
        Ok(())
    }

    /// [`Recipe::advantages`](crate::Recipe::advantages) on the host.
    pub(super) fn host_advantages<'a>(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'_>,
    ) -> Result<CreditViews<'a>, Error> {
        let recipe = &self.recipe;
        let Capacity { tokens, sequences, .. } = self.capacity;
        let per_token = recipe.per_token();
        let own = if per_token { tokens } else { sequences };
        let advantage = exec.result::<f32>("advantage", own);
        let loss_mask = recipe.masks().then(|| exec.result::<u8>("loss_mask", tokens));
        let weighted = recipe.correction.is_some() || recipe.reward.weights.is_some();
        let weights = weighted.then(|| exec.result::<f32>("weights", tokens));
        let returns = recipe.makes_returns().then(|| exec.result::<f32>("returns", tokens));
        let roles = recipe.advantage.estimator == AdvantageEstimator::RoleBaseline;
        let state = roles.then(|| exec.result::<f64>("role_values", ROLES as usize));
        let keep = recipe.reward.filter.map(|_| exec.result::<u8>("keep", sequences));
        if let Some(queue) = exec.queue() {
            let rollouts = self.fetch(queue, Call::Advantages, columns)?;
            let credit = recipe.advantages(&Device::cpu(), &rollouts.view())?;
            write(queue, advantage, &credit.advantage)?;
            let original = || rollouts.loss_mask.clone().unwrap_or_else(|| vec![1; tokens]);
            let mask = credit.loss_mask.unwrap_or_else(original);
            write_to(queue, loss_mask, &mask)?;
            write_to(queue, weights, &credit.weights.unwrap_or_default())?;
            write_to(queue, returns, &credit.returns)?;
            write_to(queue, keep, &credit.keep)?;
            write_to(queue, state, &credit.state.role_values)?;
        }
        Ok(CreditViews {
            advantage: advantage.view(),
            per_token,
            loss_mask: loss_mask.map(Array::view),
            weights: weights.map(Array::view),
            returns: returns.map(Array::view),
        })
    }

    /// [`Recipe::loss`](crate::Recipe::loss) on the host.
    pub(super) fn host_loss(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'_>,
        credit: &CreditViews<'_>,
    ) -> Result<(), Error> {
        let recipe = &self.recipe;
        let Capacity { tokens, sequences, .. } = self.capacity;
        let coef = exec.result::<f32>("coef", tokens);
        // GMPO has no loss per token.
        let by_token = self.outputs.token_loss && !matches!(recipe.gate, GateChoice::Gmpo { .. });
        let token_loss = by_token.then(|| exec.result::<f32>("token_loss", tokens));
        let row_loss = exec.result::<f64>("row_loss", sequences);
        let loss = exec.result::<f64>("loss", 1);
        let names = Metrics::default().named().count();
        let counts = exec.result::<u64>("counts", COUNTS);
        let metrics =
            self.outputs.metrics.then(|| (exec.result::<f64>("metrics", names), self.row_metrics(exec)));
        let entropy = recipe.entropy.map(|_| exec.result::<f32>("entropy_coef", tokens));
        let value = recipe
            .value
            .map(|_| (exec.result::<f32>("value_gradient", tokens), exec.result::<f64>("value_loss", 1)));
        let Some(queue) = exec.queue() else { return Ok(()) };
        let rollouts = self.fetch(queue, Call::Loss, columns)?;
        let credit = fetch_credit(queue, credit, &rollouts)?;
        let out = recipe.loss(&Device::cpu(), &rollouts.view(), &credit)?;
        write(queue, coef, &out.coef)?;
        write_to(queue, token_loss, &out.token_loss)?;
        write(queue, row_loss, &out.row_loss)?;
        write(queue, loss, &[out.loss.unwrap_or(0.0)])?;
        let said: Vec<f64> =
            out.metrics.iter().flat_map(|said| said.named().map(|(_, value)| value)).collect();
        let Counts { tokens, nonempty, sequences } = out.counts;
        write(queue, counts, &[tokens, nonempty, sequences])?;
        if let Some((metrics, (sums, maxima))) = metrics {
            let (row_sums, row_maxima) = out.partials();
            write(queue, metrics, &said)?;
            let rows = [out.row_loss.len(), self.capacity.sequences];
            write(queue, sums, &padded_rows(row_sums, rows))?;
            write(queue, maxima, &padded_rows(row_maxima, rows))?;
        }
        write_to(queue, entropy, &out.entropy.as_ref().map_or(Vec::new(), |term| term.coef.clone()))?;
        if let (Some((gradient, loss)), Some(own)) = (value, &out.value) {
            write(queue, gradient, &own.gradient)?;
            write(queue, loss, &[own.loss])?;
        }
        Ok(())
    }
}

/// Copies the credit of a batch to the host, without the padding.
fn fetch_credit(
    queue: &Queue,
    credit: &CreditViews<'_>,
    rollouts: &RolloutsBuf,
) -> Result<crate::Credit, Error> {
    let batch = rollouts.batch()?;
    let (tokens, sequences) = (batch.tokens(), batch.sequences());
    let own = if credit.per_token { tokens } else { sequences };
    let by_token = |values: In<'_, f32>| read(queue, head(values, tokens));
    Ok(crate::Credit {
        advantage: read(queue, head(credit.advantage, own))?,
        per_token: credit.per_token,
        loss_mask: credit.loss_mask.map(|mask| read(queue, head(mask, tokens))).transpose()?,
        weights: credit.weights.map(by_token).transpose()?,
        returns: credit.returns.map(by_token).transpose()?.unwrap_or_default(),
        ..crate::Credit::default()
    })
}

fn head<T: Copy>(array: In<'_, T>, len: usize) -> In<'_, T> {
    array.part(Span::new(0, len.min(array.len())))
}

/// Rows of `own` values as rows of `length`, with zeros behind them.
fn padded_rows<T: Copy + Default>(values: &[T], [own, length]: [usize; 2]) -> Vec<T> {
    let padding = |row: &[T]| std::iter::repeat_n(T::default(), length - row.len());
    values.chunks(own.max(1)).flat_map(|row| row.iter().copied().chain(padding(row))).collect()
}

/// Copies an array to the host.
#[allow(unsafe_code)]
pub(super) fn read<T: Plain + Default>(queue: &Queue, array: In<'_, T>) -> Result<Vec<T>, Error> {
    let mut values = vec![T::default(); array.len()];
    // SAFETY: a view that the caller of `enqueue` guarantees, or the plan's own.
    unsafe { queue.download(array.as_ptr(), &mut values)? };
    Ok(values)
}

#[allow(unsafe_code)]
fn write<T: Plain + ColumnElement>(queue: &Queue, to: Array<T>, values: &[T]) -> Result<(), Error> {
    let to = to.head(values.len()).out();
    // SAFETY: the plan's own array, which is at least as long.
    unsafe { queue.write(&values[..to.len()], to.as_ptr()) }
}

fn write_to<T: Plain + ColumnElement>(
    queue: &Queue,
    to: Option<Array<T>>,
    values: &[T],
) -> Result<(), Error> {
    to.map_or(Ok(()), |to| write(queue, to, values))
}
