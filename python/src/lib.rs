//! The native module of the Python package: recipes, devices and plans. Python owns the memory: addresses
//! come in, and results go to a workspace that the caller allocated. `lib/lockstep/columns.py` decides what
//! is safe to pass; it is the only place that takes addresses of columns.

mod ops;
mod prepared;
mod totals;

use lockstep::columns::{Column, Columns};
use lockstep::core::policy_loss::sum;
use lockstep::core::ragged::{In, Out};
use lockstep::core::require;
use lockstep::plan::{Calls, Capacity, CreditViews, Slot};
use lockstep::{Call, Device, Error, Metrics, Outputs, Plan, Recipe, Views, recipe};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::c_void;

// A Python class, so that type checkers know its attributes.
pyo3::import_exception!(lockstep._error, LockstepError);

/// Converts an error to the Python exception.
fn refused(error: Error) -> PyErr {
    let (argument, index) = match &error {
        Error::Argument(argument) => (Some(argument.argument()), argument.index()),
        Error::Trace(_) => (Some("trace"), None),
        _ => (None, None),
    };
    let exception = LockstepError::new_err(error.to_string());
    let named = Python::attach(|py| {
        let value = exception.value(py);
        value.setattr("argument", argument)?;
        value.setattr("index", index)
    });
    named.err().unwrap_or(exception)
}

/// A recipe: one choice for each stage from rewards to gradients.
#[pyclass(name = "Recipe", module = "lockstep", frozen)]
struct PyRecipe(Recipe);

#[pymethods]
impl PyRecipe {
    /// Opens a recipe by name, or reads it from TOML.
    #[new]
    fn new(source: &str) -> PyResult<Self> {
        let is_toml = source.contains(['=', '\n', '[']);
        let read = if is_toml { Recipe::from_toml(source) } else { Recipe::named(source) };
        read.map(PyRecipe).map_err(refused)
    }

    /// Reads a recipe from JSON with the keys of the TOML form.
    #[staticmethod]
    fn from_json(source: &str) -> PyResult<Self> {
        let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("recipe: {error}"));
        let table: toml::Table = serde_json::from_str(source).map_err(|error| bad(&error))?;
        Recipe::from_toml(&table.to_string()).map(PyRecipe).map_err(refused)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// All its choices as TOML.
    #[getter]
    fn toml(&self) -> PyResult<String> {
        self.0.to_toml().map_err(refused)
    }

    /// Whether the recipe makes one advantage per token.
    #[getter]
    fn per_token(&self) -> bool {
        self.0.per_token()
    }

    /// `(column, stage, call, required, alternative column)` of each column that the recipe reads.
    fn needs(&self) -> Vec<(&'static str, &'static str, &'static str, bool, Option<&'static str>)> {
        let name = |call| if call == Call::Advantages { "advantages" } else { "loss" };
        let said = |need: lockstep::Need| {
            (need.column.name(), need.stage, name(need.call), need.required, need.or.map(Column::name))
        };
        self.0.needs().into_iter().map(said).collect()
    }

    /// `(name, meaning)` of each duty of the training loop.
    fn duties(&self) -> Vec<(&'static str, &'static str)> {
        self.0.duties().into_iter().map(|duty| (duty.name(), duty.meaning())).collect()
    }

    /// Makes a plan of the calls `advantages`, `loss` or `both` for batches of exactly this size.
    fn plan(&self, calls: &str, size: [usize; 3], metrics: bool, token_loss: bool) -> PyResult<PyPlan> {
        let calls = match calls {
            "advantages" => Calls::Advantages,
            "loss" => Calls::Loss,
            "both" => Calls::Both,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "calls is {calls:?}: expected advantages, loss or both"
                )));
            }
        };
        let [tokens, sequences, groups] = size;
        let outputs = Outputs { loss: true, metrics, token_loss };
        let plan = self.0.plan_exactly(Capacity { tokens, sequences, groups }, calls, outputs);
        let reads = match calls {
            Calls::Advantages => self.0.reads_of(Call::Advantages),
            Calls::Loss => self.0.reads_of(Call::Loss),
            Calls::Both => self.0.reads(),
        };
        let plan = plan.map_err(refused)?;
        let losses = ["loss", "value_loss"].map(|name| plan.slot(name));
        Ok(PyPlan { plan, reads, losses })
    }
}

