//! The model of a GPU: all constants of the predicted shares, and their source.
//!
//! The constants are from data sheets or assumed. An H200 has confirmed them for losses over many rows,
//! within a few points; for logits, which are read twice, and for few long rows it has not
//! (docs/decisions/0032-first-gpu.md). **An element takes** the time of its bytes at the copy bandwidth, of
//! the busiest unit of execution, or of waiting, whichever is longest; times of about the same length get in
//! each other's way, so the three are joined as `(a³ + b³ + c³)^⅓`. The share is the first of them over all.
//!
//! *Waiting*: a warp's trip through the loop takes [`Machine::latency`] for each round trip to memory and
//! [`Machine::step`] cycles for each instruction; a multiprocessor has as many trips under way as it holds
//! warps.

use super::code::Trip;

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Streaming multiprocessors, or compute units.
    pub processors: f64,
    /// Cycles a second.
    pub clock: f64,
    /// Bytes a second of a large copy, read and written together.
    pub copy: f64,
    /// Lanes of a warp or wave.
    pub width: f64,
    /// Lanes a cycle and processor that begin an instruction: of any kind, and of the units in the order of
    /// `busiest`.
    pub lanes: [f64; 6],
    /// Whether one unit executes all arithmetic, so that times add up.
    pub one_unit: bool,
    /// Seconds from a load to its use, while memory is busy.
    pub latency: f64,
    /// Cycles from one instruction of a warp to the next, with four independent columns.
    pub step: f64,
}

/// H200. Processors and clock: data sheet (132, 1.98 GHz boost). Lanes: CUDA C++ Programming Guide,
/// throughput of arithmetic instructions, compute capability 9.0: 128 issued, 64 integer and comparison, 128
/// binary32, 64 binary64, 16 conversion, 32 shuffle. Copy: 4.8 TB/s of the data sheet times 0.875, assumed;
/// latency and step: assumed.
pub const H200: Machine = Machine {
    name: "H200",
    processors: 132.0,
    clock: 1.98e9,
    copy: 4.2e12,
    width: 32.0,
    lanes: [128.0, 64.0, 128.0, 64.0, 16.0, 32.0],
    one_unit: false,
    latency: 0.7e-6,
    step: 2.0,
};

/// MI300X. Processors, clock, 5.3 TB/s: data sheet; copy at 0.77 of that, assumed. Four SIMDs of 16 lanes
/// execute all vector instructions, a quarter of the rate for conversions of their kind; LDS moves 32 words
/// a cycle. Latency: assumed. A wave begins an instruction every four cycles at best.
pub const MI300X: Machine = Machine {
    name: "MI300X",
    processors: 304.0,
    clock: 2.1e9,
    copy: 4.1e12,
    width: 64.0,
    lanes: [320.0, 64.0, 64.0, 64.0, 16.0, 32.0],
    one_unit: true,
    latency: 0.8e-6,
    step: 4.0,
};

impl Machine {
    /// Seconds that an element keeps the busiest unit of the whole GPU busy, if a trip of a lane has
    /// `elements` of them.
    fn busiest(&self, trip: &Trip, elements: f64) -> f64 {
        let Trip { instructions, alu, single, double, quarter, shuffles, .. } = *trip;
        let counts = [instructions, alu, single, double, quarter, shuffles];
        let times = counts.iter().zip(self.lanes).map(|(&count, lanes)| f64::from(count) / lanes);
        let times: Vec<f64> = times.collect();
        let arithmetic = if self.one_unit { times[1..5].iter().sum() } else { 0.0 };
        times.into_iter().fold(arithmetic, f64::max) / elements / self.processors / self.clock
    }

    /// The share of the copy bandwidth for `bytes` an element, with `warps` on a processor. `before` is what
    /// a trip of an earlier pass over the mask adds to an element, in instructions.
    pub fn share(&self, trip: &Trip, elements: f64, before: f64, bytes: f64, warps: f64) -> f64 {
        let memory = bytes / self.copy;
        let pass = Trip { instructions: 1, alu: 1, ..Trip::default() };
        let work = self.busiest(trip, elements) + before * self.busiest(&pass, 1.0) / 2.0;
        let lone = f64::from(trip.round_trips) * self.latency
            + f64::from(trip.instructions) * self.step / self.clock;
        let waiting = lone / (warps * self.processors * self.width * elements);
        memory / [memory, work, waiting].map(|time| time.powi(3)).iter().sum::<f64>().cbrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 instructions an element, half of them in the slower unit, with 13 bytes: 64 / (128 · 132 · 1.98e9)
    /// = 1.913 ps of work beside 3.095 ps of memory, and nothing to wait for: (1 + 0.6181³)^-⅓ = 0.9318.
    #[test]
    fn by_hand() {
        let trip = Trip { instructions: 256, alu: 128, ..Trip::default() };
        let none = Machine { step: 0.0, ..H200 };
        assert!((none.share(&trip, 4.0, 0.0, 13.0, 64.0) - 0.9318).abs() < 1e-4);
        // Twice the comparisons: the slower unit takes twice as long: (1 + 1.2363³)^-⅓ = 0.7021.
        let trip = Trip { alu: 256, ..trip };
        assert!((none.share(&trip, 4.0, 0.0, 13.0, 64.0) - 0.7021).abs() < 1e-4);
        // All of AMD's go to one unit: 64 / (64 · 304 · 2.1e9) = 1.566 ps beside 3.171: (1 + 0.4940³)^-⅓.
        let none = Machine { step: 0.0, ..MI300X };
        let trip = Trip { instructions: 128, alu: 64, single: 64, ..Trip::default() };
        assert!((none.share(&trip, 2.0, 0.0, 13.0, 32.0) - 0.9628).abs() < 1e-4);
    }

    #[test]
    fn every_wait_and_every_warp_counts() {
        let trip = |round_trips| Trip { instructions: 300, alu: 150, round_trips, ..Trip::default() };
        for machine in [H200, MI300X] {
            let share = |round_trips, warps| machine.share(&trip(round_trips), 4.0, 0.0, 13.0, warps);
            assert!(share(1, 32.0) > share(2, 32.0) && share(2, 32.0) > share(2, 16.0), "{}", machine.name);
            assert!(share(1, 32.0) > machine.share(&trip(1), 4.0, 12.0, 13.0, 32.0), "{}", machine.name);
        }
    }
}
