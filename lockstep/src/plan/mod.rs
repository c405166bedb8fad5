//! A recipe's calls as launches over memory of a fixed capacity: what a trainer whose tensors are on a GPU
//! puts into its stream.
//!
//! A [`Plan`] is made once. [`Plan::enqueue`] then puts its launches into a queue: no allocation, no copy, no
//! wait, and no launch parameter that depends on the batch, so that a CUDA or HIP graph that captured it
//! replays for every batch up to the capacity. Counts and denominators are read from device memory. Results
//! lie in the workspace; [`Plan::slots`] says where.
//!
//! Some recipes have a rule that only the host can do. Their plan says so beforehand ([`Plan::host_stages`],
//! with the bytes that are copied), and `enqueue` waits for them; it cannot be captured.

mod exec;
mod host;
mod image;
mod launches;
mod staged;

pub use image::DeviceRollouts;
pub use lockstep_ops::{Memory, Queue};

use crate::columns::{Element, Shape};
use crate::recipe::Call;
use crate::rollouts::Views;
use crate::{Error, Outputs, Recipe};
use exec::{ALIGN, Exec};
use lockstep_core::ragged::{Cells, In, Offsets, Out, flag};

/// The largest batch that a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// N.
    pub tokens: usize,
    /// S.
    pub sequences: usize,
    /// G.
    pub groups: usize,
}

/// What a plan runs.
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
    /// Whether it is among them.
    pub fn has(self, call: Call) -> bool {
        !matches!((self, call), (Calls::Advantages, Call::Loss) | (Calls::Loss, Call::Advantages))
    }
}

/// A result in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name of the field of [`Credit`](crate::Credit) or [`Loss`](crate::Loss); `sums` and `maxima` make
    /// the metrics, `alarm` comes once a stage.
    pub name: &'static str,
    /// Type of its elements.
    pub element: Element,
    /// How many.
    pub len: usize,
    /// First byte in the workspace.
    pub offset: usize,
}

/// A call that a plan leaves to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStage {
    /// Which.
    pub call: Call,
    /// The TOML key whose rule has no launch.
    pub stage: &'static str,
    /// Bytes that are copied to the host and back at full capacity.
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

/// What is refused of a row.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// What is above the limit of an alarm.
    Alarm,
    /// Any of these status bits.
    Bits(u32),
    /// Fewer than so many, but for the 0 of rows behind the batch.
    Below(u32),
}

/// Launches, workspace and results of a recipe's calls.
#[derive(Clone, Debug)]
pub struct Plan {
    recipe: Recipe,
    calls: Calls,
    capacity: Capacity,
    outputs: Outputs,
    /// The batch is as large as the capacity, always.
    exact: bool,
    slots: Vec<Slot>,
    alarms: Vec<Alarm>,
    launches: Vec<&'static str>,
    host: Vec<HostStage>,
    ends: [usize; 2],
}

/// What the loss reads of a credit, in device memory; for a plan of [`Calls::Loss`].
#[derive(Clone, Copy, Debug)]
pub struct CreditViews<'a> {
    /// `[S]`, or `[N]` where `per_token`.
    pub advantage: In<'a, f32>,
    /// Whether there is one advantage per token.
    pub per_token: bool,
    /// `[N]`.
    pub loss_mask: Option<In<'a, u8>>,
    /// `[N]`.
    pub weights: Option<In<'a, f32>>,
    /// `[N]`.
    pub returns: Option<In<'a, f32>>,
}

impl Recipe {
    /// The launches of this recipe's calls for batches of up to `capacity`. A smaller batch brings columns of
    /// the capacity's length: offsets go on with their last value, what lies behind the batch in other
    /// columns is not looked at.
    ///
    /// Errors: a recipe whose choices do not go together; a capacity of nothing.
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

    /// The same for batches of exactly this size: without the column `counts` too, all of their sequences can
    /// count.
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
        for (name, number) in [("tokens", tokens), ("sequences", sequences), ("groups", groups)] {
            if number == 0 || number >= u32::MAX as usize {
                let because = "a number from 1 to below 2^32";
                return Err(Error::Plan(format!("capacity.{name} is {number}: expected {because}")));
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
        plan.pass(&mut exec, &columns, None)?;
        let [results, scratch] = exec.ends;
        plan.ends = [results, results + scratch];
        (plan.slots, plan.alarms, plan.launches) = (exec.slots, exec.alarms, exec.launches);
        Ok(plan)
    }
}

impl Plan {
    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Its capacity.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The ops that are launched, in order; `batch_counts` only for a batch without the column `counts`, or
    /// where the aggregation's horizon is the longest sequence.
    pub fn launches(&self) -> &[&'static str] {
        &self.launches
    }

    /// The calls that the host does; empty where the plan is launches alone.
    pub fn host_stages(&self) -> &[HostStage] {
        &self.host
    }

    /// Bytes that the workspace must have; a GPU's is aligned to 256.
    pub fn workspace_bytes(&self) -> usize {
        self.ends[1]
    }

    /// The results and where they lie.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The result of this name, if the plan has it.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.iter().copied().find(|slot| slot.name == name)
    }

