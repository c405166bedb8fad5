//! `batch_counts`.

use super::prelude::*;
use crate::oracle::counts as oracle;
use lockstep_core::aggregate::BatchCounts;

/// Arguments of `batch_counts`: as many parts as the data have rows; the sequences' offsets are
/// [`Data::index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts;

const NAMES: [&str; 3] = ["tokens", "nonempty", "longest"];

impl OpTest for Counts {
    const OPS: &'static [&'static str] = &["batch_counts"];
    const ALLOWED: &'static [Allowance] = &[allow("batch_counts", &NAMES, 0.0, "counts")];
    const CATCHES: &'static str = "a sequence in two parts or in none; a padded or fully masked sequence \
                                   that counts; a length without its masked tokens";
    const ROWS_ARE_BLOCKS: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&BatchCounts {
            cu_seqlens: offsets("cu_seqlens", &data.index, data.elements(), "tokens")?,
            loss_mask: data.masked(),
            parts: data.rows(),
            tokens: out.row(NAMES[0]),
            nonempty: out.row(NAMES[1]),
            longest: out.row(NAMES[2]),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let live = |pair: &[u32]| (pair[0]..pair[1]).map(|i| data.live(i as usize)).collect();
        let sequences: Vec<Vec<bool>> = data.index.windows(2).map(live).collect();
        let mut wants = NAMES.map(Want::new);
        for part in 0..data.rows() {
            let own: Vec<Vec<bool>> = sequences.iter().skip(part).step_by(data.rows()).cloned().collect();
            let found = oracle::of(&own);
            let counts = [found.tokens, found.nonempty, found.longest];
            push_all(&mut wants, counts.map(|count| (count as f64, 0.0)));
        }
        wants.into()
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(shapes::all(), [1, 3, 32, 64]), source, |k, (shape, parts), source| {
            case(&shape, parts, [0, 5, 70][k % 3], Mask::ALL[k % 6], source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let shape = draw.shape();
        let (parts, padded) = (1 + draw.below(64), draw.below(8));
        case(&shape, parts, padded, draw.pick(&Mask::ALL), draw.source())
    }
}

/// Sequences of these lengths, then `padded` empty ones, split into `parts` parts.
fn case(shape: &Shape, parts: usize, padded: usize, mask: Mask, source: Source) -> Case {
    let mut index = shape.offsets();
    let tokens = index[index.len() - 1];
    let bytes = mask.bytes(&index, source);
    index.resize(index.len() + padded, tokens);
    // A row of the launch is a part; the index says which tokens it covers.
    let offsets = (0..=parts as u64).map(|p| (u64::from(tokens) * p / parts as u64) as u32).collect();
    let label = format!("{} in {parts} parts, {padded} padded, {mask:?}", shape.name);
    Case::of(Counts, label, Data { offsets, mask: bytes, index, ..Data::default() })
}
