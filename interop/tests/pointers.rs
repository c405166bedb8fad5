//! Buffers shaped like those of bindings that build only with a vendor's SDK: `cust` 0.3 (`DevicePointer<T>`,
//! around a `u64`) and HIP (`hipDeviceptr_t`, a `void *`). A CPU's queue takes addresses as a GPU's does, so
//! the plan runs over them and must give the bits of the two calls.

use lockstep::core::ragged::{In, Out};
use lockstep::plan::{Calls, Capacity, Plan};
use lockstep::{Column, Device, Loss, Outputs, Recipe, RolloutsBuf, Views, synthetic};
use std::ffi::c_void;
use std::marker::PhantomData;

/// As in `cust_core`: the type that `DeviceBuffer::as_device_ptr` returns.
#[repr(transparent)]
struct DevicePointer<T> {
    ptr: u64,
    marker: PhantomData<*mut T>,
}

impl<T> DevicePointer<T> {
    fn of(memory: *const T) -> Self {
        DevicePointer { ptr: memory.expose_provenance() as u64, marker: PhantomData }
    }

    /// `CUdeviceptr`, as in `cust`.
    fn as_raw(&self) -> u64 {
        self.ptr
    }
}

/// As in hip/hip_runtime_api.h for AMD.
#[allow(non_camel_case_types)]
type hipDeviceptr_t = *mut c_void;

/// Returns a batch, the result of the two calls, and a plan.
fn batch() -> (RolloutsBuf, Loss, Plan) {
    let recipe = Recipe::named("dapo").unwrap();
    let rollouts = synthetic::rollouts(&recipe, 8, 100, 7).unwrap();
    let (_, loss) = recipe.step(&Device::cpu(), &rollouts.view()).unwrap();
    let groups = rollouts.batch().unwrap().groups();
    let capacity = Capacity { tokens: 100, sequences: 8, groups };
    let plan = recipe.plan_exactly(capacity, Calls::Both, Outputs::ALL).unwrap();
    (rollouts, loss, plan)
}

/// Returns dL/dlogp of a plan over these columns.
fn coef(plan: &Plan, columns: &Views<'_>) -> Vec<f32> {
    let (device, mut coef) = (Device::cpu(), vec![0.0_f32; plan.capacity().tokens]);
    // SAFETY: a CPU has no stream; columns are memory of this process; the workspace is ours and zeroed.
    unsafe {
        let queue = device.queue_on(std::ptr::null_mut()).unwrap();
        let workspace = queue.alloc(plan.workspace_bytes()).unwrap();
        plan.enqueue(&queue, columns, None, Out::from_raw(workspace.as_ptr(), workspace.len())).unwrap();
        let first = workspace.as_ptr().wrapping_add(plan.slot("coef").unwrap().offset);
        queue.download(first.cast_const().cast(), &mut coef).unwrap();
    }
    coef
}

#[test]
fn pointers_of_cust_one_by_one() {
    let (rollouts, loss, plan) = batch();
    fn column<T: Copy>(values: &Option<Vec<T>>) -> Option<In<'_, T>> {
        let values = values.as_deref()?;
        let pointer = DevicePointer::of(values.as_ptr());
        // SAFETY: the address and the length of a slice that outlives the view.
        Some(unsafe {
            In::from_raw(std::ptr::with_exposed_provenance(pointer.as_raw() as usize), values.len())
        })
    }
    let columns = Views {
        cu_seqlens: column(&rollouts.cu_seqlens),
        cu_groups: column(&rollouts.cu_groups),
        rewards: column(&rollouts.rewards),
        logp_old: column(&rollouts.logp_old),
        logp: column(&rollouts.logp),
        ..Views::default()
    };
    assert_eq!(coef(&plan, &columns), loss.coef);
}

#[test]
fn pointers_of_hip_by_column() {
    let (rollouts, loss, plan) = batch();
    fn pointer<T>(values: &Option<Vec<T>>) -> Option<(hipDeviceptr_t, usize)> {
        let values = values.as_deref()?;
        Some((values.as_ptr().cast_mut().cast(), values.len()))
    }
    // SAFETY: each address is that of as many elements of its column's type.
    let columns = unsafe {
        Views::from_raw(|column| {
            let (at, len) = match column {
                Column::cu_seqlens => pointer(&rollouts.cu_seqlens),
                Column::cu_groups => pointer(&rollouts.cu_groups),
                Column::rewards => pointer(&rollouts.rewards),
                Column::logp_old => pointer(&rollouts.logp_old),
                Column::logp => pointer(&rollouts.logp),
                _ => None,
            }?;
            Some((at.cast_const(), len))
        })
    };
    assert_eq!(coef(&plan, &columns), loss.coef);
}

#[test]
fn a_missing_column_is_named() {
    let (rollouts, _, plan) = batch();
    let cu_seqlens = rollouts.cu_seqlens.as_deref().unwrap();
    let columns = Views { cu_seqlens: Some(In::new(cu_seqlens)), ..Views::default() };
    let queue = Device::cpu().queue().unwrap();
    let workspace = queue.alloc(plan.workspace_bytes()).unwrap();
    // SAFETY: as in `coef`.
    let refused = unsafe {
        plan.enqueue(&queue, &columns, None, Out::from_raw(workspace.as_ptr(), workspace.len())).unwrap_err()
    };
    let refused = refused.to_string();
    assert!(refused.contains("cu_groups") && refused.contains("rewards"), "{refused}");
}
