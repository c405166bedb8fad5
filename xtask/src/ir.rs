//! What the optimised LLVM IR requests: the number of fused multiply-adds of each entry point. Any more in
//! the assembly were contracted by a back end.

use crate::Fault;
use std::collections::BTreeMap;

/// Fused multiply-adds of an entry point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fused {
    /// In binary32.
    pub single: usize,
    /// In binary64.
    pub double: usize,
}

/// Counts `llvm.fma` in every function.
pub fn fused(ir: &str) -> BTreeMap<String, Fused> {
    let mut functions = BTreeMap::new();
    let mut current = None;
    for line in ir.lines() {
        if line.starts_with("define ") {
            let name =
                line.split_once('@').and_then(|(_, rest)| rest.split_once('(')).map_or("", |(name, _)| name);
            current = Some(functions.entry(name.trim_matches('"').to_owned()).or_insert_with(Fused::default));
        } else if line.starts_with('}') {
            current = None;
        } else if let Some(count) = &mut current {
            count.single += width(line, "f32");
            count.double += width(line, "f64");
        }
    }
    functions
}

/// Number of multiply-adds in a line: `@llvm.fma.f32(` counts one, `@llvm.fma.v2f32(` two.
fn width(line: &str, of: &str) -> usize {
    let Some((_, rest)) = line.split_once("@llvm.fma.") else { return 0 };
    let Some(shape) = rest.split('(').next().and_then(|name| name.strip_suffix(of)) else { return 0 };
    if shape.is_empty() { 1 } else { shape.trim_start_matches('v').parse().unwrap_or(usize::MAX / 2) }
}

/// Finds fast-math flags that the arithmetic must not have, and operations whose rounding is left to the back
/// end.
pub fn check(ir: &str) -> Vec<Fault> {
    const FREEDOMS: [&str; 5] = ["fast", "contract", "reassoc", "arcp", "afn"];
    let mut faults = Vec::new();
    for (index, line) in ir.lines().enumerate() {
        let code = line.split('"').next().unwrap_or_default();
        let mut words = code.split_ascii_whitespace();
        if let Some(word) = words.find(|word| FREEDOMS.contains(word)).filter(|_| code.contains(" = ")) {
            faults.push(Fault::new(
                "LLVM IR",
                index + 1,
                format!("arithmetic with the freedom `{word}`: {}", line.trim()),
            ));
        }
        // It may or may not be fused.
        if code.contains("@llvm.fmuladd") {
            faults.push(Fault::new("LLVM IR", index + 1, line.trim()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "
define ptx_kernel void @hot(i32 %0) {
  %1 = tail call float @llvm.fma.f32(float %a, float %b, float %c)
  %2 = tail call noundef float @llvm.fma.f32(float %1, float %b, float %c)
  %3 = call double @llvm.fma.f64(double %d, double %e, double %f)
  %4 = fmul float %1, %2
  %5 = call <2 x float> @llvm.fma.v2f32(<2 x float> %a, <2 x float> %b, <2 x float> %c)
}
define ptx_kernel void @other() {
  ret void
}
declare float @llvm.fma.f32(float, float, float)
";

    #[test]
    fn counts_each_function() {
        let counts = fused(IR);
        assert_eq!(counts["hot"], Fused { single: 4, double: 1 });
        assert_eq!(counts["other"], Fused::default());
        assert_eq!(counts.len(), 2);
        assert_eq!(check(IR), []);
    }

    #[test]
    fn catches_freedoms() {
        for line in [
            "  %4 = fmul contract float %1, %2",
            "  %4 = fadd fast float %1, %2",
            "  %4 = fdiv arcp afn float %1, %2",
            "  %4 = call float @llvm.fmuladd.f32(float %1, float %2, float %3)",
        ] {
            assert!(!check(&IR.replace("  %4 = fmul float %1, %2", line)).is_empty(), "{line}");
        }
    }
}
