//! Plans: a recipe's calls over the device's memory, on the caller's stream.

use crate::columns::{ls_credit_views, ls_element, ls_rollouts};
use crate::device::ls_device;
use crate::error::{Refusal, enter, enter_or, ls_status};
use crate::recipe::{ls_recipe, number};
use crate::results::outputs;
use crate::text::{Sized32, forever, given, given_mut, hand_out, list, sized, take_back, text};
use lockstep::Plan;
use lockstep::Views;
use lockstep::core::ragged::Out;
use lockstep::plan::{Calls, Capacity, CreditViews, Queue, Slot};
use std::ffi::{c_char, c_void};

/// The call `ls_advantages`.
pub const LS_CALL_ADVANTAGES: u32 = 1;
/// The call `ls_loss`.
pub const LS_CALL_LOSS: u32 = 2;

/// A plan: launches over memory of a fixed size. Any number of threads may use it at once, each with its own
/// workspace.
pub struct ls_plan {
    own: Plan,
}

/// The options of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_plan_options {
    /// `sizeof(ls_plan_options)`.
    pub size: u32,
    /// `LS_CALL_ADVANTAGES`, `LS_CALL_LOSS`, or their sum.
    pub calls: u32,
    /// N of the largest batch.
    pub tokens: u64,
    /// S of the largest batch.
    pub sequences: u64,
    /// G of the largest batch.
    pub groups: u64,
    /// A sum of `LS_OUTPUT_…` values.
    pub outputs: u32,
    /// Nonzero: every batch has exactly this size; 0: smaller batches come padded, offsets with their last
    /// value.
    pub exact: u32,
}

// SAFETY: `repr(C)`; the size comes first, then numbers.
unsafe impl Sized32 for ls_plan_options {}

/// A result in a plan's workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_slot {
    /// The result's name, as in `ls_credit_array` and `ls_output_array`; `sums` and `maxima` are for
    /// `ls_metrics`. In a padded batch, the last of `counts` is the capacity in sequences.
    pub name: *const c_char,
    /// The number of elements.
    pub len: usize,
    /// Byte offset in the workspace.
    pub offset: usize,
    /// The type of the elements.
    pub element: ls_element,
}

/// A call that a plan runs on the host, with copies and waits. Such a plan cannot be captured.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_host_stage {
    /// The TOML key of the rule that has no launch.
    pub stage: *const c_char,
    /// Bytes copied to the host and back at full capacity.
    pub bytes: usize,
    /// `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
    pub call: u32,
}

/// Makes a plan. The plan keeps a copy of the recipe.
///
/// # Safety
/// `recipe` is null or open; `options` is null or as long as its first field states; `out` is null or points
/// to a pointer, which is null after a failure. Free the plan with `ls_plan_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_new(
    recipe: *const ls_recipe,
    options: *const ls_plan_options,
    out: *mut *mut ls_plan,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let (recipe, options) = (&given(recipe, "recipe")?.own, sized(options, "options")?);
            let calls = match options.calls {
                LS_CALL_ADVANTAGES => Calls::Advantages,
                LS_CALL_LOSS => Calls::Loss,
                3 => Calls::Both,
                calls => {
                    let says = format!("is {calls}: expected LS_CALL_ADVANTAGES, LS_CALL_LOSS or their sum");
                    return Err(Refusal::new(ls_status::Argument, "calls", says));
                }
            };
            // A size beyond `usize` is refused as too large.
            let number = |of: u64| usize::try_from(of).unwrap_or(usize::MAX);
            let size = Capacity {
                tokens: number(options.tokens),
                sequences: number(options.sequences),
                groups: number(options.groups),
            };
            let outputs = outputs(options.outputs)?;
            let exact = options.exact != 0;
            let plan = if exact {
                recipe.plan_exactly(size, calls, outputs)
            } else {
                recipe.plan(size, calls, outputs)
            };
            Ok(ls_plan { own: plan? })
        })
    })
}

/// Frees a plan; does nothing if it is null.
///
/// # Safety
/// `plan` is null, or an open plan that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_free(plan: *mut ls_plan) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(plan) }
}

/// The size of the workspace in bytes; 0 if `plan` is null. Align a GPU workspace to 256 bytes, a CPU
/// workspace to 8; zero it once.
///
/// # Safety
/// `plan` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_workspace_bytes(plan: *const ls_plan) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || Ok(unsafe { given(plan, "plan")? }.own.workspace_bytes()))
}

fn said(slot: &Slot) -> ls_slot {
    let Slot { name, element, len, offset, .. } = *slot;
    ls_slot { name: forever(name), len, offset, element: element.into() }
}

/// Writes where the result `name` lies in the workspace. `LS_STATUS_ABSENT` if the plan has no such result.
///
/// # Safety
/// `plan` is null or open; `name` is null or a 0-terminated string; `out` is null or points to an `ls_slot`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_slot(
    plan: *const ls_plan,
    name: *const c_char,
    out: *mut ls_slot,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (plan, name, out) = (given(plan, "plan")?, text(name, "name")?, given_mut(out, "out")?);
        *out = said(&plan.own.slot(name).ok_or_else(|| {
            let there: Vec<_> = results(plan).map(|slot| slot.name).collect();
            let says = format!("is `{name}`: the plan has {}", there.join(", "));
            Refusal::new(ls_status::Absent, "name", says)
        })?);
        Ok(())
    })
}

/// Returns the slots that hold results.
fn results(plan: &ls_plan) -> impl Iterator<Item = &Slot> {
    plan.own.slots().iter().filter(|slot| slot.name != "alarm")
}

