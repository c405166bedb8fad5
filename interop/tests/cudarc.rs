//! Plans over cudarc's memory, on cudarc's streams, give the bits of the two calls on the CPU.
//!
//! They need a CUDA driver, a real one or the emulated one: `LOCKSTEP_EMULATOR='devices=2' cargo xtask
//! emulate cuda -- cargo test --release -p lockstep-interop --features cudarc --test cudarc -- --ignored`

use ::cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use lockstep::core::ragged::{In, Out};
use lockstep::plan::{Calls, Capacity, Plan};
use lockstep::{Credit, Device, Loss, Outputs, Recipe, RolloutsBuf, Views, recipe, synthetic};
use lockstep_interop::Error;
use lockstep_interop::cudarc::{OnStream, result, view, view_mut};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

macro_rules! columns {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// Columns in cudarc's memory.
        struct Uploaded {
            $($name: Option<CudaSlice<$own>>,)*
        }

        impl Uploaded {
            fn new(stream: &Arc<CudaStream>, rollouts: &RolloutsBuf) -> Result<Self> {
                Ok(Uploaded {
                    $($name: rollouts.$name.as_ref().map(|values| stream.clone_htod(values)).transpose()?,)*
                })
            }

            fn views<'a>(&'a self, on: &mut OnStream<'a>) -> std::result::Result<Views<'a>, Error> {
                Ok(Views {
                    $($name: match &self.$name {
                        // SAFETY: for launches on the stream.
                        Some(memory) => Some(unsafe { on.read(memory) }?),
                        None => None,
                    },)*
                })
            }
        }
    };
}
lockstep::for_each_column!(columns);

