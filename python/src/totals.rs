//! State that ranks share: exact totals of a loss, exact moments of values. They cross a network as bytes or
//! as limbs.

use crate::ops::host_slice as slice;
use crate::{Place, named, refused};
use lockstep::core::aggregate::ExactMoments;
use lockstep::ops::exact::{Limbs, PolicyTotals, exact_sequence_moments, exact_token_moments};
use lockstep::ops::whiten::{WhitenParams, whiten_by};
use lockstep::recipe::WhitenChoice;
use lockstep::{Advantage, Batch, Counts, Device, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use std::borrow::Cow;

/// Defines a class whose values merge; `$more` are its own methods.
macro_rules! merging {
    ($(#[$doc:meta])* $class:ident, $name:literal, $own:ty, $none:expr, { $($more:tt)* }) => {
        $(#[$doc])*
        #[pyclass(name = $name, module = "lockstep", frozen, eq)]
        #[derive(Clone, PartialEq)]
        pub(crate) struct $class($own);

        #[pymethods]
        impl $class {
            /// Makes an empty value, of no rows.
            #[new]
            fn new() -> Self {
                $class($none)
            }

            /// Merges two values.
            fn __add__(&self, other: &Self) -> Self {
                let mut merged = self.clone();
                merged.0.merge(&other.0);
                merged
            }

            /// Returns the value as bytes; equal values give equal bytes.
            fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
                PyBytes::new(py, &self.0.to_bytes())
            }

            /// Reads a value from the bytes of `to_bytes`.
            #[staticmethod]
            fn from_bytes(bytes: Cow<'_, [u8]>) -> PyResult<Self> {
                <$own>::from_bytes(&bytes).map($class).map_err(|error| refused(error.into()))
            }

            /// Returns 64-bit integers to sum over ranks, in writable memory, and two numbers to reduce with
            /// the maximum.
            fn limbs<'py>(&self, py: Python<'py>) -> (Bound<'py, PyByteArray>, [f64; 2]) {
                let (limbs, maxima) = self.0.to_limbs();
                let bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_ne_bytes()).collect();
                (PyByteArray::new(py, &bytes), maxima)
            }

            /// Makes a value from the summed limbs and the maxima.
            #[staticmethod]
            fn from_limbs(limbs: Cow<'_, [u8]>, maxima: [f64; 2]) -> PyResult<Self> {
                let (limbs, rest) = limbs.as_chunks();
                if !rest.is_empty() {
                    let says = "`limbs` are not 64-bit integers: expected a multiple of 8 bytes";
                    return Err(PyValueError::new_err(says));
                }
                let limbs: Vec<i64> = limbs.iter().map(|limb| i64::from_ne_bytes(*limb)).collect();
                <$own>::from_limbs(&limbs, maxima).map($class).map_err(refused)
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
                Ok((slf.getattr("from_bytes")?, (slf.get().to_bytes(slf.py()),)))
            }

            $($more)*
        }
    };
}

merging! {
    /// The exact loss and metrics of a batch's rows, the same for any sharding. `+` merges two.
    PyTotals, "Totals", PolicyTotals, PolicyTotals::default(), {
        /// Makes totals from each row's share of the loss and its sums and maxima of the metrics, in host
        /// memory.
        #[staticmethod]
        fn of_rows(counts: [u64; 3], row_loss: Place, metrics: Option<(Place, Place)>) -> PyResult<Self> {
            let [tokens, nonempty, sequences] = counts;
            let counts = Counts { tokens, nonempty, sequences };
            let metrics = metrics.map(|(sums, maxima)| (slice(sums), slice(maxima)));
            PolicyTotals::of_rows(counts, Some(slice(row_loss)), metrics).map(PyTotals).map_err(refused)
        }

        /// Numbers of live tokens, of sequences with a live token, and of sequences.
        #[getter]
        fn counts(&self) -> [u64; 3] {
            let Counts { tokens, nonempty, sequences } = self.0.counts();
            [tokens, nonempty, sequences]
        }

        /// The loss, rounded once; None if a shard was computed without its loss.
        #[getter]
        fn loss(&self) -> Option<f64> {
            self.0.loss()
        }

        /// The metrics; None if a shard was computed without metrics.
        #[getter]
        fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
            self.0.metrics().map(|metrics| named(py, &metrics)).transpose()
        }

        fn __repr__(&self) -> String {
            let [tokens, _, sequences] = self.counts();
            let loss = self.loss().map_or("not measured".to_owned(), |loss| format!("{loss:?}"));
            format!("Totals({sequences} sequences, {tokens} tokens, loss {loss})")
        }
    }
}

