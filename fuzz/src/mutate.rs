//! Modifies a case of the conformance suite as the input bytes say.

use crate::Draw;
use lockstep_conformance::cases::Case;
use lockstep_conformance::cases::select::select;

/// Values that are valid, invalid or at the edge of either.
const VALUES: [f32; 20] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e30,
    -1e30,
    1e-30,
    1e-45,
    -1e-45,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    -88.8,
    -20.0,
    1e4,
    -1e4,
    1.000_000_1,
];

/// Changes the shape: selects some rows of the case, reordered or repeated, if its rows can be moved.
pub fn reshaped(case: Case, draw: &mut Draw<'_>) -> Case {
    let rows = case.data.rows();
    if !draw.flag() || case.params.rows_are_blocks() || rows == 0 {
        return case;
    }
    let chosen: Vec<usize> = (0..1 + draw.below(8)).map(|_| draw.below(rows)).collect();
    let lead = if case.params.rows_are_equal() { 0 } else { draw.below(34) };
    select(&case, &chosen, lead)
}

/// Changes values and mask. Lengths and positional data (offsets, labels, experts) stay.
pub fn mutate(case: &mut Case, draw: &mut Draw<'_>) {
    let elements = case.data.elements();
    if elements == 0 {
        return;
    }
    for _ in 0..draw.below(48) {
        let at = draw.u32() as usize % elements;
        let run = [1, 1, 2, 33, elements][draw.below(5)];
        let span = at..elements.min(at + run);
        match draw.below(8) {
            0 => {
                let byte = draw.byte();
                if let Some(mask) = &mut case.data.mask
                    && mask.len() == elements
                {
                    mask[span].fill(byte % 3);
                }
            }
            1 => {
                let value = f64::from(value(draw));
                if case.data.element64.len() == elements {
                    case.data.element64[span].fill(value);
                }
            }
            kind => {
                let slots = case.data.element.len();
                if slots == 0 {
                    continue;
                }
                let values = &mut case.data.element[draw.below(slots)];
                let value = value(draw);
                let end = span.end.min(values.len());
                for i in span.start..end {
                    values[i] = match kind {
                        2 => -values[i],
                        3 => values[i] * 1.000_000_1,
                        4 => values[at],
                        _ => value,
                    };
                }
            }
        }
    }
}

fn value(draw: &mut Draw<'_>) -> f32 {
    match draw.byte() {
        byte @ 0..200 => VALUES[usize::from(byte) % VALUES.len()],
        _ => f32::from_bits(draw.u32()),
    }
}
