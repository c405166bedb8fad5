//! Parses `nvdisasm -c`: the entry points of a cubin, their instructions, and where each may go.

use super::code::{Code, Op, Unit};
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

/// The entry points of a cubin with its disassembly.
///
/// Errors: a jump whose targets are not known; an instruction whose unit is not known.
pub fn parse(text: &str, cubin: &[u8]) -> Result<Vec<Code>> {
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(cubin).context("not a cubin")?;
    let mut entries: Vec<(&str, Vec<(usize, &str)>)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.trim().strip_prefix(".text.").and_then(|label| label.strip_suffix(':')) {
            entries.push((name, Vec::new()));
        } else if let Some((_, lines)) = entries.last_mut() {
            lines.push((index + 1, line));
        }
    }
    let mut codes = Vec::new();
    // Rows that a block shares are too few to keep a device busy: their cost is not an element's.
    for (name, lines) in entries.iter().filter(|(name, _)| !crate::blocks().contains(name)) {
        // Constants of the compiler, among them the tables of indirect jumps.
        let constants = file.section_by_name(&format!(".nv.constant2.{name}"));
        let constants = constants.map(|section| section.data()).transpose()?.unwrap_or_default();
        codes.push(function(name, lines, constants).with_context(|| format!("SASS of {name}"))?);
    }
    ensure!(!codes.is_empty(), "no entry point in the disassembly");
    Ok(codes)
}

/// An instruction as it is printed.
struct Line<'a> {
    number: usize,
    address: usize,
    guarded: bool,
    mnemonic: &'a str,
    operands: &'a str,
}

impl<'a> Line<'a> {
    /// `/*0a50*/ @!P0 BRA `(.L_x_7) ;`
    fn parse(number: usize, line: &'a str) -> Option<Line<'a>> {
        let (address, rest) = line.trim().strip_prefix("/*")?.split_once("*/")?;
        let rest = rest.split(';').next()?.trim();
        let (guarded, rest) = match rest.strip_prefix('@') {
            Some(guarded) => (true, guarded.split_once(char::is_whitespace)?.1.trim()),
            None => (false, rest),
        };
        let (mnemonic, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let address = usize::from_str_radix(address, 16).ok()?;
        Some(Line { number, address, guarded, mnemonic, operands: operands.trim() })
    }

    fn base(&self) -> &'a str {
        self.mnemonic.split('.').next().unwrap_or_default()
    }

    fn label(&self) -> Option<&'a str> {
        self.operands.split_once("`(")?.1.strip_suffix(')')
    }

    /// Bytes that a lane moves.
    fn bytes(&self) -> u32 {
        let width = |part| match part {
            "U8" | "S8" => Some(1),
            "U16" | "S16" => Some(2),
            "64" => Some(8),
            "128" => Some(16),
            _ => None,
        };
        self.mnemonic.split('.').find_map(width).unwrap_or(4)
    }

    /// Numbers of the registers `R<n>` among the operands; `.64` names two.
    fn registers(&self) -> Vec<u32> {
        let words = self.operands.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
        let register = |word: &str| {
            let mut parts = word.split('.');
            let first: u32 = parts.next()?.strip_prefix('R')?.parse().ok()?;
            Some(first..=first + u32::from(parts.next() == Some("64")))
        };
        words.filter_map(register).flatten().collect()
    }

    fn op(&self) -> Result<Op> {
        let unit = unit(self.base()).with_context(|| format!("line {}: {}", self.number, self.mnemonic))?;
        let (names, mut loads, mut stores, mut fills) = (self.registers(), 0, 0, Vec::new());
        match self.base() {
            "LDG" | "LD" => {
                loads = self.bytes();
                let first = names.first().copied().context("a load without a register")?;
                fills = (first..first + loads.div_ceil(4)).collect();
            }
            "STG" | "ST" => stores = self.bytes(),
            _ => {}
        }
        let (calls, counts) = (self.base() == "CALL", self.base() == "POPC");
        Ok(Op { line: self.number, unit, loads, stores, fills, names, waits: false, calls, counts })
    }
}

