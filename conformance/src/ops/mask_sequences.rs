//! `mask_sequences`.

use super::OpTest;
use crate::backend::Backend;
use crate::cases::hash::Source;
use crate::cases::masks::Mask;
use crate::cases::random::Draw;
use crate::cases::shapes::{Shape, small};
use crate::cases::{Case, Data};
use crate::expect::Want;
use crate::launch::{bytes, widened};
use crate::oracle::mask_sequences as oracle;
use crate::output::{Output, Place};
use crate::precision::Allowance;
use lockstep_core::ragged::{In, Mask as LossMask, Offsets, Out};
use lockstep_core::reward::MaskSequences as Kernel;

/// `mask_sequences` has no scalar arguments; a positive row value keeps the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskSequences;

impl OpTest for MaskSequences {
    const OPS: &'static [&'static str] = &["mask_sequences"];
    const ALLOWED: &'static [Allowance] =
        &[Allowance { op: "mask_sequences", output: "masked", units: 0.0, reason: "0 or 1" }];

    fn op(&self) -> &'static str {
        "mask_sequences"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data) -> Result<Vec<Output>, String> {
        let n = data.elements();
        let mut masked = bytes(n);
        // Bytes other than 1 also keep.
        let keep: Vec<u8> = data.row[0].iter().map(|x| if *x > 0.0 { 7 } else { 0 }).collect();
        backend.run(&Kernel {
            cu_seqlens: Offsets::new("offsets", &data.offsets, n, "elements").map_err(|e| e.to_string())?,
            loss_mask: LossMask::new(data.mask.as_deref()),
            keep: In::new(&keep),
            masked: Out::new(&mut masked),
        })?;
        Ok(vec![Output { name: "masked", place: Place::Element, values: widened(masked) }])
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("masked");
        for r in 0..data.rows() {
            for i in data.span(r) {
                want.push(oracle::token(data.live(i), data.row[0][r] > 0.0), 0.0);
            }
        }
        vec![want]
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
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(&shape, draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(shape: &Shape, mask: Mask, source: Source) -> Case {
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let row = vec![(0..shape.lengths.len()).map(|r| source.fork(1).signed(r)).collect()];
    Case {
        label: format!("{} {mask:?}", shape.name),
        catches: "a mask byte other than 1 that is taken for 0; a kept sequence whose own mask is lost",
        params: MaskSequences.into(),
        data: Data { offsets, mask: bytes, row, ..Data::default() },
    }
}
