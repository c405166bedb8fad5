//! Benchmarks of the ops that have none of their own: a random case of the conformance suite with as many
//! rows, and as long ones, as the inputs.

use crate::Inputs;
use crate::ops::{Bench, checksum, step};
use lockstep::{Device, Error};
use lockstep_conformance::backend::{AnyKernel, Backend};
use lockstep_conformance::{cases::random::random_of, launch, output::Output};
use lockstep_core::op::OpInfo;
use std::cell::{Cell, RefCell};

/// Runs nothing, and counts the bytes of the arrays.
struct Bytes(Cell<usize>);

impl Backend for Bytes {
    fn name(&self) -> String {
        "bytes of the arrays".into()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let bytes = kernel.parameters().arrays().iter().map(|array| array.bytes).sum::<usize>();
        self.0.set(self.0.get() + bytes);
        Ok(())
    }
}

/// A device, and the error of its last launch.
struct On<'a>(&'a Device, RefCell<Option<Error>>);

impl Backend for On<'_> {
    fn name(&self) -> String {
        self.0.describe()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.run_on(self.0).map_err(|error| {
            let said = error.to_string();
            self.1.replace(Some(error));
            said
        })
    }
}

/// The benchmark of `op`, unless conformance has no cases of it.
pub(crate) fn bench<'a>(op: &'static OpInfo, inputs: &Inputs) -> Option<Bench<'a>> {
    let offsets = if op.row == "group" { &inputs.cu_groups } else { &inputs.cu_seqlens };
    let lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let case = random_of(op.name, 1, lengths)?;
    let bytes = Bytes(Cell::new(0));
    launch::run(&bytes, &case).ok()?;
    let per_token = bytes.0.get() as f64 / inputs.tokens() as f64;
    Some(Bench::new(op.name, per_token, move |device| {
        let on = On(device, RefCell::new(None));
        // A case that an op refuses is a mistake of the suite's.
        let failed = |said: String| on.1.take().unwrap_or_else(|| panic!("{said}"));
        let outputs = launch::run(&on, &case).map_err(failed)?;
        let read = |output: &Output| (0..output.len()).step_by(step(output.len()));
        Ok(checksum(outputs.len(), outputs.iter().flat_map(|output| read(output).map(|i| output.bits(i)))))
    }))
}
