//! Runs a plan over host slices: one upload of the columns, the launches, and one download of the results.

use super::image::Image;
use super::{Calls, Capacity, Plan};
use crate::ops::advantage::Advantages;
use crate::ops::correction::stats_of;
use crate::recipe::{AdvantageEstimator, Call};
use crate::{
    ColumnElement, CorrectionReport, Counts, Credit, Device, EntropyTerm, Error, Loss, Metrics, Outputs,
    Recipe, Rollouts,
};
use bytemuck::AnyBitPattern;
use lockstep_core::ragged::Out;

impl Recipe {
    /// Runs the calls on a GPU through a plan of exactly this batch. Returns `None` on a CPU, if a rule has
    /// to run on the host, or if a value is bad; the calls then run op by op, and report the error.
    // In a box: on a CPU, no large absent result is moved.
    pub(crate) fn staged(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: Option<&Credit>,
        calls: Calls,
        outputs: Outputs,
    ) -> Result<Option<Box<(Credit, Loss)>>, Error> {
        if device.is_cpu() {
            return Ok(None);
        }
        self.on_gpu(device, rollouts, credit, calls, outputs)
    }

    #[cold]
    fn on_gpu(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: Option<&Credit>,
        calls: Calls,
        outputs: Outputs,
    ) -> Result<Option<Box<(Credit, Loss)>>, Error> {
        if self.advantage.estimator == AdvantageEstimator::ReMax && rollouts.rewards.is_none() {
            return Ok(None);
        }
        // Report missing columns as the op-by-op calls would.
        for call in [Call::Advantages, Call::Loss].into_iter().filter(|call| calls.has(*call)) {
            self.check_columns(call, |column| rollouts.length(column).is_some())?;
        }
        let batch = rollouts.batch()?;
        let capacity =
            Capacity { tokens: batch.tokens(), sequences: batch.sequences(), groups: batch.groups() };
        // A launch leaves a sequence out for one reason, the column or the rejection.
        if rollouts.valid.is_some() && self.counts_kept() {
            return Ok(None);
        }
        let plan = self.plan_exactly(capacity, calls, outputs)?;
        match plan.host_stages() {
            [] => Ok(plan.run(device, rollouts, credit)?.map(Box::new)),
            _ => Ok(None),
        }
    }
}

/// The results of a run on the host.
struct Results<'p> {
    plan: &'p Plan,
    bytes: Vec<u8>,
}

impl Results<'_> {
    /// A result by name; empty if the plan does not have it.
    fn get<T: ColumnElement + AnyBitPattern>(&self, name: &str) -> Vec<T> {
        let Some(slot) = self.plan.slot(name) else { return Vec::new() };
        let bytes = &self.bytes[slot.offset..slot.offset + slot.len * slot.element.bytes()];
        numbers(bytes)
    }
}

/// Numbers from native-endian bytes.
fn numbers<T: AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

