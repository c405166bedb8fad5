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
    const CATCHES: &'static str =
        "a mask byte other than 1 that is taken for 0; a kept sequence whose own mask is lost";

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
        let all = pairs(small(), [Mask::Absent, Mask::Alternate]);
        numbered(all, source, |_, (shape, mask), source| case(&shape, mask, source))
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        case(&draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    data.row = vec![data.per_row(|r| source.fork(1).signed(r))];
    Case::of(MaskSequences, format!("{} {mask:?}", shape.name), data)
}
