//! Reads a gfx942 listing and reports the rules that it breaks. [`arithmetic`]: instructions are on a list of
//! those that are exact or round once. [`approximation`]: reciprocals occur only inside IEEE divisions and
//! square roots.

pub mod approximation;
pub mod arithmetic;
mod parse;

pub use parse::{Function, Instruction, parse};

use crate::Fault;
use crate::ir::Fused;
use std::collections::BTreeMap;

/// All faults of a listing.
pub fn check(functions: &[Function]) -> Vec<Fault> {
    let of = |function| arithmetic::check(function).into_iter().chain(approximation::check(function));
    functions.iter().flat_map(of).collect()
}

/// Fused multiply-adds of each function, excluding those of divisions and square roots.
pub fn fused(functions: &[Function]) -> BTreeMap<String, Fused> {
    let of = |function: &Function| {
        let count = |bases: &[&str]| function.code.iter().filter(|i| bases.contains(&i.base())).count();
        let (of_division, of_root) = (approximation::DIVISION.fused, approximation::ROOT.fused);
        let single = count(&["v_fma_f32", "v_fmac_f32", "v_fmaak_f32", "v_fmamk_f32"]);
        let double = count(&["v_fma_f64", "v_fmac_f64"]);
        let in_double = count(&["v_rcp_f64"]) * of_division + count(&["v_rsq_f64"]) * of_root;
        (function.name.clone(), Fused { single, double: double.saturating_sub(in_double) })
    };
    functions.iter().map(of).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn functions(body: &str) -> Vec<Function> {
        let text =
            format!("<hot>:\n\ts_load_dword s6, s[0:1], 0x0\n{body}\n\ts_endpgm\n\n<other>:\n\ts_endpgm\n");
        parse(&text).expect("a listing")
    }

    pub(crate) fn faults(body: &str) -> Vec<Fault> {
        check(&functions(body))
    }

    #[test]
    fn reads_functions_and_labels() {
        let functions =
            functions("\ts_cbranch_scc1 L0\n\tv_mov_b64_e32 v[4:5], 0\n\n<L0>:\n\tv_fmac_f32_e32 v1, v2, v3");
        assert_eq!(functions.len(), 2);
        assert_eq!(functions[0].name, "hot");
        assert_eq!(functions[0].code.len(), 5);
        assert_eq!(functions[0].next(1).expect("labels"), [2, 3]);
        assert!(functions[0].next(4).expect("labels").is_empty());
        assert_eq!(functions[0].code[3].line, 7);
        assert_eq!(fused(&functions)["hot"], Fused { single: 1, double: 0 });
        for broken in ["", "<hot>:\n\ts_branch L7\n", "\ts_endpgm\n", "<hot>:\n<L0>:\n"] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }
}
