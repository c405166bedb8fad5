//! A case's launch, and what calls need from its batch.

use lockstep::{Batch, Counts, Device, Error};
use lockstep_conformance::cases::Case;
use lockstep_conformance::launch;
use lockstep_conformance::output::Output;
use lockstep_conformance::precision::BY_HAND;
use std::collections::BTreeMap;

/// The outputs of a launch by name, as numbers.
pub(crate) struct Launch(pub(crate) BTreeMap<&'static str, Vec<f64>>);

impl Launch {
    pub(crate) fn new(device: &Device, case: &Case) -> Launch {
        let numbers = |o: &Output| (0..o.len()).map(|i| o.number(i)).collect();
        Launch(launch::run(device, case).unwrap().iter().map(|o| (o.name, numbers(o))).collect())
    }

    pub(crate) fn same(&self, name: &str, got: &[f32]) {
        assert!(got.iter().map(|x| f64::from(*x)).eq(self.0[name].iter().copied()), "{name}");
    }

    pub(crate) fn same64(&self, name: &str, got: &[f64]) {
        assert_eq!(got, self.0[name], "{name}");
    }

    /// Like [`Launch::same`], where NaN means "no score".
    pub(crate) fn scored(&self, name: &str, got: &[f32]) {
        let same = |(x, want): (&f32, &f64)| x.is_nan() || f64::from(*x) == *want;
        assert!(got.len() == self.0[name].len() && got.iter().zip(&self.0[name]).all(same), "{name}");
    }

    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.0[name].iter().sum()
    }

    /// Largest entry of a row statistic.
    pub(crate) fn max(&self, name: &str) -> f64 {
        self.0[name].iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b))
    }

    /// Compares a mean over tokens from the API with the sum of the rows, relative to the magnitudes of the
    /// rows.
    pub(crate) fn mean(&self, name: &str, got: f64, tokens: u64) {
        let scale: f64 = self.0[name].iter().map(|x| x.abs()).sum::<f64>() / tokens as f64;
        let want = self.sum(name) / tokens as f64;
        assert!((got - want).abs() <= BY_HAND * scale, "{name}: {got}, from the rows {want}");
    }
}

pub(crate) fn counts(case: &Case) -> Counts {
    let live = |row: usize| case.data.span(row).filter(|i| case.data.live(*i)).count() as u64;
    let rows: Vec<u64> = (0..case.data.rows()).map(live).collect();
    Counts {
        tokens: rows.iter().sum(),
        nonempty: rows.iter().filter(|n| **n > 0).count() as u64,
        sequences: rows.len() as u64,
    }
}

/// Calls with the case's rows as groups of one-token sequences.
pub(crate) fn of_groups<R>(case: &Case, call: impl Fn(&Batch<'_>) -> Result<R, Error>) -> R {
    let one_token_each: Vec<u32> = (0..=case.data.elements() as u32).collect();
    let batch = Batch::with_empty_rows(&one_token_each, &case.data.offsets, None).unwrap();
    call(&batch).unwrap()
}
