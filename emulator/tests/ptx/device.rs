//! Ops of core on the emulator: arrays to device memory, the entry point's parameters, arrays back.

use lockstep_core::op::{Arg, Encoder, Kernel, MAX_POINTERS, MAX_WORDS, OPS};
use lockstep_core::ragged::{In, Out};
use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::Fault;
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;

/// What an op wants on the device: its arrays there, and how outputs come back.
pub(crate) struct Encoded<'m> {
    memory: &'m mut Memory,
    pointers: Vec<u64>,
    words: Vec<u64>,
    /// Where each output lies on the device and on the host, in bytes.
    outputs: Vec<(u64, *mut u8, usize)>,
}

impl Encoded<'_> {
    fn array(&mut self, bytes: Option<&[u8]>, len: usize, size: usize) -> u64 {
        self.words.push(len as u64);
        let address = if len == 0 { 0 } else { self.memory.alloc((len * size) as u64).expect("device memory") };
        if let Some(bytes) = bytes {
            self.memory.upload(address, bytes).expect("an upload");
        }
        self.pointers.push(address);
        address
    }
}

#[allow(unsafe_code)]
impl Encoder for Encoded<'_> {
    fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    fn input<T: Copy>(&mut self, array: Option<In<'_, T>>) {
        let len = array.map_or(0, In::len);
        let bytes = array.filter(|_| len > 0).map(|array| {
            // SAFETY: the array lives while it is encoded, and numbers are bytes.
            unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), len * size_of::<T>()) }
        });
        self.array(bytes, len, size_of::<T>());
    }

    fn output<T: Copy>(&mut self, array: Option<Out<'_, T>>) {
        let len = array.map_or(0, |array| array.len());
        let address = self.array(None, len, size_of::<T>());
        if let Some(array) = array {
            self.outputs.push((address, array.as_ptr().cast(), len * size_of::<T>()));
        }
    }
}

/// Runs an op in a grid of `blocks` blocks of `warps` warps. Its outputs are unwritten memory at the start.
pub(crate) fn run<K: Kernel>(
    module: &dyn Program,
    kernel: &K,
    blocks: u32,
    warps: u32,
) -> Result<Counts, Box<Fault>> {
    let mut memory = Memory::new(1 << 32);
    run_in(module, kernel, blocks, warps, &mut memory)
}

/// The same, in memory that the caller looks at afterwards.
#[allow(unsafe_code)]
pub(crate) fn run_in<K: Kernel>(
    module: &dyn Program,
    kernel: &K,
    blocks: u32,
    warps: u32,
    memory: &mut Memory,
) -> Result<Counts, Box<Fault>> {
    let mut to = Encoded { memory, pointers: Vec::new(), words: Vec::new(), outputs: Vec::new() };
    Arg::encode(kernel, &mut to);
    let Encoded { memory, mut pointers, mut words, outputs } = to;
    pointers.resize(MAX_POINTERS, 0);
    words.resize(MAX_WORDS, 0);
    let mut params = (blocks * warps).to_le_bytes().to_vec();
    params.resize(8, 0);
    for value in pointers.iter().chain(&words) {
        params.extend(value.to_le_bytes());
    }
    let op = OPS.iter().find(|op| op.name == K::NAME).expect("an op of the table");
    let entry = op.entries[kernel.variant()];
    let grid = Grid { blocks: [blocks, 1, 1], threads: [32, warps, 1] };
    let counts = module.launch(entry, grid, &params, memory)?;
    for (address, host, bytes) in outputs.into_iter().filter(|(_, _, bytes)| *bytes > 0) {
        // SAFETY: the output lives as long as the kernel, which has it alone.
        let host = unsafe { std::slice::from_raw_parts_mut(host, bytes) };
        memory.download(address, host).expect("a download");
    }
    Ok(counts)
}
