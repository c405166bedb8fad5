//! A case's launch, and what calls need from its batch.

use crate::prelude::*;
use lockstep_conformance::output::Output;
use std::collections::BTreeMap;

/// A case's launch on a device: the outputs by name, as numbers.
pub(crate) struct Launch<'a> {
    pub(crate) device: &'a Device,
    pub(crate) case: &'a Case,
    pub(crate) outputs: BTreeMap<&'static str, Vec<f64>>,
    groups: [u32; 2],
}

impl<'a> Launch<'a> {
    pub(crate) fn new(device: &'a Device, case: &'a Case) -> Launch<'a> {
        let numbers = |o: &Output| (0..o.len()).map(|i| o.number(i)).collect();
        let outputs = launch::run(device, case).unwrap().iter().map(|o| (o.name, numbers(o))).collect();
        Launch { device, case, outputs, groups: [0, case.data.rows() as u32] }
    }

    /// The case's rows, as sequences of one group.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let data = &self.case.data;
        Batch::with_empty_rows(&data.offsets, &self.groups, data.mask.as_deref()).unwrap()
    }

    /// Calls with the case's rows as groups of one-token sequences.
    pub(crate) fn of_groups<R>(&self, call: impl Fn(&Batch<'_>) -> Result<R, Error>) -> R {
        let one_token_each: Vec<u32> = (0..=self.case.data.elements() as u32).collect();
        call(&Batch::with_empty_rows(&one_token_each, &self.case.data.offsets, None).unwrap()).unwrap()
    }

    pub(crate) fn counts(&self) -> Counts {
        let data = &self.case.data;
        let rows: Vec<u64> = (0..data.rows()).map(|row| data.members(row).len() as u64).collect();
        Counts {
            tokens: rows.iter().sum(),
            nonempty: rows.iter().filter(|n| **n > 0).count() as u64,
            sequences: rows.len() as u64,
        }
    }

    pub(crate) fn same<T: Copy + Into<f64>>(&self, name: &str, got: &[T]) {
        assert!(got.iter().map(|x| (*x).into()).eq(self.outputs[name].iter().copied()), "{name}");
    }

    /// Like [`Launch::same`], where NaN means "no score".
    pub(crate) fn scored(&self, name: &str, got: &[f32]) {
        let same = |(x, want): (&f32, &f64)| x.is_nan() || f64::from(*x) == *want;
        assert!(
            got.len() == self.outputs[name].len() && got.iter().zip(&self.outputs[name]).all(same),
            "{name}"
        );
    }

    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.outputs[name].iter().sum()
    }

    /// Largest entry of a row statistic.
    pub(crate) fn max(&self, name: &str) -> f64 {
        self.outputs[name].iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b))
    }

    /// Compares a mean over tokens from the API with the sum of the rows, relative to the magnitudes of the
    /// rows.
    pub(crate) fn mean(&self, name: &str, got: f64, tokens: u64) {
        let scale: f64 = self.outputs[name].iter().map(|x| x.abs()).sum::<f64>() / tokens as f64;
        let want = self.sum(name) / tokens as f64;
        assert!((got - want).abs() <= BY_HAND * scale, "{name}: {got}, from the rows {want}");
    }
}
