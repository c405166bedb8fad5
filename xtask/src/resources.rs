//! The hardware resources of each kernel, as tables: `resources.csv` for machines, `resources.md` for people.

use crate::code_object::Kernel;
use crate::ir::Fused;
use crate::toolchain::output;
use crate::{Fault, traffic};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// NVIDIA processors that the PTX is assembled for.
pub const PROCESSORS: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Entry points that `ptxas` is asked to fit into this many registers (`.maxnreg`), which one more block of 8
/// warps needs: those that it can fit without a spill on all of [`PROCESSORS`]. It is a hint for speed; the
/// instructions of the PTX stay the same.
const MOST: &[(&str, u32)] = &[
    ("discounted_return", 64),
    ("normalize_weights", 32),
    ("policy_loss_dppo_kl", 64),
    ("policy_loss_dppo_kl_any", 80),
    ("policy_loss_dppo_kl_narrow_loss", 80),
    ("policy_loss_ppo_metrics", 128),
    ("policy_loss_ppo_narrow_loss", 64),
    ("policy_loss_reinforce_metrics", 128),
    ("policy_loss_remix_narrow_metrics", 128),
    ("policy_loss_sapo_narrow_metrics", 128),
    ("rollout_correction_differences", 128),
    ("row_scan", 56),
    ("selection_key", 32),
    ("step_return", 64),
    ("whiten", 80),
];

/// PTX with a limit of registers for some entry points. Errors: one of them is not there.
pub fn limited(ptx: &str) -> Result<String> {
    let mut limited = ptx.to_owned();
    for (entry, most) in MOST {
        let start = limited.find(&format!(".entry {entry}(")).with_context(|| format!("no entry {entry}"))?;
        let body = limited[start..].find("\n{").with_context(|| format!("{entry} without a body"))?;
        limited.insert_str(start + body, &format!("\n.maxnreg {most}"));
    }
    Ok(limited)
}

/// What `ptxas` reports for a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of stack per thread.
    pub stack: u32,
    /// Bytes of registers stored to memory for lack of space.
    pub spill_stores: u32,
    /// Bytes loaded back.
    pub spill_loads: u32,
    /// Barriers.
    pub barriers: u32,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The op.
    pub op: String,
    /// Its entry point.
    pub entry: String,
    /// What an element is.
    pub element: String,
    /// Bytes per element; see [`traffic`].
    pub bytes: u32,
    /// Fused multiply-adds in the LLVM IR of the PTX.
    pub ptx_fused: [u32; 2],
    /// The numbers for each of [`PROCESSORS`].
    pub ptx: [Assembled; 3],
    /// Those of the entry point in which a block shares a row; zeros if there is none.
    pub block_fused: [u32; 2],
    /// The numbers for each of [`PROCESSORS`].
    pub block: [Assembled; 3],
    /// Fused multiply-adds in the LLVM IR of the code object.
    pub gfx942_fused: [u32; 2],
    /// VGPRs, AGPRs, SGPRs, VGPR spills, SGPR spills, scratch, LDS, bytes of arguments.
    pub gfx942: [u32; 8],
}

/// Warps that one streaming multiprocessor can hold as limited by registers: 64 K of them in four parts,
/// allocated to warps in steps of 256; blocks of 8 warps; at most 64 warps.
pub fn warps(registers: u32) -> u32 {
    let of_warp = (registers.max(1) * 32).next_multiple_of(256);
    (4 * (16384 / of_warp)).min(64) / 8 * 8
}

/// Waves that one SIMD of gfx942 can hold as limited by registers: 512 vector registers in steps of 8, 800
/// scalar ones in steps of 16; at most 8 waves.
pub fn waves(vgprs: u32, sgprs: u32) -> u32 {
    let by_vector = 512 / vgprs.max(1).next_multiple_of(8);
    let by_scalar = 800 / sgprs.max(1).next_multiple_of(16);
    by_vector.min(by_scalar).min(8)
}

/// Assembles a PTX file and parses the report of `ptxas -v`.
pub fn assemble(ptxas: &Path, ptx: &Path, processor: &str, to: &Path) -> Result<BTreeMap<String, Assembled>> {
    let mut command = Command::new(ptxas);
    command.args(["-v", "-arch", processor]).arg(ptx).arg("-o").arg(to.join(format!("{processor}.cubin")));
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        bail!("ptxas does not assemble the PTX for {processor}:\n{text}");
    }
    parse_ptxas(&text)
}