/// Writes where at most `capacity` of the results lie, and returns how many there are; 0 if `plan` is null.
///
/// # Safety
/// `plan` is null or open; `out` has room for `capacity` entries, or `out` is null and `capacity` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_slots(plan: *const ls_plan, out: *mut ls_slot, capacity: usize) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe { list(results(given(plan, "plan")?).map(said).collect(), out, capacity, "out") })
}

/// Writes at most `capacity` names of the launched ops, in order, and returns how many there are; 0 if `plan`
/// is null.
///
/// # Safety
/// As for `ls_plan_slots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_launches(
    plan: *const ls_plan,
    out: *mut *const c_char,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe {
        let names = given(plan, "plan")?.own.launches().iter().map(|name| forever(name)).collect();
        list(names, out, capacity, "out")
    })
}

/// Writes at most `capacity` of the calls that run on the host, and returns how many there are; 0 if the plan
/// consists of launches alone or is null.
///
/// # Safety
/// As for `ls_plan_slots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_host_stages(
    plan: *const ls_plan,
    out: *mut ls_host_stage,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe {
        let stages = given(plan, "plan")?.own.host_stages().iter().map(|host| ls_host_stage {
            stage: forever(host.stage),
            bytes: host.bytes,
            call: number(host.call),
        });
        list(stages.collect(), out, capacity, "out")
    })
}

/// The arguments of a plan's run.
type Run<'a> = (&'a Plan, &'a Queue, Views<'a>, Option<CreditViews<'a>>, Out<'a, u8>);

/// # Safety
/// As for [`ls_plan_enqueue`].
unsafe fn with(
    (plan, device, stream): (*const ls_plan, *const ls_device, *mut c_void),
    (rollouts, credit): (*const ls_rollouts, *const ls_credit_views),
    (workspace, bytes): (*mut c_void, usize),
    run: impl FnOnce(Run<'_>) -> Result<(), lockstep::Error>,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (plan, device) = (given(plan, "plan")?, given(device, "device")?);
        let (columns, credit) = (ls_rollouts::views(rollouts)?, ls_credit_views::views(credit)?);
        given(workspace.cast::<u8>(), "workspace")?;
        let queue = device.own.queue_on(stream)?;
        Ok(run((&plan.own, &queue, columns, credit, Out::from_raw(workspace.cast(), bytes)))?)
    })
}

/// Enqueues the plan on a stream (`CUstream`, `cudaStream_t` or `hipStream_t`; null: the default stream; a
/// CPU ignores it and runs at once). Columns, credit and workspace are in device memory. Unless
/// `ls_plan_host_stages` lists any, the call neither allocates, copies nor waits, so a graph can capture it.
/// A plan's first call on a device loads its kernels, which must have happened before a capture.
/// Pass `credit` for a plan of the loss alone, else null.
/// This call checks lengths against the plan's; `ls_plan_alarms` reports bad values. Offsets are trusted:
/// `ls_plan_run` checks them.
///
/// # Safety
/// Until the stream has run the plan: nobody writes the columns, which are initialised; nobody else uses the
/// workspace, which was zeroed once; offsets start at 0, never decrease and end at most at the capacity. The
/// stream belongs to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_enqueue(
    plan: *const ls_plan,
    device: *const ls_device,
    stream: *mut c_void,
    rollouts: *const ls_rollouts,
    credit: *const ls_credit_views,
    workspace: *mut c_void,
    workspace_bytes: usize,
) -> ls_status {
    // SAFETY: the caller upholds it.
    unsafe {
        with((plan, device, stream), (rollouts, credit), (workspace, workspace_bytes), |run| {
            let (plan, queue, columns, credit, workspace) = run;
            plan.enqueue(queue, &columns, credit.as_ref(), workspace)
        })
    }
}

/// Waits for the stream and fails if a stage met a bad value: a log-probability above 0, a NaN, or a group of
/// one where that is an error.
///
/// # Safety
/// `workspace` is the workspace of this plan's last `ls_plan_enqueue`, not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_alarms(
    plan: *const ls_plan,
    device: *const ls_device,
    stream: *mut c_void,
    workspace: *mut c_void,
    workspace_bytes: usize,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (plan, device) = (given(plan, "plan")?, given(device, "device")?);
        given(workspace.cast::<u64>(), "workspace")?;
        let want = plan.own.workspace_bytes();
        if workspace_bytes < want {
            let says = format!("has {workspace_bytes} bytes: expected at least {want}");
            return Err(Refusal::new(ls_status::Argument, "workspace", says));
        }
        let queue = device.own.queue_on(stream)?;
        Ok(plan.own.alarms(&queue, *Out::from_raw(workspace.cast(), workspace_bytes))?)
    })
}

/// Like `ls_plan_enqueue`, with every check: checks the offsets, waits for the stream, reads the alarms, and
/// reports the column and index of a bad value.
///
/// # Safety
/// As for `ls_plan_enqueue`, except that the offsets may be invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_run(
    plan: *const ls_plan,
    device: *const ls_device,
    stream: *mut c_void,
    rollouts: *const ls_rollouts,
    credit: *const ls_credit_views,
    workspace: *mut c_void,
    workspace_bytes: usize,
) -> ls_status {
    // SAFETY: the caller upholds it.
    unsafe {
        with((plan, device, stream), (rollouts, credit), (workspace, workspace_bytes), |run| {
            let (plan, queue, columns, credit, workspace) = run;
            plan.enqueue_checked(queue, &columns, credit.as_ref(), (workspace, None))
        })
    }
}