/// The layout of values on the host: whether they are per token, `cu_seqlens`, the loss mask.
type Rows = (bool, Place, Option<Place>);

/// Calls `of` with a batch and its values; returns `none` on a rank without rows.
fn with_rows<R>(
    (per_token, cu_seqlens, mask): Rows,
    values: Place,
    none: R,
    of: impl FnOnce(&Batch<'_>, Advantage<'_>) -> Result<R, Error>,
) -> PyResult<R> {
    let (offsets, values): (&[u32], &[f32]) = (slice(cu_seqlens), slice(values));
    if let ([0], []) = (offsets, values) {
        return Ok(none);
    }
    let groups = [0, offsets.len().saturating_sub(1) as u32];
    let values = if per_token { Advantage::PerToken(values) } else { Advantage::PerSequence(values) };
    let batch = Batch::with_empty_rows(offsets, &groups, mask.map(slice));
    batch.and_then(|batch| of(&batch, values)).map_err(refused)
}

fn choice(by: &str) -> PyResult<(WhitenChoice, WhitenParams)> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("`by`: {error}"));
    let choice: WhitenChoice = toml::Value::from(by).try_into().map_err(|error| wrong(&error))?;
    Ok((choice, choice.params().ok_or_else(|| wrong(&"none does not whiten"))?))
}

merging! {
    /// Exact count, Σx and Σx² of values, and their extremes; the same for any sharding. `+` merges two.
    PyMoments, "Moments", ExactMoments, ExactMoments::NONE, {
        /// Makes the moments of values in host memory, counted as for the recipe choice `advantage.whiten =
        /// by`.
        #[staticmethod]
        fn of(py: Python<'_>, values: Place, rows: Rows, by: &str) -> PyResult<Self> {
            let weighting = choice(by)?.1.weighting;
            py.detach(|| {
                with_rows(rows, values, ExactMoments::NONE, |batch, values| match values {
                    Advantage::PerToken(values) => exact_token_moments(batch, values),
                    Advantage::PerSequence(values) => {
                        exact_sequence_moments(&Device::cpu(), batch, values, weighting)
                    }
                })
            })
            .map(PyMoments)
        }

        /// Whitens values by these moments into `out`; both are in host memory.
        fn whiten(&self, py: Python<'_>, values: Place, rows: Rows, by: &str, out: Place) -> PyResult<()> {
            let (choice, params) = choice(by)?;
            let whitened = py.detach(|| {
                with_rows(rows, values, Vec::new(), |batch, values| match values {
                    // As in a recipe: a single response has no spread.
                    Advantage::PerSequence(values) if choice == WhitenChoice::Mssr && self.0.count() == 1 => {
                        Ok(values.to_vec())
                    }
                    _ => whiten_by(&Device::cpu(), batch, values, &params, &self.0),
                })
            })?;
            if whitened.len() != out.1 {
                let says = format!("`out` has {} entries: expected {}, one per value", out.1, whitened.len());
                return Err(PyValueError::new_err(says));
            }
            // SAFETY: as for `view`; `out` is a separate array of the same length.
            unsafe { std::ptr::copy_nonoverlapping(whitened.as_ptr(), out.0 as *mut f32, out.1) };
            Ok(())
        }

        /// The number of values.
        #[getter]
        fn count(&self) -> u64 {
            self.0.count()
        }

        /// The mean; 0 without values.
        #[getter]
        fn mean(&self) -> f64 {
            self.0.mean()
        }

        /// Σ(x − mean)² / (n − ddof); 0 for too few values.
        fn variance(&self, ddof: u32) -> f64 {
            self.0.variance(ddof)
        }

        fn __repr__(&self) -> String {
            format!("Moments({} values, mean {:e})", self.count(), self.mean())
        }
    }
}

/// Counts live tokens, sequences with a live token, and sequences of a batch in host memory.
#[pyfunction]
pub(crate) fn counts(cu_seqlens: Place, mask: Option<Place>) -> PyResult<[u64; 3]> {
    let rows = (false, cu_seqlens, mask);
    let counts = with_rows(rows, (0, 0), Counts::default(), |batch, _| batch.counts(&Device::cpu()))?;
    Ok([counts.tokens, counts.nonempty, counts.sequences])
}
