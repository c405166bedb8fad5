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

/// Launches over memory of a fixed size. Any number of threads may use it at once, each with a workspace of its own.
pub struct ls_plan {
    own: Plan,
}

/// What a plan is of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_plan_options {
    /// `sizeof(ls_plan_options)`.
    pub size: u32,
    /// `LS_CALL_ADVANTAGES`, `LS_CALL_LOSS`, or their sum.
    pub calls: u32,
    /// The largest batch: N.
    pub tokens: u64,
    /// S.
    pub sequences: u64,
    /// G.
    pub groups: u64,
    /// A sum of `LS_OUTPUT_…`.
    pub outputs: u32,
    /// Not 0: every batch has this very size; 0: smaller ones come padded, offsets with their last value.
    pub exact: u32,
}

// SAFETY: `repr(C)`, the size first, then numbers.
unsafe impl Sized32 for ls_plan_options {}

/// A result in a plan's workspace.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_slot {
    /// Its name, that of the array of `ls_credit_array` or `ls_output_array`; `sums` and `maxima` are for `ls_metrics`.
    pub name: *const c_char,
    /// How many elements.
    pub len: usize,
    /// First byte in the workspace.
    pub offset: usize,
    /// Type of the elements.
    pub element: ls_element,
}

/// A call that a plan leaves to the host, with copies and waiting; such a plan cannot be captured.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_host_stage {
    /// The TOML key whose rule has no launch.
    pub stage: *const c_char,
    /// Bytes that are copied to the host and back at full capacity.
    pub bytes: usize,
    /// `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
    pub call: u32,
}

/// Makes a plan; it keeps a copy of the recipe.
///
/// # Safety
/// `recipe` is null or open; `options` is null or as long as its first field says; `out` is null or that of a pointer, which is null after
/// a failure. `ls_plan_free` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_new(
    recipe: *const ls_recipe,
    options: *const ls_plan_options,
    out: *mut *mut ls_plan,
) -> ls_status {
    // SAFETY: the caller's.
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
            // A size that does not fit is refused as too large.
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

/// Frees a plan; null is nothing.
///
/// # Safety
/// `plan` is null, or an open plan that nothing uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_free(plan: *mut ls_plan) {
    // SAFETY: the caller's.
    unsafe { take_back(plan) }
}

/// Bytes that the workspace must have; 0 for a null. A GPU's is aligned to 256 bytes, a CPU's to 8; it is zeroed once.
///
/// # Safety
/// `plan` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_workspace_bytes(plan: *const ls_plan) -> usize {
    // SAFETY: the caller's.
    enter_or(0, || Ok(unsafe { given(plan, "plan")? }.own.workspace_bytes()))
}

fn said(slot: &Slot) -> ls_slot {
    let Slot { name, element, len, offset, .. } = *slot;
    ls_slot { name: forever(name), len, offset, element: element.into() }
}

/// Where the result of a name lies in the workspace. `LS_STATUS_ABSENT` where the plan makes none.
///
/// # Safety
/// `plan` is null or open; `name` is null or ends with a 0; `out` is null or that of an `ls_slot`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_slot(
    plan: *const ls_plan,
    name: *const c_char,
    out: *mut ls_slot,
) -> ls_status {
    // SAFETY: the caller's.
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

/// The slots that are results.
fn results(plan: &ls_plan) -> impl Iterator<Item = &Slot> {
    plan.own.slots().iter().filter(|slot| slot.name != "alarm")
}

/// Writes where the results lie, at most `capacity` of them, and returns how many there are; 0 for a null.
///
/// # Safety
/// `plan` is null or open; `out` has room for `capacity` entries, or both are null and 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_slots(plan: *const ls_plan, out: *mut ls_slot, capacity: usize) -> usize {
    // SAFETY: the caller's.
    enter_or(0, || unsafe { list(results(given(plan, "plan")?).map(said).collect(), out, capacity, "out") })
}

/// Writes the names of the ops that are launched, in order, at most `capacity` of them, and returns how many there are; 0 for a null.
///
/// # Safety
/// As for `ls_plan_slots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_launches(
    plan: *const ls_plan,
    out: *mut *const c_char,
    capacity: usize,
) -> usize {
    // SAFETY: the caller's.
    enter_or(0, || unsafe {
        let names = given(plan, "plan")?.own.launches().iter().map(|name| forever(name)).collect();
        list(names, out, capacity, "out")
    })
}