fn function(name: &str, text: &[(usize, &str)], constants: &[u8]) -> Result<Code> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut labels = BTreeMap::new();
    for &(number, line) in text {
        if let Some(label) = line.trim_end().strip_suffix(':') {
            labels.insert(label, lines.len());
        } else {
            lines.extend(Line::parse(number, line));
        }
    }
    let places: BTreeMap<usize, usize> =
        lines.iter().enumerate().map(|(at, line)| (line.address, at)).collect();
    // Where the tables of indirect jumps begin: a table ends where the next one begins.
    let mut tables = Vec::new();
    for at in (0..lines.len()).filter(|&at| lines[at].base().starts_with("BRX")) {
        tables.push((at, table(&lines[..=at])?));
    }
    let mut starts: Vec<usize> = tables.iter().map(|(_, start)| *start).collect();
    starts.push(constants.len());
    starts.sort_unstable();

    let mut next = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let label = || -> Result<usize> {
            let label = line.label().context("a jump without a label")?;
            labels.get(label).copied().with_context(|| format!("a jump to {label}, which is nowhere"))
        };
        let mut to = match line.base() {
            // For lanes that have parted before a shuffle, which the PTX check rules out.
            "BRA" if line.mnemonic == "BRA.DIV" => Vec::new(),
            "BRA" => vec![label()?],
            // Lanes that have parted go on together elsewhere.
            "WARPSYNC" if line.label().is_some() => vec![label()?],
            "BRX" | "BRXU" => {
                let start = tables.iter().find(|(of, _)| *of == at).context("its table")?.1;
                let end = *starts.iter().find(|other| **other > start).context("an empty table")?;
                let words =
                    constants.get(start..end).context("a table beyond the constants")?.chunks_exact(4);
                let target = |word: &[u8]| {
                    let address = u32::from_le_bytes(word.try_into().ok()?) as usize;
                    places.get(&address).copied()
                };
                words.map(target).collect::<Option<Vec<_>>>().context("a jump into the middle of nowhere")?
            }
            base if base.starts_with("JM") || base == "CAL" => bail!("line {}: {base}", line.number),
            _ => Vec::new(),
        };
        // `BRA P1, target` is a condition too.
        let ends = match line.base() {
            "BRA" => line.mnemonic == "BRA" && line.operands.starts_with('`'),
            "BRX" | "BRXU" | "EXIT" | "RET" => true,
            _ => false,
        };
        if !ends || line.guarded {
            to.push(at + 1);
        }
        to.retain(|&to| to < lines.len());
        to.sort_unstable();
        to.dedup();
        next.push(to);
    }
    let ops = lines.iter().map(Line::op).collect::<Result<_>>()?;
    Ok(Code { name: name.to_owned(), ops, next })
}

