//! Plans: a recipe's calls as launches over memory of a fixed capacity, for a trainer whose tensors are on a
//! GPU to enqueue on its stream.
//!
//! A [`Plan`] is made once. [`Plan::enqueue`] then puts its launches into a queue: without allocations,
//! copies or waits, and without launch parameters that depend on the batch, so a CUDA or HIP graph that
//! captured it can be replayed for every batch up to the capacity. Counts and denominators are read from
//! device memory. Results are in the workspace, at the offsets of [`Plan::slots`].
//!
//! Some recipes have a rule that only the host can run. [`Plan::host_stages`] lists these calls, with the
//! bytes that they copy; `enqueue` then waits for them, and cannot be captured. The file exceeds 400 lines
//! because it documents the one type that a trainer calls.

mod exec;
mod host;
mod image;
mod launches;
mod staged;

pub use image::DeviceRollouts;
pub use lockstep_ops::{Memory, Plain, Queue};

use crate::columns::{Element, Shape};
use crate::recipe::{Call, RatioAdvantage};
use crate::rollouts::Views;
use crate::{Error, Outputs, Recipe};
use exec::{ALIGN, Exec};
use lockstep_core::ragged::{Cells, In, Offsets, Out, flag};
use lockstep_core::require;

/// The largest count: a larger one is a negative number, or no exact binary64 number.
const MOST: u64 = 1 << 53;

/// The largest batch that a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of tokens N.
    pub tokens: usize,
    /// Number of sequences S.
    pub sequences: usize,
    /// Number of groups G.
    pub groups: usize,
}

/// The calls that a plan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// [`Recipe::advantages`].
    Advantages,
    /// [`Recipe::loss`].
    Loss,
    /// Both, one after the other.
    Both,
}

impl Calls {
    /// Whether `call` is one of them.
    pub fn has(self, call: Call) -> bool {
        !matches!((self, call), (Calls::Advantages, Call::Loss) | (Calls::Loss, Call::Advantages))
    }
}

/// A result in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The name of the field of [`Credit`](crate::Credit) or [`Loss`](crate::Loss). The metrics are made from
    /// `sums` and `maxima`; each stage has its own `alarm`.
    pub name: &'static str,
    /// Type of the elements.
    pub element: Element,
    /// Number of elements.
    pub len: usize,
    /// Byte offset in the workspace.
    pub offset: usize,
}

/// A call that a plan leaves to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStage {
    /// The call.
    pub call: Call,
    /// The TOML key whose rule has no launch.
    pub stage: &'static str,
    /// Number of bytes that are copied to the host and back, at full capacity.
    pub bytes: usize,
}

/// Alarms of a stage's rows.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    stage: &'static str,
    offset: usize,
    rows: usize,
    bad: Bad,
}

/// Which numbers of a row are errors.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// Numbers above the limit of an alarm.
    Alarm,
    /// Numbers with any of these status bits.
    Bits(u32),
}

/// The launches, workspace and results of a recipe's calls.
#[derive(Clone, Debug)]
pub struct Plan {
    recipe: Recipe,
    calls: Calls,
    capacity: Capacity,
    outputs: Outputs,
    /// Whether every batch is exactly as large as the capacity.
    exact: bool,
    slots: Vec<Slot>,
    alarms: Vec<Alarm>,
    launches: Vec<&'static str>,
    host: Vec<HostStage>,
    ends: [usize; 2],
}

/// The parts of a credit that the loss reads, in device memory, for a plan of [`Calls::Loss`].
#[derive(Clone, Copy, Debug)]
pub struct CreditViews<'a> {
    /// Advantages, `[S]`, or `[N]` if `per_token`.
    pub advantage: In<'a, f32>,
    /// Whether there is one advantage per token.
    pub per_token: bool,
    /// Loss mask, `[N]`.
    pub loss_mask: Option<In<'a, u8>>,
    /// Weights of tokens, `[N]`.
    pub weights: Option<In<'a, f32>>,
    /// Returns, `[N]`.
    pub returns: Option<In<'a, f32>>,
}