/// Returns a random batch of a recipe, the results of the two calls on the CPU, and the plan of both.
fn batch(name: &str) -> Result<(RolloutsBuf, (Credit, Loss), Plan)> {
    let recipe = Recipe::named(name)?;
    let rollouts = synthetic::rollouts(&recipe, 8, 96, 1)?;
    let both = recipe.step(&Device::cpu(), &rollouts.view())?;
    let groups = rollouts.batch()?.groups();
    let plan =
        recipe.plan_exactly(Capacity { tokens: 96, sequences: 8, groups }, Calls::Both, Outputs::ALL)?;
    Ok((rollouts, both, plan))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Checks that a plan's workspace holds the CPU's results.
fn check(
    plan: &Plan,
    workspace: &CudaSlice<u8>,
    (credit, loss): &(Credit, Loss),
    stream: &Arc<CudaStream>,
) -> Result<()> {
    let name = &plan.recipe().name;
    let floats = |of| -> Result<Vec<f32>> { Ok(stream.clone_dtoh(&result::<f32>(plan, workspace, of)?)?) };
    assert_eq!(bits(&floats("coef")?), bits(&loss.coef), "{name}");
    if let Some(term) = &loss.entropy {
        assert_eq!(bits(&floats("entropy_coef")?), bits(&term.coef), "{name}");
    }
    if let Some(term) = &loss.value {
        assert_eq!(bits(&floats("value_gradient")?), bits(&term.gradient), "{name}");
    }
    // Tokens that filtering removes are 0 in the credit and unspecified in a plan.
    if credit.keep.is_empty() {
        assert_eq!(bits(&floats("advantage")?), bits(&credit.advantage), "{name}");
    }
    let total = stream.clone_dtoh(&result::<f64>(plan, workspace, "loss")?)?;
    assert_eq!(total[0].to_bits(), loss.loss.unwrap().to_bits(), "{name}");
    Ok(())
}

#[test]
#[ignore = "needs a CUDA driver"]
fn every_recipe() -> Result<()> {
    let (device, stream) = (Device::open("cuda:0")?, CudaContext::new(0)?.new_stream()?);
    for name in recipe::names() {
        let (rollouts, both, plan) = batch(name)?;
        let uploaded = Uploaded::new(&stream, &rollouts)?;
        let mut workspace = stream.alloc_zeros::<u8>(plan.workspace_bytes())?;
        {
            let mut on = OnStream::new(&device, &stream)?;
            let columns = uploaded.views(&mut on)?;
            // SAFETY: columns of the plan's lengths, whose offsets the CPU has checked; a zeroed workspace.
            unsafe {
                let into = on.write(&mut workspace)?;
                plan.enqueue(&on, &columns, None, into)?;
            }
        }
        check(&plan, &workspace, &both, &stream)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs a CUDA driver"]
fn streams_wait_for_each_other() -> Result<()> {
    let (device, context) = (Device::open("cuda:0")?, CudaContext::new(0)?);
    let (first, second) = (context.new_stream()?, context.new_stream()?);
    let (rollouts, both, plan) = batch("dapo")?;
    let mut uploaded = Uploaded::new(&first, &rollouts)?;
    let source = uploaded.logp.take().unwrap();
    // The plan reads the result of work that is only queued on the other stream.
    let mut logp = first.alloc_zeros::<f32>(96)?;
    first.memcpy_dtod(&source, &mut logp)?;
    uploaded.logp = Some(logp);
    let mut workspace = first.alloc_zeros::<u8>(plan.workspace_bytes())?;
    {
        let mut on = OnStream::new(&device, &second)?;
        let columns = uploaded.views(&mut on)?;
        // SAFETY: as above.
        unsafe {
            let into = on.write(&mut workspace)?;
            plan.enqueue(&on, &columns, None, into)?;
        }
    }
    // Work that overwrites it waits for the plan.
    first.memset_zeros(uploaded.logp.as_mut().unwrap())?;
    first.synchronize()?;
    check(&plan, &workspace, &both, &second)
}

#[test]
#[ignore = "needs a CUDA driver"]
fn raw_addresses_and_alarms() -> Result<()> {
    let (device, stream) = (Device::open("cuda:0")?, CudaContext::new(0)?.default_stream());
    let (mut rollouts, both, plan) = batch("grpo")?;
    for bad in [false, true] {
        if bad {
            rollouts.logp.as_mut().unwrap()[5] = 1.0;
        }
        let uploaded = Uploaded::new(&stream, &rollouts)?;
        let mut workspace = stream.alloc_zeros::<u8>(plan.workspace_bytes())?;
        let bytes = workspace.len();
        {
            let mut on = OnStream::new(&device, &stream)?;
            let logp = uploaded.logp.as_ref().unwrap().device_ptr(&stream).0;
            let memory = workspace.device_ptr_mut(&stream).0;
            // SAFETY: addresses and lengths of slices that live longer; otherwise as above.
            unsafe {
                let logp: In<'_, f32> = view(logp, 96);
                let memory = || -> Out<'_, u8> { view_mut(memory, bytes) };
                let columns = Views { logp: Some(logp), ..uploaded.views(&mut on)? };
                plan.enqueue(&on, &columns, None, memory())?;
                let said = plan.alarms(&on, *memory()).map_err(|error| error.to_string());
                assert_eq!(said.is_err(), bad, "{said:?}");
            }
        }
        if !bad {
            check(&plan, &workspace, &both, &stream)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs a CUDA driver"]
fn what_is_wrong_is_named() -> Result<()> {
    let (device, context) = (Device::open("cuda:0")?, CudaContext::new(0)?);
    let stream = context.default_stream();
    let (_, _, plan) = batch("dapo")?;
    let workspace = stream.alloc_zeros::<u8>(512)?;
    let refused = |out: std::result::Result<_, Error>| out.map(|_| ()).unwrap_err().to_string();
    let unknown = refused(result::<f32>(&plan, &workspace, "gradient").map(drop));
    assert!(unknown.contains("gradient") && unknown.contains("coef"), "{unknown}");
    let element = refused(result::<f64>(&plan, &workspace, "coef").map(drop));
    assert!(element.contains("expected f32, got f64"), "{element}");
    let small = refused(result::<f64>(&plan, &workspace, "loss").map(drop));
    assert!(small.contains("workspace") && small.contains("512"), "{small}");

    // A context that cudarc does not recognise as the primary one.
    // SAFETY: the primary context, which stays: the second owner is never dropped.
    let foreign = unsafe { CudaContext::from_raw_context(0, context.cu_device(), context.cu_ctx())? };
    let of_foreign = foreign.default_stream();
    let said = refused(OnStream::new(&device, &of_foreign).map(drop));
    std::mem::forget((foreign, of_foreign));
    assert!(said.contains("primary"), "{said}");

    let cpu = Device::cpu();
    let said = refused(OnStream::new(&cpu, &stream).map(drop));
    assert!(said.contains("cuda:0") && said.contains("cpu"), "{said}");
    if CudaContext::device_count()? > 1 {
        let other = CudaContext::new(1)?.default_stream();
        let said = refused(OnStream::new(&device, &other).map(drop));
        assert!(said.contains("cuda:1") && said.contains("cuda:0"), "{said}");
        let elsewhere = other.alloc_zeros::<f32>(4)?;
        // SAFETY: refused.
        let said = refused(unsafe { OnStream::new(&device, &stream)?.read(&elsewhere) }.map(drop));
        assert!(said.contains("device 0") && said.contains("device 1"), "{said}");
    }
    Ok(())
}
