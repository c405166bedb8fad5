//! What the speed table needs to know of an instruction, the same for both vendors.

/// Where an instruction executes. Which unit limits a loop is the [`model`](super::model)'s business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Integers, comparisons, selections, minima; on AMD every vector instruction that is not named below.
    Alu,
    /// Binary32 `+ × fma` and NVIDIA's integer multiply-add.
    Single,
    /// Binary64 arithmetic and comparisons.
    Double,
    /// Conversions, approximations that a division starts from, and what else runs at a quarter of the rate.
    Quarter,
    /// A word from another lane.
    Shuffle,
    /// Loads and stores.
    Memory,
    /// One operation for the whole warp or wave, in a unit of its own.
    Scalar,
    /// Jumps, waits, barriers.
    Control,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Line in the disassembly, from 1.
    pub line: usize,
    /// Where it executes.
    pub unit: Unit,
    /// Bytes that a lane loads from global memory.
    pub loads: u32,
    /// Bytes that a lane stores to global memory.
    pub stores: u32,
    /// The vector registers that a load fills.
    pub fills: Vec<u32>,
    /// All vector registers that it names.
    pub names: Vec<u32>,
    /// Whether it waits for memory by itself (gfx942).
    pub waits: bool,
    /// Whether it calls a function: the slow path of a division or a root.
    pub calls: bool,
    /// Whether it counts the bits of a word.
    pub counts: bool,
}

/// An entry point.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// Its name.
    pub name: String,
    /// Its instructions.
    pub ops: Vec<Op>,
    /// For each instruction, those that may follow it.
    pub next: Vec<Vec<usize>>,
}

/// What one trip through a loop costs a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trip {
    /// Instructions.
    pub instructions: u32,
    /// Those of [`Unit::Alu`].
    pub alu: u32,
    /// Those of [`Unit::Single`].
    pub single: u32,
    /// Those of [`Unit::Double`].
    pub double: u32,
    /// Those of [`Unit::Quarter`].
    pub quarter: u32,
    /// Those of [`Unit::Shuffle`].
    pub shuffles: u32,
    /// Bytes loaded.
    pub loads: u32,
    /// Bytes stored.
    pub stores: u32,
    /// How often it waits for loads, one after the other; see [`Code::trip`].
    pub round_trips: u32,
    /// Instructions that wait for memory or shuffles (gfx942).
    pub waits: u32,
}

impl Code {
    /// Counts along a path that is walked again and again.
    ///
    /// A warp executes in order, so it stops where a register that a load fills is first named. What was
    /// issued before that comes at about the same time and costs nothing more; a load that is issued after
    /// it is another round trip. The path is walked twice, and counted the second time, for loads that are
    /// issued in one trip and used in the next.
    pub fn trip(&self, path: &[usize]) -> Trip {
        let mut trip = Trip::default();
        let mut flying: Vec<u32> = Vec::new();
        for counted in [false, true] {
            for op in path.iter().map(|&at| &self.ops[at]) {
                if op.names.iter().any(|register| flying.contains(register)) {
                    trip.round_trips += u32::from(counted);
                    flying.clear();
                }
                flying.extend(&op.fills);
            }
        }
        for op in path.iter().map(|&at| &self.ops[at]) {
            let of_unit = match op.unit {
                Unit::Alu => &mut trip.alu,
                Unit::Single => &mut trip.single,
                Unit::Double => &mut trip.double,
                Unit::Quarter => &mut trip.quarter,
                Unit::Shuffle => &mut trip.shuffles,
                Unit::Memory | Unit::Scalar | Unit::Control => &mut 0,
            };
            *of_unit += 1;
            trip.instructions += 1;
            trip.loads += op.loads;
            trip.stores += op.stores;
            trip.waits += u32::from(op.waits);
        }
        trip
    }
}