impl Recipe {
    /// Plans the launches of this recipe's calls for batches of up to `capacity`. The columns of a smaller
    /// batch must have the capacity's lengths: pad offsets with their last value; other columns are not read
    /// beyond the batch, and results there are unspecified.
    ///
    /// Errors: those of [`Recipe::check`]; a capacity of no sequence or group, or of 2³² − 1 or more.
    ///
    /// ```
    /// use lockstep::plan::{Calls, Capacity};
    /// use lockstep::{Outputs, Recipe};
    /// let capacity = Capacity { tokens: 1 << 20, sequences: 512, groups: 64 };
    /// let plan = Recipe::named("dapo")?.plan(capacity, Calls::Both, Outputs::ALL)?;
    /// assert_eq!(plan.launches(), ["group_advantage", "batch_counts", "policy_loss_ppo", "loss_totals"]);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn plan(&self, capacity: Capacity, calls: Calls, outputs: Outputs) -> Result<Plan, Error> {
        self.plan_of(capacity, calls, outputs, false)
    }

    /// Like [`Recipe::plan`], for batches of exactly this size. Recipes that count all sequences then do not
    /// need the column `counts`.
    pub fn plan_exactly(&self, size: Capacity, calls: Calls, outputs: Outputs) -> Result<Plan, Error> {
        self.plan_of(size, calls, outputs, true)
    }

    fn plan_of(
        &self,
        capacity: Capacity,
        calls: Calls,
        outputs: Outputs,
        exact: bool,
    ) -> Result<Plan, Error> {
        self.check()?;
        let Capacity { tokens, sequences, groups } = capacity;
        for (name, number, least) in
            [("tokens", tokens, 0), ("sequences", sequences, 1), ("groups", groups, 1)]
        {
            if number < least || number >= u32::MAX as usize {
                let expected = format!("expected {least} to 2^32 - 2");
                return Err(Error::Plan(format!("capacity.{name} is {number}: {expected}")));
            }
        }
        let mut plan = Plan {
            recipe: self.clone(),
            calls,
            capacity,
            outputs: Outputs { loss: true, ..outputs },
            exact,
            slots: Vec::new(),
            alarms: Vec::new(),
            launches: Vec::new(),
            host: Vec::new(),
            ends: [0; 2],
        };
        for call in [Call::Advantages, Call::Loss] {
            if let (true, Some(stage)) = (calls.has(call), self.host_rule(call)) {
                let bytes = plan.host_bytes(call);
                plan.host.push(HostStage { call, stage, bytes });
            }
        }
        let mut exec = Exec::count();
        let columns = self.dummy_views(&capacity);
        plan.pass(&mut exec, [&columns; 2], None)?;
        let [results, scratch] = exec.ends;
        plan.ends = [results, results + scratch];
        (plan.slots, plan.alarms, plan.launches) = (exec.slots, exec.alarms, exec.launches);
        Ok(plan)
    }
}

impl Plan {
    /// The recipe of the plan.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The capacity of the plan.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The names of the launched ops, in order. `batch_counts` runs only for batches without the column
    /// `counts`, or if the aggregation's horizon is the longest sequence.
    pub fn launches(&self) -> &[&'static str] {
        &self.launches
    }

    /// Loads the kernels of the plan on a GPU, as its first [`enqueue`](Plan::enqueue) would. Call it before
    /// a capture.
    ///
    /// Errors: the driver refuses the kernels.
    pub fn load(&self, device: &crate::Device) -> Result<(), Error> {
        device.load(&self.launches)
    }

    /// The calls that run on the host; empty if the plan consists of launches only.
    pub fn host_stages(&self) -> &[HostStage] {
        &self.host
    }

    /// Size of the workspace in bytes. A GPU's workspace must be aligned to 256 bytes, a CPU's to 8.
    pub fn workspace_bytes(&self) -> usize {
        self.ends[1]
    }