    /// Puts the plan into a queue, over columns and a workspace that are memory of the queue's device. For
    /// [`Calls::Loss`] `credit` says what the advantages came to; otherwise it is not looked at.
    ///
    /// Errors, before anything is launched: columns that are missing, all of them, each with the stage that
    /// wants it; a column of another length than the capacity's; a workspace that is too small or not
    /// aligned.
    ///
    /// # Safety
    /// Until the queue has run it:
    /// * every column is memory that the device reaches, initialised, and written by nobody; the workspace is
    ///   used by nobody else, and was zeroed once: sequences of the capacity that no group of the batch has
    ///   are read where no launch writes;
    /// * offsets start at 0, never decrease and end at most at the capacity: the ops
    ///   [`check_offsets`](lockstep_core::check::CheckOffsets) ask the device.
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

    /// [`Plan::enqueue`] with the result `coef` in an array of the caller's, `[N]`, instead of the workspace.
    ///
    /// # Safety
    /// As there; `coef` too is memory of the device that nobody else uses meanwhile.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue_with(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
        (workspace, coef): (Out<'_, u8>, Option<Out<'_, f32>>),
    ) -> Result<(), Error> {
        self.check(columns, credit)?;
        let (expected, because) = (self.capacity.tokens, "what the plan's capacity says");
        if let Some(got) = coef.as_ref().map(|coef| coef.len()).filter(|got| *got != expected) {
            return Err(lockstep_core::Error::Length { argument: "coef", expected, because, got }.into());
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
        self.pass(&mut exec, columns, credit)
    }

    /// Whether the columns are there, of the capacity's lengths.
    fn check(&self, columns: &Views<'_>, credit: Option<&CreditViews<'_>>) -> Result<(), Error> {
        for call in [Call::Advantages, Call::Loss] {
            if self.calls.has(call) {
                self.recipe.check_columns(call, columns.columns())?;
            }
        }
        for column in columns.columns().iter() {
            let Some(expected) = self.capacity.length(column.shape()) else { continue };
            let got = columns.length(column).unwrap_or(0);
            if got != expected {
                let because = "what the plan's capacity says";
                let argument = column.name();
                return Err(lockstep_core::Error::Length { argument, expected, because, got }.into());
            }
        }
        if self.calls == Calls::Loss {
            let Some(credit) = credit else {
                return Err(Error::Plan("a plan of the loss alone needs the credit's views".into()));
            };
            let own = if credit.per_token { self.capacity.tokens } else { self.capacity.sequences };
            let tokens = self.capacity.tokens;
            let lengths = [
                ("credit.advantage", Some(credit.advantage.len()), own),
                ("credit.loss_mask", credit.loss_mask.map(In::len), tokens),
                ("credit.weights", credit.weights.map(In::len), tokens),
                ("credit.returns", credit.returns.map(In::len), tokens),
            ];
            for (argument, got, expected) in lengths {
                if got.is_some_and(|got| got != expected) {
                    let (because, got) = ("what the plan's capacity says", got.unwrap_or(0));
                    return Err(lockstep_core::Error::Length { argument, expected, because, got }.into());
                }
            }
        }
        Ok(())
    }

    /// Waits for the queue and asks whether a stage met a bad value: a log-probability above 0, a NaN, a
    /// group of one where that is an error.
    ///
    /// Errors: the stage and the row (a sequence or a group) of the first.
    ///
    /// # Safety
    /// `workspace` is the one of the last [`Plan::enqueue`], still there.
    #[allow(unsafe_code)]
    pub unsafe fn alarms(&self, queue: &Queue, workspace: Cells<'_, u8>) -> Result<(), Error> {
        queue.synchronize()?;
        for alarm in &self.alarms {
            let mut rows = vec![0_u32; alarm.rows];
            // SAFETY: the caller's; the array lies in the workspace.
            unsafe { queue.download(workspace.as_ptr().wrapping_add(alarm.offset).cast(), &mut rows)? };
            self.judge(alarm, &rows)?;
        }
        Ok(())
    }

    /// [`Plan::enqueue`] with everything checked: looks at the offsets first, waits, and says the column and
    /// index of a bad value. `coef`: an array of the caller's, `[N]`, for that result.
    ///
    /// # Safety
    /// As for [`Plan::enqueue`], but for the offsets of sequences and groups; `coef` is as the workspace.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue_checked(
        &self,
        queue: &Queue,
        columns: &Views<'_>,
        credit: Option<&CreditViews<'_>>,
        (workspace, coef): (Out<'_, u8>, Option<Out<'_, f32>>),
    ) -> Result<(), Error> {
        let Capacity { tokens, sequences, .. } = self.capacity;
        let of_tokens = ("cu_seqlens", columns.cu_seqlens, tokens, "tokens");
        for (name, column, end, of) in [of_tokens, ("cu_groups", columns.cu_groups, sequences, "sequences")] {
            Offsets::new(name, &column.map_or(Ok(Vec::new()), |column| host::read(queue, column))?, end, of)?;
        }
        // SAFETY: the caller's; the offsets are offsets.
        unsafe {
            let written = *workspace;
            self.enqueue_with(queue, columns, credit, (workspace, coef))?;
            let Err(error) = self.alarms(queue, written) else { return Ok(()) };
            self.diagnose(queue, columns, credit)?;
            Err(error)
        }
    }

    fn judge(&self, alarm: &Alarm, rows: &[u32]) -> Result<(), Error> {
        let bad = |row: &u32| match alarm.bad {
            Bad::Alarm => *row > flag::LIMIT,
            Bad::Bits(bits) => row & bits != 0,
            Bad::Below(least) => (1..least).contains(row),
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
    /// Length of a column; none where the column itself says it.
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
