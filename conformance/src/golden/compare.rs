//! The error of an array.

/// One output array beside what the peer computed.
pub(super) struct Compared {
    pub(super) name: String,
    pub(super) got: Vec<f64>,
    pub(super) want: Vec<f64>,
    /// For a scalar that is a sum: the sum of the magnitudes of its terms.
    pub(super) terms: Option<f64>,
}

/// An error, by the rule of the [module](super).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Relative to the largest |want|.
    pub(super) of_largest: f64,
    /// What decides: the same, or relative to the terms of a sum that cancels.
    pub(super) decisive: f64,
}

impl Compared {
    /// An array.
    pub(super) fn array(name: &str, got: Vec<f64>, want: Vec<f64>) -> Self {
        Compared { name: name.into(), got, want, terms: None }
    }

    /// A number that is a sum of terms with the given total magnitude.
    pub(super) fn sum(name: &str, got: f64, want: f64, terms: f64) -> Self {
        Compared { name: name.into(), got: vec![got], want: vec![want], terms: Some(terms) }
    }

    pub(super) fn measure(&self, tolerance: f64) -> Measured {
        let largest = self.want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        // Not f64::max, which would drop a NaN: a NaN anywhere is an infinite error.
        let difference = self.got.iter().zip(&self.want).map(|(got, want)| (got - want).abs());
        let difference = difference.fold(0.0, |m: f64, x| if x.is_nan() { f64::INFINITY } else { m.max(x) });
        let relative = |scale: f64| if difference == 0.0 { 0.0 } else { difference / scale };
        let of_largest = relative(largest);
        let decisive = match self.terms {
            Some(terms) if of_largest > tolerance => relative(largest.max(terms)),
            _ => of_largest,
        };
        Measured { of_largest, decisive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(got: &[f64], want: &[f64], terms: Option<f64>) -> Measured {
        Compared { name: String::new(), got: got.into(), want: want.into(), terms }.measure(1e-6)
    }

    #[test]
    fn relative_to_the_largest() {
        assert_eq!(measure(&[1.0, 8.0], &[2.0, 8.0], None).decisive, 0.125);
    }

    #[test]
    fn zero_wants_exactly_zero() {
        assert_eq!(measure(&[0.0, -0.0], &[0.0, 0.0], None).decisive, 0.0);
        assert_eq!(measure(&[0.0, 1e-30], &[0.0, 0.0], None).decisive, f64::INFINITY);
    }

    #[test]
    fn nan_is_an_infinite_error() {
        assert_eq!(measure(&[f64::NAN, 1.0], &[1.0, 1.0], Some(1e9)).decisive, f64::INFINITY);
    }

    #[test]
    fn a_sum_that_cancels_is_judged_by_its_terms() {
        let m = measure(&[1.5e-8], &[1e-8], Some(2.0));
        assert_eq!((m.of_largest > 0.4, m.decisive < 3e-9), (true, true));
        assert!(measure(&[1.5], &[1.0], Some(1.0)).decisive > 0.4);
    }
}
