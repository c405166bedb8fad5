//! The speed table: what the machine code of each entry point costs an element, and which share of the copy
//! bandwidth that predicts. `speed.csv` for machines, `speed.md` for people. It needs no GPU.
//!
//! A kernel's cost is that of its **hot loop**: of the innermost loops, the one that stores (else the one
//! that loads) with the most instructions. How many elements a trip has follows from the bytes that it loads
//! and stores; both must give the same number. A pass over the mask alone, which counts its elements before
//! (byte by byte, or the bits of words), is added.

pub mod code;
mod flow;
mod gfx942;
pub mod model;
pub mod sass;
mod table;

pub use gfx942::codes;
pub use table::{Row, Side, csv, from_csv, markdown, worse};

use crate::resources::{self, PROCESSORS};
use crate::{Fault, traffic};
use anyhow::{Context, Result};
use code::{Code, Trip};
use model::{H200, MI300X, Machine};

/// Bytes an element that a hot loop loads and stores. Other than in [`traffic`], inputs and outputs that a
/// call may leave out count, because the loop has the instructions for them.
fn shape(op: &str, entry: &str) -> Option<(u32, u32)> {
    let traffic = traffic::of(op, entry)?;
    let sum = |arrays: &[traffic::Array]| arrays.iter().map(|(_, bytes)| *bytes as u32).sum::<u32>();
    if let Some(variant) = op.starts_with("policy_loss_").then(|| entry.strip_prefix(op)).flatten() {
        // Mask, logp, logp_old; advantages and weights of tokens; a reference; a second policy. GMPO reads no
        // weight where it writes.
        if op == "policy_loss_gmpo" {
            return Some((13, 4));
        }
        let second = ["policy_loss_remix", "policy_loss_mini_rl", "policy_loss_trust_region"];
        let second = if second.contains(&op) { 4 } else { 0 };
        let (loads, stores) = match variant {
            "" | "_narrow_loss" | "_narrow_metrics" => (9, 4),
            "_any" => (17, 4),
            "_kl" => (21, 4),
            _ if variant.starts_with("_kl") => (21, 8),
            _ => (17, 8),
        };
        return Some((loads + second, stores));
    }
    Some(match entry {
        // An advantage that is added to; written in a loop of its own.
        "entropy_bonus" | "entropy_bonus_full" | "covariance" => (9, 4),
        "rollout_correction" | "rollout_correction_differences" => (9, 4),
        "sequence_weight" => (5, 4),
        // A loss of each token.
        "value_loss" => (13, 8),
        _ => (sum(traffic.reads), sum(traffic.writes)),
    })
}

/// Entry points whose loop takes blocks of 32 elements on every machine: a wave of 64 computes each twice.
const BLOCKS: [&str; 6] = ["gae", "vtrace", "discounted_return", "row_scan", "log_ratio_scan", "step_return"];

/// The elements that a warp's trip has; 0 where bytes loaded and stored do not tell, and for ops of sequences
/// and router rows, whose loops are short.
fn elements(op: &str, entry: &str, trip: &Trip, width: u32) -> u32 {
    let long = ["token", "logit", "value"];
    let Some((loads, stores)) = shape(op, entry) else { return 0 };
    if !traffic::of(op, entry).is_some_and(|traffic| long.contains(&traffic.element)) {
        return 0;
    }
    let of_lane = trip.loads / loads.max(1);
    if loads == 0 || !trip.loads.is_multiple_of(loads) || trip.stores != of_lane * stores {
        return 0;
    }
    of_lane * if BLOCKS.contains(&entry) { 32 } else { width }
}

/// What is measured of an entry point on one vendor, apart from its registers.
pub fn measure(code: &Code, op: &str, width: u32) -> Result<Side> {
    let paths = code.innermost_loops()?;
    let reading =
        paths.iter().filter(|path| path.iter().any(|&at| code.ops[at].loads + code.ops[at].stores > 0));
    let trips: Vec<(Trip, bool)> = reading
        .map(|path| {
            let ops = || path.iter().map(|&at| &code.ops[at]);
            let bytes = ops().all(|op| op.loads <= 1) || ops().any(|op| op.counts);
            (code.trip(path), bytes && ops().all(|op| op.stores == 0))
        })
        .collect();
    let hot = trips.iter().max_by_key(|(trip, _)| (trip.stores > 0, trip.instructions));
    let trip = hot.map(|(trip, _)| *trip).unwrap_or_default();
    let mask =
        trips.iter().filter(|(other, bytes)| *bytes && *other != trip).max_by_key(|(trip, _)| trip.loads);
    let mask = mask.map_or([0, 0], |(trip, _)| [trip.instructions, trip.loads * width]);
    Ok(Side { trip, elements: elements(op, &code.name, &trip, width), mask, ..Side::default() })
}

/// The processor whose machine code the table counts, as H200's.
pub const PROCESSOR: &str = "sm_90";

/// The table of all entry points, from their code on both vendors and the table of resources.
pub fn table(cuda: &[Code], rocm: &[Code], resources: &[resources::Row]) -> Result<Vec<Row>> {
    let row = |of: &resources::Row| -> Result<Row> {
        let side = |codes: &[Code], machine: &Machine, held: [u32; 2]| {
            let code = codes.iter().find(|code| code.name == of.entry);
            let code = code.with_context(|| format!("no code of {} for {}", of.entry, machine.name))?;
            let [registers, warps] = held;
            Ok::<_, anyhow::Error>(Side { registers, warps, ..measure(code, &of.op, machine.width as u32)? })
        };
        let [of_cuda, of_rocm] = held(of);
        Ok(Row {
            op: of.op.clone(),
            entry: of.entry.clone(),
            element: of.element.clone(),
            bytes: of.bytes,
            cuda: side(cuda, &H200, of_cuda)?,
            rocm: side(rocm, &MI300X, of_rocm)?,
        })
    };
    resources.iter().map(row).collect()
}

/// Registers of a lane, and the warps or waves that a processor holds with them, on both vendors.
fn held(of: &resources::Row) -> [[u32; 2]; 2] {
    let of_sm = PROCESSORS.iter().position(|known| *known == PROCESSOR).unwrap_or_default();
    let (registers, [vgprs, _, sgprs, ..]) = (of.ptx[of_sm].registers, of.gfx942);
    // A compute unit has four SIMDs.
    [[registers, resources::warps(registers)], [vgprs, 4 * resources::waves(vgprs, sgprs)]]
}

/// Checks that the table agrees with the resource table and with the listing. The other half needs NVIDIA's
/// tools.
pub fn agree(rows: &[Row], resources: &[resources::Row], rocm: &[Code]) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for row in rows {
        let fault = |what: &str| Fault::new(&row.entry, 0, what);
        let Some(code) = rocm.iter().find(|code| code.name == row.entry) else { continue };
        let Some(of) = resources.iter().find(|of| of.entry == row.entry) else { continue };
        let [cuda, rocm] = held(of);
        if [[row.cuda.registers, row.cuda.warps], [row.rocm.registers, row.rocm.warps]] != [cuda, rocm] {
            faults.push(fault("speed.csv has other registers than resources.csv"));
        }
        let [registers, warps] = rocm;
        if row.rocm != (Side { registers, warps, ..measure(code, &row.op, MI300X.width as u32)? }) {
            faults.push(fault("the listing has other counts than speed.csv"));
        }
    }
    Ok(faults)
}