/// Where the table of the indirect jump that ends `lines` begins: the constant that was loaded last before
/// it. The jump must add nothing to it.
fn table(lines: &[Line<'_>]) -> Result<usize> {
    let jump = lines.last().context("a jump")?;
    let none = format!("-0x{:x}", jump.address + 16);
    ensure!(jump.operands.ends_with(&none), "line {}: an indirect jump by more than its table", jump.number);
    let load = lines.iter().rev().find(|line| line.operands.contains("c[0x2]["));
    let index = load.and_then(|load| load.operands.split_once("c[0x2][")).context("a table")?.1;
    let index = index.trim_end_matches(']');
    match index.split_once("+0x") {
        Some((_, start)) => Ok(usize::from_str_radix(start, 16)?),
        None => Ok(0),
    }
}

/// Where an instruction executes (CUDA C++ Programming Guide, throughput of native arithmetic instructions,
/// compute capability 9.0).
fn unit(base: &str) -> Result<Unit> {
    Ok(match base {
        "IADD3" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "VIMNMX3" | "ISETP" | "FSETP" | "FSET" | "FSEL"
        | "SEL" | "FMNMX" | "LOP3" | "PLOP3" | "SHF" | "LEA" | "PRMT" | "MOV" | "P2R" | "R2P" | "SGXT"
        | "CS2R" | "I2FP" | "VOTE" => Unit::Alu,
        "FADD" | "FMUL" | "FFMA" | "IMAD" | "HFMA2" => Unit::Single,
        "DADD" | "DMUL" | "DFMA" | "DSETP" => Unit::Double,
        "F2F" | "F2I" | "I2F" | "MUFU" | "FCHK" | "POPC" | "FLO" | "BREV" => Unit::Quarter,
        "SHFL" => Unit::Shuffle,
        "LDG" | "STG" | "LD" | "ST" | "LDC" | "LDL" | "STL" => Unit::Memory,
        "ULDC" | "UMOV" | "UIADD3" | "UISETP" | "USEL" | "USHF" | "UIMAD" | "ULEA" | "ULOP3" | "UPLOP3"
        | "UP2UR" | "UFLO" | "R2UR" | "S2UR" | "S2R" | "VOTEU" => Unit::Scalar,
        "BRA" | "BRX" | "BRXU" | "BSSY" | "BSYNC" | "BREAK" | "CALL" | "RET" | "EXIT" | "NOP"
        | "WARPSYNC" | "ENDCOLLECTIVE" => Unit::Control,
        _ => bail!("an instruction whose unit is not in xtask/src/speed/sass.rs"),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A loop over rows around a loop over chunks, which has a slow path that is called, a branch, and a
    /// jump by a table; before it a pass over the mask, behind it a loop that only counts.
    pub(in super::super) const LISTING: &str = "
.L_rows:
        /*0000*/                   IMAD.MOV.U32 R2, RZ, RZ, RZ ;
.L_mask:
        /*0010*/                   LDG.E.U8 R3, desc[UR4][R8.64] ;
        /*0020*/                   IADD3 R9, R9, R3, RZ ;
        /*0030*/              @!P0 BRA `(.L_mask) ;
        /*0040*/                   LDG.E R4, desc[UR4][R2.64] ;
.L_chunk:
        /*0050*/                   LDG.E R5, desc[UR4][R2.64+0x80] ;
        /*0060*/               @P1 LDG.E.U8 R6, desc[UR4][R8.64] ;
        /*0070*/                   FADD R7, R4, -R5 ;
        /*0080*/                   ISETP.NE.U32.AND P2, PT, R6, RZ, PT ;
        /*0090*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*00a0*/                   BSSY B0, `(.L_joined) ;
        /*00b0*/               @P2 BRA P3, `(.L_fast) ;
        /*00b8*/                   BRA.DIV UR6, `(.L_pad) ;
        /*00c0*/                   MOV R20, 0xe0 ;
        /*00d0*/                   CALL.REL.NOINC `($__internal_0_$__cuda_div) ;
.L_fast:
        /*00e0*/                   BSYNC B0 ;
.L_joined:
        /*00f0*/                   LDC R10, c[0x2][R11+0x8] ;
        /*0100*/                   BRX R10 -0x110 ;
.L_short:
        /*0110*/                   BRA `(.L_end) ;
.L_long:
        /*0120*/                   F2F.F64.F32 R12, R7 ;
        /*0130*/                   DADD R14, R14, R12 ;
.L_end:
        /*0140*/                   STG.E desc[UR4][R16.64], R7 ;
        /*0150*/              @!P0 BRA `(.L_chunk) ;
.L_idle:
        /*0160*/                   SHFL.BFLY PT, R1, R7, 0x10, 0x1f ;
        /*0170*/              @!P0 BRA `(.L_idle) ;
        /*0180*/               @P1 EXIT ;
        /*0190*/                   BRA `(.L_rows) ;
$__internal_0_$__cuda_div:
        /*01a0*/                   LDC.64 R12, c[0x0][0x3c0] ;
        /*01b0*/                   RET.REL.NODEC R20 `(hot) ;
.L_pad:
        /*01c0*/                   BRA `(.L_pad);
";

    /// The entry point of a listing, whose jump table has the addresses of `.L_short` and `.L_long`.
    pub(in super::super) fn code(text: &str) -> Result<Code> {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
        let constants: Vec<u8> = [0u32, 0, 0x110, 0x120].iter().flat_map(|word| word.to_le_bytes()).collect();
        function("hot", &lines, &constants)
    }

    #[test]
    fn finds_every_innermost_loop_and_the_longest_way() -> Result<()> {
        let code = code(LISTING)?;
        let paths = code.innermost_loops()?;
        let spans: Vec<(usize, usize)> = paths.iter().map(|path| (path[0], path[path.len() - 1])).collect();
        // Instructions by their place: the mask, the chunk, the counter; rows are not innermost, and the
        // padding is not reached.
        assert_eq!(spans, [(1, 3), (5, 22), (23, 24)]);
        // Of the chunk's 18, all but the three of the slow path and the shorter side of the table.
        assert_eq!(paths[1].len(), 14);
        assert!([12, 13, 14, 18].iter().all(|left_out| !paths[1].contains(left_out)));
        Ok(())
    }

    #[test]
    fn counts_a_trip() -> Result<()> {
        let code = code(LISTING)?;
        let trip = code.trip(&code.innermost_loops()?[1]);
        // R4 comes from the trip before; R5 and R6 are asked for together, before R5 is waited for.
        assert_eq!((trip.loads, trip.stores, trip.round_trips), (9, 4, 1));
        assert_eq!((trip.alu, trip.single, trip.double, trip.quarter, trip.shuffles), (1, 1, 1, 1, 0));
        let late = LISTING.replace("LDG.E R5, desc[UR4][R2.64+0x80] ;", "NOP ;").replace(
            "ISETP.NE.U32.AND P2, PT, R6, RZ, PT ;",
            "LDG.E R5, desc[UR4][R2.64+0x80] ;\n        /*0088*/ ISETP.NE.U32.AND P2, PT, R5, RZ, PT ;",
        );
        let code = super::tests::code(&late)?;
        assert_eq!(code.trip(&code.innermost_loops()?[1]).round_trips, 2);
        Ok(())
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for (good, bad) in [
            ("FADD R7", "FROB R7"),
            ("BRA `(.L_chunk)", "BRA `(.L_nowhere)"),
            ("BRX R10 -0x110", "BRX R10 -0x100"),
            ("c[0x2][R11+0x8]", "c[0x2][R11+0x10]"),
            // The loop is entered at two places.
            ("STG.E desc[UR4][R16.64], R7 ;", "@P4 BRA `(.L_fast) ;"),
            ("IMAD.MOV.U32 R2, RZ, RZ, RZ ;", "@P4 BRA `(.L_fast) ;"),
        ] {
            let text = LISTING.replace(good, bad);
            assert_ne!(text, LISTING);
            let read = code(&text).and_then(|code| code.innermost_loops());
            // A branch inside the loop back to `.L_fast` is a loop inside it, whose first dominates it.
            assert_eq!(read.is_err(), !good.starts_with("STG"), "{bad}: {read:?}");
        }
    }
}