/// Parses the output of `ptxas -v`.
fn parse_ptxas(text: &str) -> Result<BTreeMap<String, Assembled>> {
    let mut kernels: BTreeMap<String, Assembled> = BTreeMap::new();
    let mut name = None;
    let number =
        |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok()).context("a number of ptxas");
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if line.contains("Compiling entry function") {
            name = line.split('\'').nth(1).map(str::to_owned);
        } else if line.contains("bytes stack frame") {
            let of = kernels.entry(name.clone().context("sizes without a function")?).or_default();
            of.stack = number(words.first().copied())?;
            of.spill_stores = number(words.get(4).copied())?;
            of.spill_loads = number(words.get(8).copied())?;
        } else if line.contains(": Used ") {
            let of = kernels.entry(name.clone().context("registers without a function")?).or_default();
            let after =
                |what: &str| words.iter().position(|word| word.starts_with(what)).map(|at| words[at - 1]);
            of.registers = number(after("registers"))?;
            of.barriers = number(after("barriers"))?;
        }
    }
    Ok(kernels)
}

/// Builds the table from the measurements.
pub fn table(
    assembled: &[BTreeMap<String, Assembled>; 3],
    objects: &BTreeMap<String, Kernel>,
    ptx_ir: &BTreeMap<String, Fused>,
    gfx942_ir: &BTreeMap<String, Fused>,
) -> Result<Vec<Row>> {
    let fused = |ir: &BTreeMap<String, Fused>, entry: &str| -> Result<[u32; 2]> {
        let count = ir.get(entry).with_context(|| format!("{entry} is not in the LLVM IR"))?;
        Ok([count.single as u32, count.double as u32])
    };
    let row = |(op, entry): (&str, &str)| -> Result<Row> {
        let traffic = traffic::of(op, entry);
        let kernel = objects.get(entry).with_context(|| format!("{entry} is not in the code object"))?;
        let of_ptx = |entry: &str| -> Result<[Assembled; 3]> {
            let mut ptx = [Assembled::default(); 3];
            for (to, from) in ptx.iter_mut().zip(assembled) {
                *to = *from.get(entry).with_context(|| format!("{entry} is not in the PTX"))?;
            }
            Ok(ptx)
        };
        let shared = format!("{entry}_block");
        let has = crate::blocks().contains(&&shared[..]);
        Ok(Row {
            op: op.to_owned(),
            entry: entry.to_owned(),
            element: traffic.map_or("–", |traffic| traffic.element).to_owned(),
            bytes: traffic.map_or(0, |traffic| traffic.bytes() as u32),
            ptx_fused: fused(ptx_ir, entry)?,
            ptx: of_ptx(entry)?,
            block_fused: if has { fused(ptx_ir, &shared)? } else { [0; 2] },
            block: if has { of_ptx(&shared)? } else { Default::default() },
            gfx942_fused: fused(gfx942_ir, entry)?,
            gfx942: of_kernel(kernel),
        })
    };
    crate::entries().into_iter().map(row).collect()
}

/// A kernel's numbers in table order.
pub fn of_kernel(kernel: &Kernel) -> [u32; 8] {
    let Kernel { vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, scratch, lds, kernarg, .. } = *kernel;
    [vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, scratch, lds, kernarg]
}

/// Kernels that spill, or that use memory they should not.
pub fn check(rows: &[Row]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for row in rows {
        let mut zero = |of: &str, what: &str, value: u32| {
            if value != 0 {
                faults.push(Fault::new(&row.entry, 0, format!("{of}: {what} is {value} and must be 0")));
            }
        };
        for (processor, used) in PROCESSORS.iter().zip(&row.ptx) {
            zero(processor, "stack", used.stack);
            zero(processor, "spill stores", used.spill_stores);
            zero(processor, "spill loads", used.spill_loads);
            zero(processor, "barriers", used.barriers);
        }
        for (processor, used) in PROCESSORS.iter().zip(&row.block) {
            let of = format!("{processor}, block");
            zero(&of, "stack", used.stack);
            zero(&of, "spill stores", used.spill_stores);
            zero(&of, "spill loads", used.spill_loads);
            zero(&of, "barriers beside one", used.barriers.saturating_sub(1));
        }
        let [_, _, _, vgpr_spills, sgpr_spills, scratch, lds, _] = row.gfx942;
        zero("gfx942", "VGPR spills", vgpr_spills);
        zero("gfx942", "SGPR spills", sgpr_spills);
        zero("gfx942", "scratch", scratch);
        zero("gfx942", "LDS", lds);
    }
    faults
}

