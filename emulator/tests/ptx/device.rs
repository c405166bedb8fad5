//! Runs core's ops on the emulator: arrays to device memory, the entry point's parameters, arrays back.
#![allow(dead_code, reason = "no test or example uses all of it")]

use lockstep_core::op::{Arg, Encoder, Kernel, MAX_POINTERS, MAX_WORDS, OPS};
use lockstep_core::ragged::{In, Out};
use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::Fault;
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;

/// The shipped text.
pub(crate) const PTX: &str = include_str!("../../../kernels/artifacts/lockstep.ptx");

/// An op's arrays on the device, and where its outputs go.
pub(crate) struct Encoded<'m> {
    memory: &'m mut Memory,
    pointers: Vec<u64>,
    words: Vec<u64>,
    /// Address of each output on the device and on the host, and its size in bytes.
    outputs: Vec<(u64, *mut u8, usize)>,
}

impl Encoded<'_> {
    fn array(&mut self, bytes: Option<&[u8]>, len: usize, size: usize) -> u64 {
        self.words.push(len as u64);
        let address =
            if len == 0 { 0 } else { self.memory.alloc((len * size) as u64).expect("device memory") };
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

    fn output<T: Copy>(&mut self, array: Option<&Out<'_, T>>) {
        let len = array.map_or(0, |array| array.len());
        let address = self.array(None, len, size_of::<T>());
        if let Some(array) = array {
            self.outputs.push((address, array.as_ptr().cast(), len * size_of::<T>()));
        }
    }
}

/// An op whose arrays are on the device.
pub(crate) struct Launch {
    pub(crate) entry: &'static str,
    grid: Grid,
    params: Vec<u8>,
    outputs: Vec<(u64, *mut u8, usize)>,
}

impl Launch {
    /// Copies an op's inputs to the device; its outputs are unwritten memory there.
    pub(crate) fn new<K: Kernel>(kernel: &K, blocks: u32, warps: u32, memory: &mut Memory) -> Launch {
        let mut to = Encoded { memory, pointers: Vec::new(), words: Vec::new(), outputs: Vec::new() };
        Arg::encode(kernel, &mut to);
        let Encoded { mut pointers, mut words, outputs, .. } = to;
        pointers.resize(MAX_POINTERS, 0);
        words.resize(MAX_WORDS, 0);
        let mut params = (blocks * warps).to_le_bytes().to_vec();
        params.resize(8, 0);
        for value in pointers.iter().chain(&words) {
            params.extend(value.to_le_bytes());
        }
        let op = OPS.iter().find(|op| op.name == K::NAME).expect("an op of the table");
        let grid = Grid { blocks: [blocks, 1, 1], threads: [32, warps, 1] };
        Launch { entry: op.entries[kernel.variant()], grid, params, outputs }
    }

    /// Copies an op's inputs to the device, for its entry point in which the warps of a block share a row.
    pub(crate) fn shared<K: Kernel>(kernel: &K, blocks: u32, warps: u32, memory: &mut Memory) -> Launch {
        let mut launch = Launch::new(kernel, blocks, 1, memory);
        launch.grid.threads[1] = warps;
        let op = OPS.iter().find(|op| op.name == K::NAME).expect("an op of the table");
        Launch { entry: op.blocks[kernel.variant()], ..launch }
    }

    /// Copies an op's inputs to the device, for an entry point of the gfx942 code object: layers of `waves`
    /// waves, a row a wave.
    pub(crate) fn waves<K: Kernel>(
        entry: &'static str,
        kernel: &K,
        waves: u32,
        memory: &mut Memory,
    ) -> Launch {
        let layers = (kernel.rows() as u32).div_ceil(waves);
        let grid = Grid { blocks: [waves, layers, 1], threads: [64, 1, 1] };
        Launch { entry, grid, ..Launch::new(kernel, waves, 1, memory) }
    }

    /// Runs it.
    pub(crate) fn run(&self, module: &dyn Program, memory: &mut Memory) -> Result<Counts, Box<Fault>> {
        module.launch(self.entry, self.grid, &self.params, memory)
    }

    /// Copies its outputs back to the op's arrays.
    #[allow(unsafe_code)]
    pub(crate) fn back(self, memory: &mut Memory) {
        for (address, host, bytes) in self.outputs.into_iter().filter(|(_, _, bytes)| *bytes > 0) {
            // SAFETY: the output lives as long as the kernel, which has exclusive access.
            let host = unsafe { std::slice::from_raw_parts_mut(host, bytes) };
            memory.download(address, host).expect("a download");
        }
    }
}