    /// The results, and their places in the workspace.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The result with this name, if the plan has it.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.iter().copied().find(|slot| slot.name == name)
    }

    /// Enqueues the plan's launches over columns and a workspace in memory of the queue's device. For
    /// [`Calls::Loss`], `credit` holds the advantages; otherwise it is ignored.
    ///
    /// Errors, before anything is launched: all missing columns, each with the stage that reads it; a column
    /// whose length is not the capacity's; a workspace that is too small or not aligned.
    ///
    /// # Safety
    /// Until the queue has run the launches:
    /// * every column is initialised memory that the device can access, and nothing writes it; nothing else
    ///   accesses the workspace, which must have been zeroed once, because sequences of the capacity that
    ///   belong to no group of the batch are read although no launch writes them;
    /// * offsets start at 0, never decrease and end at most at the capacity; the op
    ///   [`check_offsets`](lockstep_core::check::CheckOffsets) checks this on the device.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
        workspace: Out<'_, u8>,
    ) -> Result<(), Error> {
        // SAFETY: upheld by the caller.
        unsafe { self.enqueue_with(queue, columns, credit, (workspace, None)) }
    }

    /// Like [`Plan::enqueue`], but writes the result `coef` to the caller's array `[N]` if one is given,
    /// instead of to the workspace.
    ///
    /// # Safety
    /// As for [`Plan::enqueue`]; `coef` is also device memory that nothing else accesses until then.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue_with(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
        (workspace, coef): (Out<'_, u8>, Option<Out<'_, f32>>),
    ) -> Result<(), Error> {
        self.check(columns, credit)?;
        if let Some(coef) = &coef {
            require::length("coef", self.capacity.tokens, "the plan's capacity", coef.len())?;
        }
        let (have, want) = (workspace.len(), self.workspace_bytes());
        if have < want {
            return Err(Error::Plan(format!("the workspace has {have} bytes: expected at least {want}")));
        }
        let aligned = if queue.is_cpu() { 8 } else { ALIGN };
        if !workspace.as_ptr().addr().is_multiple_of(aligned) {
            return Err(Error::Plan(format!("the workspace is not aligned to {aligned} bytes")));
        }
        let mut exec = Exec::launch_at(workspace.as_ptr(), self.ends, queue, coef);
        self.pass(&mut exec, [columns; 2], credit)
    }

    /// Errors unless the columns are present and have the capacity's lengths.
    fn check(&self, columns: &Views<'_>, credit: Option<&CreditViews<'_>>) -> Result<(), Error> {
        for call in [Call::Advantages, Call::Loss] {
            if self.calls.has(call) {
                self.recipe.check_columns(call, |column| columns.length(column).is_some())?;
            }
        }
        if self.calls.has(Call::Advantages) {
            self.recipe.check_ends_present(columns.columns())?;
            let host = self.host.iter().any(|stage| stage.call == Call::Advantages);
            if self.recipe.counts_kept() && !host && columns.valid.is_some() {
                let expected = "no such column in a plan, or correction.group_statistics = \"all\"";
                return Err(lockstep_core::Error::Combination { argument: "valid", expected }.into());
            }
        }
        for column in columns.columns().iter() {
            let Some(expected) = self.capacity.length(column.shape()) else { continue };
            let got = columns.length(column).unwrap_or(0);
            require::length(column.name(), expected, "the plan's capacity", got)?;
        }
        if self.calls == Calls::Loss {
            let Some(credit) = credit else {
                return Err(Error::Plan("a loss-only plan needs the credit's views".into()));
            };
            if credit.per_token && self.of_sequences() {
                let expected = "one per sequence, because a rule of the recipe weighs whole sequences";
                return Err(
                    lockstep_core::Error::Combination { argument: "credit.advantage", expected }.into()
                );
            }
            let own = if credit.per_token { self.capacity.tokens } else { self.capacity.sequences };
            let tokens = self.capacity.tokens;
            let lengths = [
                ("credit.advantage", Some(credit.advantage.len()), own),
                ("credit.loss_mask", credit.loss_mask.map(In::len), tokens),
                ("credit.weights", credit.weights.map(In::len), tokens),
                ("credit.returns", credit.returns.map(In::len), tokens),
            ];
            for (argument, got, expected) in lengths {
                if let Some(got) = got {
                    require::length(argument, expected, "the plan's capacity", got)?;
                }
            }
        }
        Ok(())
    }

    /// Errors unless `cu_seqlens` and `cu_groups` are valid. A smaller batch, padded, ends before the
    /// capacity.
    fn check_offsets(&self, columns: [Option<&[u32]>; 2]) -> Result<(), Error> {
        let Capacity { tokens, sequences, .. } = self.capacity;
        let of = [("cu_seqlens", tokens, "tokens"), ("cu_groups", sequences, "sequences")];
        for ((name, most, of), column) in of.into_iter().zip(columns) {
            let Some(column) = column else { continue };
            let end = column.last().filter(|_| !self.exact).map_or(most, |last| most.min(*last as usize));
            Offsets::new(name, column, end, of)?;
        }
        // Padding is sequences without tokens: those with tokens belong to a group.
        if let [Some(cu_seqlens), Some(cu_groups)] = columns
            && let Some(last) = cu_groups.last()
            && let Some(rest) = cu_seqlens.get(*last as usize..)
            && rest.windows(2).any(|pair| pair[0] != pair[1])
        {
            let (index, got) = (Some(cu_groups.len() - 1), f64::from(*last));
            let expected = "the number of sequences: later ones have tokens";
            return Err(require::value("cu_groups", index, expected, got).into());
        }
        Ok(())
    }

    /// Whether launches read an advantage for each sequence. A stage on the host checks its credit by itself.
    fn of_sequences(&self) -> bool {
        let recipe = &self.recipe;
        let means = recipe.ratio.advantage == RatioAdvantage::SequenceMean;
        let host = self.host.iter().any(|stage| stage.call == Call::Loss);
        !host && (recipe.gate.weighs_sequences() || means || recipe.mask.opsm_delta.is_some())
    }

    /// Waits for the queue and checks whether a stage found a bad value: a log-probability above 0, a NaN, or
    /// a group of one if that is an error.
    ///
    /// Errors: the stage and the row (a sequence or a group) of the first bad value.
    ///
    /// # Safety
    /// `workspace` is that of the last [`Plan::enqueue`], and still allocated.
    #[allow(unsafe_code)]
    pub unsafe fn alarms(&self, queue: &Queue, workspace: Cells<'_, u8>) -> Result<(), Error> {
        queue.synchronize()?;
        for alarm in &self.alarms {
            let mut rows = vec![0_u32; alarm.rows];
            // SAFETY: upheld by the caller; the array lies in the workspace.
            unsafe { queue.download(workspace.as_ptr().wrapping_add(alarm.offset).cast(), &mut rows)? };
            self.judge(alarm, &rows)?;
        }
        Ok(())
    }

    /// Like [`Plan::enqueue_with`], but checks the offsets first, waits for the queue, and reports bad
    /// values.
    ///
    /// With `correction.nan_rollout = "one"`, a batch with such a NaN is launched a second time, with copies
    /// of the column.
    ///
    /// Errors: those of [`Plan::enqueue`]; invalid offsets (index); a bad value, with its column and index.
    ///
    /// # Safety
    /// As for [`Plan::enqueue_with`], except for the offsets of sequences and groups, which are checked.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue_checked(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
        (workspace, coef): (Out<'_, u8>, Option<Out<'_, f32>>),
    ) -> Result<(), Error> {
        let offsets = [columns.cu_seqlens, columns.cu_groups]
            .map(|column| column.map(|column| host::read(queue, column)).transpose());
        let [cu_seqlens, cu_groups] = offsets;
        self.check_offsets([cu_seqlens?.as_deref(), cu_groups?.as_deref()])?;
        self.check_ends(queue, columns)?;
        let counts = columns.counts.map_or(Ok(Vec::new()), |counts| host::read(queue, counts))?;
        if let Some(index) = counts.iter().position(|count| *count > MOST) {
            let (argument, expected) = ("counts", "at most 2^53");
            return Err(require::value(argument, Some(index), expected, counts[index] as f64).into());
        }
        // SAFETY: upheld by the caller; the offsets have been checked.
        unsafe {
            let (written, of_coef) = (*workspace, coef.as_deref().copied());
            if let Err(error) = self.enqueue_with(queue, columns, credit, (workspace, coef)) {
                // A stage on the host names what a launch made of a bad value; the recipe names its column.
                if !self.host.is_empty() && self.check(columns, credit).is_ok() {
                    self.diagnose(queue, columns, credit)?;
                }
                return Err(error);
            }
            let Err(error) = self.alarms(queue, written) else { return Ok(()) };
            self.diagnose(queue, columns, credit)?;
            // The recipe itself takes the batch: once more, without the NaN that it replaces.
            let Some(samplers) = self.samplers(queue, columns)? else { return Err(error) };
            let [own, of_loss] = samplers.each_ref().map(|sampler| {
                let tokens = self.capacity.tokens;
                Views { logp_rollout: Some(In::from_raw(sampler.as_ptr().cast(), tokens)), ..*columns }
            });
            let coef = of_coef.map(|coef| Out::from_raw(coef.as_ptr(), coef.len()));
            let mut exec = Exec::launch_at(written.as_ptr(), self.ends, queue, coef);
            self.pass(&mut exec, [&own, &of_loss], credit)?;
            self.alarms(queue, written)
        }
    }

    fn judge(&self, alarm: &Alarm, rows: &[u32]) -> Result<(), Error> {
        let bad = |row: &u32| match alarm.bad {
            Bad::Alarm => *row > flag::LIMIT,
            Bad::Bits(bits) => row & bits != 0,
        };
        match rows.iter().position(bad) {
            None => Ok(()),
            Some(row) => {
                let stage = alarm.stage;
                Err(Error::Plan(format!("stage {stage} met a bad value in row {row} of the batch")))
            }
        }
    }
}

impl Capacity {
    /// Length of a shape; `None` if the column itself defines its length.
    fn length(&self, shape: Shape) -> Option<usize> {
        Some(match shape {
            Shape::Tokens => self.tokens,
            Shape::Sequences => self.sequences,
            Shape::Groups => self.groups,
            Shape::SequenceOffsets | Shape::StepsOfSequences => self.sequences + 1,
            Shape::GroupOffsets => self.groups + 1,
            Shape::One => 1,
            Shape::Three => 3,
            _ => return None,
        })
    }
}