/// Of `ptxas`, for an entry point and for the one of a block.
const PTX_COLUMNS: [&str; 6] = ["registers", "stack", "spill_stores", "spill_loads", "barriers", "warps"];
const GFX942_COLUMNS: [&str; 9] =
    ["vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "scratch", "lds", "kernarg", "waves"];

/// Renders the table as CSV.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("op,entry,element,bytes");
    for of in ["", "block_"] {
        let _ = write!(text, ",ptx_{of}fma_f32,ptx_{of}fma_f64");
        for processor in PROCESSORS {
            for column in PTX_COLUMNS {
                let _ = write!(text, ",{processor}_{of}{column}");
            }
        }
    }
    text += ",gfx942_fma_f32,gfx942_fma_f64";
    for column in GFX942_COLUMNS {
        let _ = write!(text, ",gfx942_{column}");
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{},{},{},{}", row.op, row.entry, row.element, row.bytes);
        let ptx = |fused: [u32; 2], used: [Assembled; 3]| {
            let numbers = used.map(|used| {
                let Assembled { registers, stack, spill_stores, spill_loads, barriers } = used;
                [registers, stack, spill_stores, spill_loads, barriers, warps(registers)]
            });
            fused.into_iter().chain(numbers.into_iter().flatten())
        };
        let nvidia = ptx(row.ptx_fused, row.ptx).chain(ptx(row.block_fused, row.block));
        let numbers = nvidia.chain(row.gfx942_fused).chain(row.gfx942);
        for number in numbers.chain([waves(row.gfx942[0], row.gfx942[2])]) {
            let _ = write!(text, ",{number}");
        }
        text.push('\n');
    }
    text
}

/// A line of a table of entry points: op, entry point and element, and the numbers after them.
pub(crate) fn fields(line: &str) -> Result<([String; 3], Vec<u32>)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [op, entry, element, numbers @ ..] = &fields[..] else { bail!("a short line: {line}") };
    let numbers: Vec<u32> =
        numbers.iter().map(|n| n.parse().with_context(|| line.to_owned())).collect::<Result<_>>()?;
    Ok(([op, entry, element].map(|&word| word.to_owned()), numbers))
}

/// Parses the CSV table.
pub fn from_csv(text: &str) -> Result<Vec<Row>> {
    let row = |line: &str| -> Result<Row> {
        let ([op, entry, element], numbers) = fields(line)?;
        let mut next = numbers.into_iter();
        let mut next = || next.next().with_context(|| format!("a short line: {line}"));
        let bytes = next()?;
        let mut nvidia = || -> Result<([u32; 2], [Assembled; 3])> {
            let (fused, mut ptx) = ([next()?, next()?], [Assembled::default(); 3]);
            for used in &mut ptx {
                *used = Assembled {
                    registers: next()?,
                    stack: next()?,
                    spill_stores: next()?,
                    spill_loads: next()?,
                    barriers: next()?,
                };
                next()?;
            }
            Ok((fused, ptx))
        };
        let ((ptx_fused, ptx), (block_fused, block)) = (nvidia()?, nvidia()?);
        let gfx942_fused = [next()?, next()?];
        let mut gfx942 = [0; 8];
        for value in &mut gfx942 {
            *value = next()?;
        }
        Ok(Row { op, entry, element, bytes, ptx_fused, ptx, block_fused, block, gfx942_fused, gfx942 })
    };
    text.lines().skip(1).map(row).collect()
}

/// Renders the table as Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "<!-- Written by `cargo xtask artifacts` with resources.csv, which has more columns. -->
# What the kernels need

**bytes**: moved per element, each array once (`xtask/src/traffic.rs`). **registers**: of a thread, by \
`ptxas`, for sm_80 / sm_90 / sm_100;
**warps**: that a multiprocessor can hold by registers alone (64 Ki of them, blocks of 8 warps, at most 64), \
for sm_90. **block**: registers, for
sm_80 / sm_90 / sm_100, of the entry point in which a block of warps shares a row; 16 of them fit with up to \
128. **VGPRs**, **SGPRs**: of a
wave on gfx942; **waves**: that a SIMD can hold by registers alone (512 and 800 of them, at most 8). \
**spills**: registers or bytes that went to
memory or to other registers, on all four, with stack, scratch and LDS: anything but 0 fails the \
build. **fma**: fused multiply-adds that the
source asks for (PTX / gfx942: a lane of NVIDIA has four columns, one of AMD two), which is what the \
assembly must have.