/// Writes the calls that are left to the host, at most `capacity` of them, and returns how many there are; 0 where the plan is launches
/// alone, and for a null.
///
/// # Safety
/// As for `ls_plan_slots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_host_stages(
    plan: *const ls_plan,
    out: *mut ls_host_stage,
    capacity: usize,
) -> usize {
    // SAFETY: the caller's.
    enter_or(0, || unsafe {
        let stages = given(plan, "plan")?.own.host_stages().iter().map(|host| ls_host_stage {
            stage: forever(host.stage),
            bytes: host.bytes,
            call: number(host.call),
        });
        list(stages.collect(), out, capacity, "out")
    })
}

/// What is passed to a run of a plan.
type Run<'a> = (&'a Plan, &'a Queue, Views<'a>, Option<CreditViews<'a>>, Out<'a, u8>);

/// # Safety
/// As for [`ls_plan_enqueue`].
unsafe fn with(
    (plan, device, stream): (*const ls_plan, *const ls_device, *mut c_void),
    (rollouts, credit): (*const ls_rollouts, *const ls_credit_views),
    (workspace, bytes): (*mut c_void, usize),
    run: impl FnOnce(Run<'_>) -> Result<(), lockstep::Error>,
) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        let (plan, device) = (given(plan, "plan")?, given(device, "device")?);
        let (columns, credit) = (ls_rollouts::views(rollouts)?, ls_credit_views::views(credit)?);
        given(workspace.cast::<u8>(), "workspace")?;
        let queue = device.own.queue_on(stream)?;
        Ok(run((&plan.own, &queue, columns, credit, Out::from_raw(workspace.cast(), bytes)))?)
    })
}

/// Puts the plan into a stream (`CUstream`, `cudaStream_t`, `hipStream_t`; null: the default one; a CPU does not look and runs it at once).
/// Columns, credit and workspace are the device's memory. No allocation, no copy, no waiting, so that a graph can capture it, unless
/// `ls_plan_host_stages` says otherwise. `credit` is for a plan of the loss alone, else null.
///
/// Lengths are checked now, against the plan's; values are when `ls_plan_alarms` asks. Offsets are believed: `ls_plan_run` looks at them.
///
/// # Safety
/// Until the stream has run it: columns are initialised and written by nobody, the workspace is used by nobody else and was zeroed once;
/// offsets start at 0, never decrease and end at most at the capacity. The stream is the device's.
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
    // SAFETY: the caller's.
    unsafe {
        with((plan, device, stream), (rollouts, credit), (workspace, workspace_bytes), |run| {
            let (plan, queue, columns, credit, workspace) = run;
            plan.enqueue(queue, &columns, credit.as_ref(), workspace)
        })
    }
}

/// Waits for the stream and asks whether a stage met a bad value: a log-probability above 0, a NaN, a group of one where that is an error.
///
/// # Safety
/// `workspace` is the one of the last `ls_plan_enqueue` of this plan, still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_plan_alarms(
    plan: *const ls_plan,
    device: *const ls_device,
    stream: *mut c_void,
    workspace: *mut c_void,
    workspace_bytes: usize,
) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        let (plan, device) = (given(plan, "plan")?, given(device, "device")?);
        given(workspace.cast::<u8>(), "workspace")?;
        let want = plan.own.workspace_bytes();
        if workspace_bytes < want {
            let says = format!("has {workspace_bytes} bytes: expected at least {want}");
            return Err(Refusal::new(ls_status::Argument, "workspace", says));
        }
        let queue = device.own.queue_on(stream)?;
        Ok(plan.own.alarms(&queue, *Out::from_raw(workspace.cast(), workspace_bytes))?)
    })
}

/// `ls_plan_enqueue` with everything checked: it looks at the offsets, waits, asks the alarms, and says the column and index of a bad
/// value.
///
/// # Safety
/// As for `ls_plan_enqueue`; the offsets may be wrong.
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
    // SAFETY: the caller's.
    unsafe {
        with((plan, device, stream), (rollouts, credit), (workspace, workspace_bytes), |run| {
            let (plan, queue, columns, credit, workspace) = run;
            plan.enqueue_checked(queue, &columns, credit.as_ref(), (workspace, None))
        })
    }
}