impl Plan {
    /// Runs the plan once over host slices, on any device: one upload of the columns, the launches, and one
    /// download of the results. Returns `None` if a stage found a bad value; the recipe's own calls report
    /// which. Reports of a [host stage](super::HostStage) other than its arrays are not returned.
    ///
    /// Errors: those of [`Plan::enqueue`]; invalid offsets; for [`Calls::Loss`], a missing `credit`.
    ///
    /// ```
    /// use lockstep::plan::{Calls, Capacity};
    /// use lockstep::{Device, Outputs, Recipe, Rollouts};
    /// let (device, recipe) = (Device::cpu(), Recipe::named("dapo")?);
    /// let logp = [-0.5, -1.0, -0.2, -2.0];
    /// let rollouts = Rollouts {
    ///     rewards: Some(&[1.0, 0.0]),
    ///     logp_old: Some(&logp),
    ///     logp: Some(&logp),
    ///     ..Rollouts::new(&[0, 2, 4], &[0, 2])
    /// };
    /// let plan = recipe.plan(Capacity { tokens: 4, sequences: 2, groups: 1 }, Calls::Both, Outputs::ALL)?;
    /// let (credit, loss) = plan.run(&device, &rollouts, None)?.unwrap();
    /// let both = recipe.step(&device, &rollouts)?;
    /// assert_eq!((credit.advantage, &loss.coef), (both.0.advantage, &both.1.coef));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn run(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: Option<&Credit>,
    ) -> Result<Option<(Credit, Loss)>, Error> {
        if self.calls.has(Call::Advantages) {
            self.recipe.check_ends(rollouts)?;
        }
        self.check_offsets([rollouts.cu_seqlens, rollouts.cu_groups])?;
        let queue = device.queue()?;
        let mut image = Image::default();
        let columns = image.add_columns(rollouts, self.recipe.reads());
        let credit = credit.filter(|_| self.calls == Calls::Loss).map(|credit| image.add_credit(credit));
        let memory = queue.upload(image.bytes())?;
        let columns = columns.moved(memory.as_ptr());
        let credit = credit.map(|credit| credit.moved(memory.as_ptr()));
        let workspace = queue.upload(&vec![0; self.workspace_bytes()])?;
        let mut results = Results { plan: self, bytes: vec![0; self.ends[0]] };
        // SAFETY: the offsets are checked above, lengths by `enqueue`, and block and workspace are ours; both
        // live until the download has waited for the queue.
        #[allow(unsafe_code)]
        unsafe {
            let into = Out::from_raw(workspace.as_ptr(), workspace.len());
            self.enqueue(&queue, &columns, credit.as_ref(), into)?;
            queue.download(workspace.as_ptr().cast_const(), &mut results.bytes)?;
        }
        for alarm in &self.alarms {
            let bytes = &results.bytes[alarm.offset..alarm.offset + 4 * alarm.rows];
            let rows: Vec<u32> = numbers(bytes);
            if self.judge(alarm, &rows).is_err() {
                return Ok(None);
            }
        }
        let credit =
            if self.calls.has(Call::Advantages) { self.credit(&results)? } else { Credit::default() };
        let loss = if self.calls.has(Call::Loss) { self.read_loss(&results)? } else { Loss::default() };
        Ok(Some((credit, loss)))
    }

    fn credit(&self, results: &Results<'_>) -> Result<Credit, Error> {
        let per_token = self.recipe.per_token();
        let mut advantage: Vec<f32> = results.get("advantage");
        let keep: Vec<u8> = results.get("keep");
        if !per_token {
            advantage.iter_mut().zip(&keep).filter(|(_, keep)| **keep == 0).for_each(|(a, _)| *a = 0.0);
        }
        let some = |mask: Vec<u8>| (!mask.is_empty()).then_some(mask);
        let weights: Vec<f32> = results.get("weights");
        let mut credit = Credit {
            advantage,
            per_token,
            returns: results.get("returns"),
            loss_mask: some(results.get("loss_mask")),
            keep,
            weights: (!weights.is_empty()).then_some(weights),
            groups: Advantages {
                mean: results.get("mean"),
                std: results.get("std"),
                counted: results.get("counted"),
                status: results.get("status"),
                pivot: results.get("pivot"),
                ..Advantages::default()
            },
            ..Credit::default()
        };
        let host = self.host.iter().any(|stage| stage.call == Call::Advantages);
        if let (Some(choice), false) = (&self.recipe.correction, host) {
            let params = choice.params()?;
            let (sums, maxima) = (results.get("correction_sums"), results.get("correction_maxima"));
            let kept: Vec<u8> = results.get("kept");
            let (stats, counts_before, counts_after) = stats_of(&sums, &maxima, &kept, &params)?;
            credit.correction = Some(CorrectionReport { stats, counts_before, counts_after });
        }
        Ok(credit)
    }

    fn read_loss(&self, results: &Results<'_>) -> Result<Loss, Error> {
        let mut loss = Loss::default();
        let policy = &mut loss.policy;
        (policy.coef, policy.token_loss) = (results.get("coef"), results.get("token_loss"));
        (policy.row_loss, policy.loss) = (results.get("row_loss"), results.get("loss").first().copied());
        if let [tokens, nonempty, sequences] = results.get::<u64>("counts")[..] {
            policy.counts = Counts { tokens, nonempty, sequences };
        }
        let sums: Vec<f64> = results.get("sums");
        if let ([high, neg_low], false) = (&results.get::<f32>("maxima")[..], sums.is_empty()) {
            policy.metrics = Some(Metrics::new(policy.counts.tokens, &sums, [*high, *neg_low]));
            policy.set_partials(results.get("row_sums"), results.get("row_maxima"));
        }
        let of_entropy: Vec<f32> = results.get("entropy_coef");
        loss.entropy =
            (!of_entropy.is_empty()).then(|| EntropyTerm { coef: of_entropy, ..EntropyTerm::default() });
        let policy = &loss.policy;
        if self.recipe.value.is_some() {
            let clipped: Vec<u32> = results.get("value_row_clipped");
            let value = results.get("value_loss").first().copied().unwrap_or(0.0);
            let counts = policy.counts;
            loss.value = Some(crate::ops::value_loss::ValueOutput::of(
                (results.get("value_gradient"), results.get("value_token_loss")),
                (results.get("value_row_loss"), value),
                (&clipped, counts),
            ));
        }
        Ok(loss)
    }
}