/// The device that a plan runs on.
#[pyclass(name = "Device", module = "lockstep", frozen)]
struct PyDevice(Device);

#[pymethods]
impl PyDevice {
    /// Opens a device by name (`cpu`, `cuda:1`, `rocm:0`); `threads` is for the CPU.
    #[new]
    #[pyo3(signature = (name, threads=None))]
    fn new(name: &str, threads: Option<usize>) -> PyResult<Self> {
        let device = match (name, threads) {
            ("cpu", Some(_)) => Device::cpu_with(None, threads),
            _ => Device::open(name),
        };
        device.map(PyDevice).map_err(refused)
    }

    fn __repr__(&self) -> String {
        self.0.describe()
    }
}

/// A plan: launches over memory of a fixed size.
#[pyclass(name = "Plan", module = "lockstep", frozen)]
struct PyPlan {
    plan: Plan,
    reads: Columns,
    /// Locations of the loss and the value loss.
    losses: [Option<Slot>; 2],
}

/// Address and length of an array.
type Place = (usize, usize);
/// Advantages, whether they are per token, loss mask, weights, returns.
type CreditPlaces = (Place, bool, Option<Place>, Option<Place>, Option<Place>);

fn view<T: Copy>((at, len): Place) -> In<'static, T> {
    // SAFETY: `lib/lockstep/columns.py` has checked type, device and contiguity, and holds the array until
    // the call returns.
    unsafe { In::from_raw(at as *const T, len) }
}

fn credit_views((advantage, per_token, loss_mask, weights, returns): CreditPlaces) -> CreditViews<'static> {
    CreditViews {
        advantage: view(advantage),
        per_token,
        loss_mask: loss_mask.map(view),
        weights: weights.map(view),
        returns: returns.map(view),
    }
}

#[pymethods]
impl PyPlan {
    /// Size of the workspace in bytes; its address must be a multiple of 256.
    #[getter]
    fn workspace_bytes(&self) -> usize {
        self.plan.workspace_bytes()
    }

    /// `(name, type, elements, byte offset)` of each result in the workspace.
    #[getter]
    fn results(&self) -> Vec<(&'static str, &'static str, usize, usize)> {
        let slots = self.plan.slots().iter().filter(|slot| slot.name != "alarm");
        slots.map(|slot| (slot.name, slot.element.name(), slot.len, slot.offset)).collect()
    }