| entry point | element | bytes | registers | warps | block | VGPRs | SGPRs | waves | spills | fma |
|---|---|---|---|---|---|---|---|---|---|---|
",
    );
    for row in rows {
        let registers = |of: &[Assembled; 3]| match of[0].registers {
            0 => "–".to_owned(),
            _ => of.map(|used| used.registers.to_string()).join(" / "),
        };
        let [vgprs, _, sgprs, vgpr_spills, sgpr_spills, scratch, lds, _] = row.gfx942;
        let of_ptx =
            row.ptx.iter().chain(&row.block).map(|used| used.stack + used.spill_stores + used.spill_loads);
        let spills = of_ptx.sum::<u32>() + vgpr_spills + sgpr_spills + scratch + lds;
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {vgprs} | {sgprs} | {} | {spills} | {} / {} |",
            row.entry,
            row.element,
            row.bytes,
            registers(&row.ptx),
            warps(row.ptx[1].registers),
            registers(&row.block),
            waves(vgprs, sgprs),
            row.ptx_fused[0],
            row.gfx942_fused[0],
        );
    }
    text
}

/// Checks that `ptxas` can assemble for all of [`PROCESSORS`].
pub fn supports(ptxas: &Path) -> Result<()> {
    let help = output(Command::new(ptxas).arg("--help"))?;
    for processor in PROCESSORS {
        if !help.contains(&format!("'{processor}'")) {
            bail!("{} does not know {processor}: a newer one is needed", ptxas.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_by_hand() {
        // 32 registers: 1024 per warp, 16 warps in each quarter. 48: 1536, 10. 178: 5888 (5696 rounded
        // up), 2. 212: 6912, 2. 255: 8192, 2.
        for (registers, wanted) in
            [(16, 64), (32, 64), (33, 48), (48, 40), (64, 32), (178, 8), (212, 8), (255, 8)]
        {
            assert_eq!(warps(registers), wanted, "{registers} registers");
        }
        for (vgprs, sgprs, wanted) in
            [(29, 50, 8), (64, 96, 8), (65, 96, 7), (102, 100, 4), (128, 10, 4), (29, 106, 7)]
        {
            assert_eq!(waves(vgprs, sgprs), wanted, "{vgprs} VGPRs, {sgprs} SGPRs");
        }
    }

    const PTXAS: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'row_scan' for 'sm_90'
ptxas info    : Function properties for row_scan
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 16 bytes cumulative stack size
";

    #[test]
    fn reads_ptxas() -> Result<()> {
        let kernels = parse_ptxas(PTXAS)?;
        let used = Assembled { registers: 38, stack: 16, spill_stores: 8, spill_loads: 4, barriers: 1 };
        assert_eq!(kernels, BTreeMap::from([("row_scan".to_owned(), used)]));
        Ok(())
    }

    fn row() -> Row {
        Row {
            op: "kl".into(),
            entry: "kl_k3".into(),
            element: "token".into(),
            bytes: 17,
            ptx_fused: [8, 1],
            ptx: [48, 49, 50].map(|registers| Assembled { registers, ..Assembled::default() }),
            block_fused: [8, 0],
            block: [58, 59, 60].map(|registers| Assembled { registers, barriers: 1, ..Assembled::default() }),
            gfx942_fused: [4, 2],
            gfx942: [29, 0, 50, 0, 0, 0, 0, 712],
        }
    }

    #[test]
    fn csv_there_and_back() -> Result<()> {
        let text = csv(&[row()]);
        assert_eq!(from_csv(&text)?, [row()]);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [columns[0]; 2]);
        assert!(from_csv("op\nkl,kl_k3,token,1,2").is_err());
        Ok(())
    }

    #[test]
    fn catches_every_spill() {
        assert_eq!(check(&[row()]), []);
        for processor in 0..3 {
            for (block, field) in (0..8).map(|i| (i / 4, i % 4)) {
                let mut spilled = row();
                let used = if block == 0 { &mut spilled.ptx } else { &mut spilled.block };
                let used = &mut used[processor];
                *[&mut used.stack, &mut used.spill_stores, &mut used.spill_loads, &mut used.barriers]
                    [field] = 2;
                assert_eq!(check(&[spilled]).len(), 1);
            }
        }
        for column in 3..7 {
            let mut spilled = row();
            spilled.gfx942[column] = 4;
            assert_eq!(check(&[spilled]).len(), 1, "column {column}");
        }
    }
}
