//! The error of an array, by the rule described in the [crate](crate).

use std::ops::Range;

/// Tolerance for code that computes in binary64: relative to the largest value of the array, and to each
/// element in addition to the [floor](GOLDEN_FLOOR). 34 units of 2⁻²⁴: the exponential of a log-ratio of 20
/// may by itself be off by 20, because its argument is rounded to binary32.
pub const GOLDEN: f64 = 2e-6;

/// The error that an element may have beyond its own share, relative to the largest element of its array; for
/// gradients, to the largest of its sequence. An element that is a small difference of such numbers (a
/// whitened advantage, a policy term against a KL term, a token against the mean of its sequence) carries
/// what two roundings to binary32 leave of them: half an ULP, 2⁻²⁴ of the largest, each. Two sequences share
/// no ratio, so a large gradient of one excuses nothing in another.
pub const GOLDEN_FLOOR: f64 = 1.0 / 8_388_608.0;

/// Tolerance for code that computes in binary32, if the same code in binary64 is also held at [`GOLDEN`]: 300
/// units of 2⁻²⁴ for the code's own dozen roundings and its unordered sums of some hundred terms.
pub const GOLDEN_FLOAT32: f64 = 2e-5;

/// Tolerance for an element of an array of exponentials of numbers in the tens: 168 units of 2⁻²⁴, the effect
/// of rounding an argument of 160 to binary32. The largest element is held at [`GOLDEN`] as everywhere.
pub const GOLDEN_STEEP: f64 = 1e-5;

/// Values of a case, and their name in the file.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) got: Vec<f64>,
    pub(crate) want: Vec<f64>,
    /// For a number that is a sum, the sum of the magnitudes of its terms.
    pub(crate) terms: f64,
    /// The same for each element, if they differ.
    pub(crate) each: Vec<f64>,
    /// Ranges of elements that share a floor; if empty, all of them do.
    pub(crate) rows: Vec<Range<usize>>,
    /// Whether the framework computed in binary32.
    pub(crate) float32: bool,
    /// Whether elements are held at [`GOLDEN_STEEP`].
    pub(crate) steep: bool,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Largest difference, relative to the largest |want| or, for a sum that cancels, to its terms.
    pub(crate) of_largest: f64,
    /// Largest difference of an element, relative to its allowance.
    pub(crate) of_allowed: f64,
    /// Index of that element.
    pub(crate) worst: usize,
    /// Whether both are within their bounds.
    pub(crate) passes: bool,
    /// Whether a sum was judged by its terms.
    pub(crate) cancelled: bool,
}

impl Compared {
    pub(crate) fn measure(&self) -> Measured {
        let alone = self.against(0.0, &[]);
        if alone.passes || self.terms == 0.0 && self.each.iter().all(|terms| *terms == 0.0) {
            return alone;
        }
        Measured { cancelled: true, ..self.against(self.terms, &self.each) }
    }

    fn against(&self, terms: f64, each: &[f64]) -> Measured {
        let tolerance = if self.float32 { GOLDEN_FLOAT32 } else { GOLDEN };
        let element = if self.steep { tolerance.max(GOLDEN_STEEP) } else { tolerance };
        let size = |row: &[f64]| row.iter().fold(terms, |m: f64, x| m.max(x.abs()));
        let (all, largest) = (0..self.want.len(), size(&self.want));
        let mut out = Measured::default();
        for row in if self.rows.is_empty() { std::slice::from_ref(&all) } else { &self.rows } {
            let of_row = size(&self.want[row.clone()]);
            for i in row.clone() {
                let (got, want) = (self.got[i], self.want[i]);
                let own = each.get(i).copied().unwrap_or(0.0);
                // Below its smallest normal number, binary32 has no digits to compare.
                let alike = got == want || (got - want).abs() < f64::from(f32::MIN_POSITIVE);
                if alike || (got.is_nan() && want.is_nan()) {
                    continue;
                }
                // A NaN on one side only is an infinite error, and so is any difference if every value is 0.
                let of = |x: f64| if (got - want).is_nan() { f64::INFINITY } else { (got - want).abs() / x };
                out.of_largest = out.of_largest.max(of(largest.max(own)));
                let share = of(element * want.abs() + GOLDEN_FLOOR * of_row.max(own));
                if share > out.of_allowed {
                    (out.of_allowed, out.worst) = (share, i);
                }
            }
        }
        out.passes = out.of_largest <= tolerance && out.of_allowed <= 1.0;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(got: &[f64], want: &[f64], terms: f64, rows: &[Range<usize>]) -> Measured {
        let (got, want, rows) = (got.into(), want.into(), rows.into());
        Compared { got, want, terms, rows, ..Compared::default() }.measure()
    }

    #[test]
    fn relative_to_the_largest_and_to_the_element() {
        assert_eq!(measure(&[1.0, 8.0], &[2.0, 8.0], 0.0, &[]).of_largest, 0.125);
        // A small element beside a large one: off by 1e-6 of the largest, but by a tenth of itself.
        let m = measure(&[1.1e-5, 1.0], &[1e-5, 1.0], 0.0, &[]);
        assert!(m.of_largest < GOLDEN && m.of_allowed > 1.0 && !m.passes, "{m:?}");
        // What rounding to binary32 at the size of the largest may leave, allowed within one row but not
        // across two.
        assert!(measure(&[1e-5 + 1e-7, 1.0], &[1e-5, 1.0], 0.0, &[]).passes);
        assert!(!measure(&[1e-5 + 1e-7, 1.0], &[1e-5, 1.0], 0.0, &[0..1, 1..2]).passes);
    }

    #[test]
    fn zero_wants_exactly_zero_and_nan_agrees_with_nan() {
        assert!(measure(&[0.0, -0.0], &[0.0, 0.0], 0.0, &[]).passes);
        assert_eq!(measure(&[0.0, 1e-30], &[0.0, 0.0], 0.0, &[]).of_largest, f64::INFINITY);
        assert!(measure(&[f64::NAN, 1.0], &[f64::NAN, 1.0], 0.0, &[]).passes);
        assert_eq!(measure(&[f64::NAN, 1.0], &[1.0, 1.0], 1e9, &[]).of_largest, f64::INFINITY);
        assert_eq!(measure(&[0.0, 1.0], &[f64::NAN, 1.0], 1e9, &[]).of_largest, f64::INFINITY);
    }

    #[test]
    fn a_sum_that_cancels_is_judged_by_its_terms() {
        let m = measure(&[1.5e-8], &[1e-8], 2.0, &[]);
        assert!(m.cancelled && m.passes, "{m:?}");
        assert!(!measure(&[1.5], &[1.0], 1.0, &[]).passes);
        let got = vec![1.5e-8; 2];
        let of_each = Compared { want: vec![1e-8; 2], got, each: vec![2.0, 0.0], ..Compared::default() };
        assert_eq!(of_each.measure().worst, 1);
    }
}
