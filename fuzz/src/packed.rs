//! Small packed batches, valid or invalid.

use crate::Draw;
use lockstep::{Batch, Error};

/// The arrays of a batch.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Offsets of sequences.
    pub cu_seqlens: Vec<u32>,
    /// Offsets of groups.
    pub cu_groups: Vec<u32>,
    /// Which tokens take part.
    pub loss_mask: Option<Vec<u8>>,
    empty_rows: bool,
}

/// Lengths at which the shape of a reduction changes: lanes, columns, blocks.
const LENGTHS: [u32; 12] = [0, 1, 31, 32, 33, 127, 128, 129, 255, 256, 257, 300];

impl Packed {
    /// Draws up to seven sequences in groups. The offsets are always valid, but empty rows may be refused.
    pub fn draw(draw: &mut Draw<'_>) -> Packed {
        let (mut cu_seqlens, mut cu_groups) = (vec![0], vec![0]);
        let sequences = draw.below(8);
        for sequence in 0..sequences {
            let byte = draw.byte();
            let length = if byte < 0x80 { u32::from(byte) % 24 } else { LENGTHS[usize::from(byte) % 12] };
            cu_seqlens.push(cu_seqlens[sequence] + length);
            if draw.flag() {
                cu_groups.push(sequence as u32 + 1);
            }
        }
        if cu_groups.last() != Some(&(sequences as u32)) || sequences == 0 {
            cu_groups.push(sequences as u32);
        }
        let tokens = cu_seqlens[sequences] as usize;
        let loss_mask = match draw.below(4) {
            0 => None,
            1 => Some(vec![0; tokens]),
            _ => Some(draw.mask(tokens)),
        };
        Packed { cu_seqlens, cu_groups, loss_mask, empty_rows: draw.flag() }
    }

    /// The batch, or `None` after checking that the error names one of its arrays.
    pub fn batch(&self) -> Option<Batch<'_>> {
        let make = if self.empty_rows { Batch::with_empty_rows } else { Batch::new };
        match make(&self.cu_seqlens, &self.cu_groups, self.loss_mask.as_deref()) {
            Ok(batch) => Some(batch),
            Err(Error::Argument(error)) => {
                let message = error.to_string();
                let names = ["`cu_seqlens`", "`cu_groups`", "`loss_mask`"];
                assert!(names.iter().any(|name| message.contains(name)), "{message}");
                None
            }
            Err(error) => panic!("not an error of an argument: {error}"),
        }
    }

    /// Whether token `i` takes part.
    pub fn live(&self, i: usize) -> bool {
        self.loss_mask.as_ref().is_none_or(|mask| mask[i] != 0)
    }
}
