//! `mask_sequences`.

use super::prelude::*;
use crate::oracle::mask_sequences as oracle;
use lockstep_core::reward::MaskSequences as Kernel;

/// `mask_sequences` has no scalar arguments; a positive row value keeps the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskSequences;

impl OpTest for MaskSequences {
    const OPS: &'static [&'static str] = &["mask_sequences"];
    const ALLOWED: &'static [Allowance] = &[allow("mask_sequences", &["masked"], 0.0, "0 or 1")];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        // Bytes other than 1 also keep.
        let keep: Vec<u8> = data.row[0].iter().map(|x| if *x > 0.0 { 7 } else { 0 }).collect();
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            keep: In::new(&keep),
            masked: out.element("masked"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        vec![Want::live("masked", data, |r, i| (oracle::token(data.live(i), data.row[0][r] > 0.0), 0.0))]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for shape in small() {
            for mask in [Mask::ALL[0], Mask::ALL[4]] {
                cases.push(case(&shape, mask, source.fork(cases.len() as u64)));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let shape = draw.shape();
        case(&shape, draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    data.row = vec![data.per_row(|r| source.fork(1).signed(r))];
    Case {
        label: format!("{} {mask:?}", shape.name),
        catches: "a mask byte other than 1 that is taken for 0; a kept sequence whose own mask is lost",
        params: MaskSequences.into(),
        data,
    }
}