    /// Names of the launched ops, in order.
    #[getter]
    fn launches(&self) -> Vec<&'static str> {
        self.plan.launches().to_vec()
    }

    /// `(call, key)` of each call that runs on the host.
    #[getter]
    fn host_stages(&self) -> Vec<(&'static str, &'static str)> {
        let call = |call| if call == Call::Advantages { "advantages" } else { "loss" };
        self.plan.host_stages().iter().map(|host| (call(host.call), host.stage)).collect()
    }

    /// Whether the plan reads column number `column`.
    fn reads(&self, column: usize) -> bool {
        Column::ALL.get(column).is_some_and(|column| self.reads.contains(*column))
    }

    /// Enqueues the plan on `stream` and waits, so that a bad value raises an exception. Without `wait` a GPU
    /// returns at once and trusts the offsets; `alarms` reports bad values later. `columns` are `(number,
    /// address, elements)`; `credit` is `(advantage, per_token, loss_mask, weights, returns)`, arrays as
    /// `(address, elements)`; `coef` receives dL/dlogp, which otherwise goes to the workspace. On a CPU,
    /// returns the loss and the value loss.
    #[allow(clippy::too_many_arguments)] // Python's, one for each thing that has an address.
    fn run(
        &self,
        py: Python<'_>,
        device: &PyDevice,
        stream: usize,
        columns: Vec<(usize, usize, usize)>,
        credit: Option<CreditPlaces>,
        workspace: Place,
        coef: Option<Place>,
        wait: bool,
    ) -> PyResult<Option<(f64, Option<f64>)>> {
        py.detach(|| {
            let mut places = [None; 64];
            for (number, at, len) in columns {
                if let Some(place) = places.get_mut(number) {
                    *place = Some((at as *const c_void, len));
                }
            }
            let credit = credit.map(credit_views);
            // SAFETY: as for `view`; the workspace has the stated length, and nobody else uses it until the
            // call, or the stream, is done.
            unsafe {
                let columns = Views::from_raw(|column| places[column as usize]);
                let queue = device.0.queue_on(stream as *mut c_void)?;
                let into = Out::from_raw(workspace.0 as *mut u8, workspace.1);
                let written = *into;
                let coef = coef.map(|(at, len)| Out::from_raw(at as *mut f32, len));
                match wait || queue.is_cpu() {
                    true => self.plan.enqueue_checked(&queue, &columns, credit.as_ref(), (into, coef))?,
                    false => self.plan.enqueue_with(&queue, &columns, credit.as_ref(), (into, coef))?,
                }
                let number = |slot: Slot| written.as_ptr().add(slot.offset).cast::<f64>().read();
                let [loss, value] = self.losses.map(|slot| slot.filter(|_| queue.is_cpu()).map(number));
                Ok(loss.map(|loss| (loss, value)))
            }
        })
        .map_err(refused)
    }

    /// Waits for `stream` and raises an exception if a run without `wait` met a bad value, with the stage and
    /// row of the first.
    fn alarms(&self, py: Python<'_>, device: &PyDevice, stream: usize, workspace: Place) -> PyResult<()> {
        // SAFETY: as for `run`.
        let asked = py.detach(|| unsafe {
            let queue = device.0.queue_on(stream as *mut c_void)?;
            self.plan.alarms(&queue, *Out::from_raw(workspace.0 as *mut u8, workspace.1))
        });
        asked.map_err(refused)
    }
}

/// Computes the metrics of a loss from its sums over tokens.
#[pyfunction]
fn metrics<'py>(
    py: Python<'py>,
    tokens: u64,
    sums: Vec<f64>,
    maxima: [f32; 2],
) -> PyResult<Bound<'py, PyDict>> {
    if tokens > 0 {
        let because = "the sums of `Loss`";
        require::length("sums", sum::SUMS, because, sums.len()).map_err(|error| refused(error.into()))?;
    }
    named(py, &Metrics::new(tokens, &sums, maxima))
}

/// Converts metrics to a dict by name.
fn named<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let by_name = PyDict::new(py);
    for (name, value) in metrics.named() {
        by_name.set_item(name, value)?;
    }
    Ok(by_name)
}

/// `(name, type, shape, meaning)` of each column, in the order of their numbers.
#[pyfunction]
fn columns() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let said =
        |column: &Column| (column.name(), column.element().name(), column.shape().name(), column.meaning());
    Column::ALL.iter().map(said).collect()
}

/// The names of all recipes.
#[pyfunction]
fn names() -> Vec<&'static str> {
    recipe::names().to_vec()
}

/// The native module of `lockstep`, which its Python modules call.
// Declared inline rather than filled by a function, so that its stub can be generated (python/README.md).
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::{PyDevice, PyPlan, PyRecipe, columns, metrics, names};
    #[pymodule_export]
    use crate::ops::{
        PyRouter, PyTrace, balance_loss, draw_tokens, gating_backward, gating_forward, logits_gradient,
        logits_kl, logits_statistics, prefix_tree, vocab_parallel_statistics, vocab_parallel_sums,
        vocab_parallel_top,
    };
    #[pymodule_export]
    use crate::prepared::PyPrepared;
    #[pymodule_export]
    use crate::totals::{PyMoments, PyTotals, counts};
    /// The package's version.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const version: &str = env!("CARGO_PKG_VERSION");
}
