//! What runs a kernel. A backend is covered by the [suite](crate::suite) by implementing one method.

use lockstep::{Compiled, Device};
use lockstep_core::op::{Decoder, Encoder, MAX_POINTERS, MAX_WORDS, OpInfo};
use lockstep_core::ragged::{In, Out};
use lockstep_cpu::Cpu;
use lockstep_embedded::launches::Recorded;
use lockstep_gpu::Encoded;
use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Something that runs every row of an op.
pub trait Backend {
    /// The name in reports: `avx2, 2 threads`.
    fn name(&self) -> String;
    /// Runs the op. Errors: why it could not run.
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String>;
}

/// Where an array stands among the words of the launch arguments.
#[derive(Clone, Copy, Debug)]
pub struct ArrayLayout {
    /// The word that holds its length.
    pub word: usize,
    /// The size of an element in bytes.
    pub size: usize,
    /// Whether it is an input of integers, such as indices.
    pub integers: bool,
}

/// A kernel of any op. A backend that knows it as this is compiled once, not for every op.
pub trait AnyKernel: Encoded {
    /// Where the arrays stand in the launch arguments.
    fn layout(&self) -> Vec<ArrayLayout>;
    /// See [`Device::run`].
    fn run_on(&self, device: &Device) -> Result<(), lockstep::Error>;
    /// See [`Cpu::rows`].
    fn rows_on(&self, cpu: &Cpu, rows: Range<usize>);
    /// See [`Recorded::launch`].
    fn record(&self, launches: &mut Recorded, seed: u32);
    /// Calls `with` with the kernel that other arguments encode.
    ///
    /// # Safety
    /// As for [`Arg::decode`](lockstep_core::op::Arg::decode).
    #[allow(unsafe_code)]
    unsafe fn decoded(
        &self,
        pointers: [*mut u8; MAX_POINTERS],
        words: [u64; MAX_WORDS],
        with: &mut dyn FnMut(&dyn AnyKernel),
    );
}

impl<K: Compiled> AnyKernel for K {
    fn layout(&self) -> Vec<ArrayLayout> {
        let mut layout = Layout::default();
        self.encode(&mut layout);
        layout.arrays
    }
    fn run_on(&self, device: &Device) -> Result<(), lockstep::Error> {
        device.run(self)
    }
    fn rows_on(&self, cpu: &Cpu, rows: Range<usize>) {
        cpu.rows(self, rows);
    }
    fn record(&self, launches: &mut Recorded, seed: u32) {
        launches.launch(self, seed);
    }
    #[allow(unsafe_code)]
    unsafe fn decoded(
        &self,
        pointers: [*mut u8; MAX_POINTERS],
        words: [u64; MAX_WORDS],
        with: &mut dyn FnMut(&dyn AnyKernel),
    ) {
        // SAFETY: the caller's.
        with(&unsafe { K::decode(&mut Decoder::new(pointers, words)) });
    }
}

#[derive(Default)]
struct Layout {
    words: usize,
    arrays: Vec<ArrayLayout>,
}

impl Layout {
    fn array(&mut self, size: usize, integers: bool) {
        self.arrays.push(ArrayLayout { word: self.words, size, integers });
        self.words += 1;
    }
}

impl Encoder for Layout {
    fn word(&mut self, _word: u64) {
        self.words += 1;
    }
    fn input<T: Copy>(&mut self, _array: Option<In<'_, T>>) {
        self.array(size_of::<T>(), type_name::<T>().starts_with('u'));
    }
    fn output<T: Copy>(&mut self, _array: Option<&Out<'_, T>>) {
        self.array(size_of::<T>(), false);
    }
}

impl Backend for Device {
    fn name(&self) -> String {
        self.describe()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.run_on(self).map_err(|error| error.to_string())
    }
}

/// Runs one row and leaves the other rows' outputs untouched, which shows what a row writes on its own.
#[derive(Clone, Debug)]
pub struct OneRow {
    /// The CPU to run on.
    pub cpu: Cpu,
    /// The row.
    pub row: usize,
}

impl Backend for OneRow {
    fn name(&self) -> String {
        format!("{}, row {} only", self.cpu.level(), self.row)
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.rows_on(&self.cpu, self.row..self.row + 1);
        Ok(())
    }
}

/// Runs nothing, and records the entry points of single warps that launches with rows take on a GPU.
#[derive(Debug, Default)]
pub struct Entries(pub RefCell<BTreeSet<&'static str>>);

impl Backend for Entries {
    fn name(&self) -> String {
        "entry points".into()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let parameters = kernel.parameters();
        let op = OpInfo::named(parameters.op()).ok_or("not in the table")?;
        if parameters.rows() > 0 {
            self.0.borrow_mut().insert(op.entries[parameters.variant()]);
        }
        Ok(())
    }
}
