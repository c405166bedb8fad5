//! Routers of mixture-of-experts models, and traces of their choices.

use super::{Arrays, On, copy, host_slice, launch, on};
use crate::{Place, refused};
use lockstep::core::Error as Argument;
use lockstep::core::aggregate::FoldRows;
use lockstep::core::ragged::{In, Mask};
use lockstep::core::routing::{
    BalanceLoss, ChosenOut, GatingBackward, GatingForward, Replay, Router, RouterKind, Trace,
};
use lockstep::ops::{self, routing::Gating};
use lockstep::plan::Queue;
use lockstep::routing::{self, GateKl, Ids, LoadSum, RoutingTrace};
use lockstep::{Device, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// A router: its shape and its gating rule.
#[pyclass(name = "Router", module = "lockstep", frozen)]
pub(crate) struct PyRouter(Router);

#[pymethods]
impl PyRouter {
    /// `kind` is softmax_chosen, softmax_all, sigmoid_normalized, sigmoid or sqrt_softplus.
    #[new]
    #[pyo3(signature = (kind, experts, top_k, scale=1.0, groups=1, top_groups=1))]
    fn new(
        kind: &str,
        experts: usize,
        top_k: usize,
        scale: f32,
        groups: usize,
        top_groups: usize,
    ) -> PyResult<Self> {
        let kinds = [
            ("softmax_chosen", RouterKind::SoftmaxChosen),
            ("softmax_all", RouterKind::SoftmaxAll),
            ("sigmoid_normalized", RouterKind::SigmoidNormalized),
            ("sigmoid", RouterKind::Sigmoid),
            ("sqrt_softplus", RouterKind::SqrtSoftplus),
        ];
        let Some((_, kind)) = kinds.into_iter().find(|(name, _)| *name == kind) else {
            let names = kinds.map(|(name, _)| name).join(", ");
            return Err(PyValueError::new_err(format!("`kind` is {kind:?}: expected one of {names}")));
        };
        let router = Router { experts, top_k, kind, scale, groups, top_groups };
        router.check().map_err(|error| refused(error.into()))?;
        Ok(PyRouter(router))
    }
}

/// Experts as 8-bit or 16-bit numbers.
#[derive(Clone, Copy)]
enum Entries {
    Narrow(In<'static, u8>),
    Wide(In<'static, u16>),
}

impl Entries {
    fn given(arrays: &Arrays, name: &'static str) -> Result<Option<Entries>, Error> {
        let narrow = arrays.given(name).map(|ids| ids.map(Entries::Narrow));
        narrow.or_else(|_| Ok(arrays.given(name)?.map(Entries::Wide)))
    }

    fn trace(self, layers: usize, top_k: usize) -> Trace<'static> {
        match self {
            Entries::Narrow(ids) => Trace::narrow(ids, layers, top_k),
            Entries::Wide(ids) => Trace::wide(ids, layers, top_k),
        }
    }

    fn on_host(self, queue: &Queue) -> Result<Ids, Error> {
        Ok(match self {
            Entries::Narrow(ids) => Ids::U8(copy!(queue, ids)?),
            Entries::Wide(ids) => Ids::U16(copy!(queue, ids)?),
        })
    }
}

/// Returns layer `layer` of a trace.
fn slice(trace: Trace<'_>, layer: usize) -> Result<Trace<'_>, Error> {
    let expected = "a layer of the trace";
    let wrong = Argument::Value { argument: "layer", index: None, expected, got: layer as f64 };
    trace.slice(layer, 1).ok_or_else(|| wrong.into())
}

/// Computes the experts `chosen` and their `gates` for rows of `scores`. With a `trace` of `layers` layers,
/// tokens in `mask` take their experts from its layer `layer`, where it has a record.
#[pyfunction]
pub(crate) fn gating_forward(
    py: Python<'_>,
    at: On,
    router: &PyRouter,
    layers: usize,
    layer: usize,
    arrays: Arrays,
) -> PyResult<()> {
    let router = router.0;
    on(py, at, |queue| {
        let scores = arrays.input::<f32>("scores")?;
        let rows = scores.len() / router.experts;
        let entries = rows * router.top_k;
        let chosen = match arrays.output("chosen", entries) {
            Ok(ids) => ChosenOut::narrow(ids),
            Err(_) => ChosenOut::wide(arrays.output("chosen", entries)?),
        };
        let recorded = Entries::given(&arrays, "trace")?;
        let mask = arrays.mask("mask", rows)?;
        let replay = match recorded {
            None => None,
            Some(ids) => Some(Replay { trace: slice(ids.trace(layers, router.top_k), layer)?, mask }),
        };
        let kernel = GatingForward {
            router,
            rows,
            scores,
            bias: arrays.given("bias")?,
            replay,
            chosen,
            gates: arrays.output("gates", entries)?,
            group_scores: arrays.wanted("group_scores", rows * router.groups)?,
            row_replayed: arrays.output("replayed", rows)?,
            row_alarm: arrays.output("alarm", rows)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let scores: Vec<f32> = copy!(queue, scores)?;
            let bias: Option<Vec<f32>> = kernel.bias.map(|bias| copy!(queue, bias)).transpose()?;
            let ids = recorded.map(|ids| ids.on_host(queue)).transpose()?;
            let replay = match &ids {
                None => None,
                Some(ids) => {
                    let trace = slice(ids.view(layers, router.top_k), layer)?;
                    Some(Replay { trace, mask: Mask::all() })
                }
            };
            ops::gating_forward(&Device::cpu(), &router, &scores, bias.as_deref(), replay).map(drop)
        })
    })
}

/// Computes dL/dscores `gradient` from dL/dgates `coef`, for the results of `gating_forward` on the same
/// scores.
#[pyfunction]
pub(crate) fn gating_backward(py: Python<'_>, at: On, router: &PyRouter, arrays: Arrays) -> PyResult<()> {
    let router = router.0;
    on(py, at, |queue| {
        let scores = arrays.input::<f32>("scores")?;
        let rows = scores.len() / router.experts;
        let missing = || Argument::Empty { argument: "chosen", expected: "an array" };
        let ids = Entries::given(&arrays, "chosen")?.ok_or_else(missing)?;
        let kernel = GatingBackward {
            router,
            rows,
            scores,
            chosen: ids.trace(1, router.top_k),
            gates: arrays.input("gates")?,
            coef: arrays.input("coef")?,
            gradient: arrays.output("gradient", scores.len())?,
            row_alarm: arrays.output("alarm", rows)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let (scores, coef): (Vec<f32>, Vec<f32>) = (copy!(queue, scores)?, copy!(queue, kernel.coef)?);
            let gating = Gating {
                chosen: ids.on_host(queue)?,
                gates: copy!(queue, kernel.gates)?,
                replayed: 0,
                row_replayed: Vec::new(),
            };
            ops::gating_backward(&Device::cpu(), &router, &scores, &gating, &coef).map(drop)
        })
    })
}

/// Computes the load-balance loss coef · E Σ f P into `total`, and its `gradient` in the scores.
#[pyfunction]
pub(crate) fn balance_loss(py: Python<'_>, at: On, coef: f64, arrays: Arrays) -> PyResult<()> {
    on(py, at, |queue| {
        let (scores, load) = (arrays.input::<f32>("scores")?, arrays.input::<f32>("load")?);
        let experts = load.len();
        if experts == 0 || scores.is_empty() {
            let argument = if experts == 0 { "load" } else { "scores" };
            return Err(Argument::Empty { argument, expected: "one entry per expert" }.into());
        }
        let rows = scores.len() / experts;
        let row_loss = arrays.output("row_loss", rows)?;
        let kernel = BalanceLoss {
            experts,
            rows,
            scores,
            load,
            weight: coef * experts as f64 / rows as f64,
            gradient: arrays.output("gradient", scores.len())?,
            row_loss,
            row_alarm: arrays.output("alarm", rows)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let (scores, load): (Vec<f32>, Vec<f32>) = (copy!(queue, scores)?, copy!(queue, load)?);
            ops::balance_loss(&Device::cpu(), &scores, &load, coef).map(drop)
        })?;
        let fold = FoldRows { partials: arrays.input("row_loss")?, rows, totals: arrays.output("total", 1)? };
        // SAFETY: as in `launch`; `row_loss` was written before and is read here.
        unsafe { queue.launch(&fold) }
    })
}

/// The experts that ran: `[tokens, layers, top_k]`, packed like the tokens, one or two bytes per entry.
#[pyclass(name = "RoutingTrace", module = "lockstep.routing", eq)]
#[derive(PartialEq)]
pub(crate) struct PyTrace(RoutingTrace);

impl PyTrace {
    /// Errors if the trace would have more tokens than offsets can count.
    fn room(&mut self, tokens: usize) -> PyResult<()> {
        let most = u32::MAX as usize - self.0.tokens();
        if tokens <= most {
            return self.0.reserve(tokens).map_err(refused);
        }
        let (argument, expected) = ("tokens", "at most 2^32 - 1 tokens in a trace");
        Err(refused(Argument::Value { argument, index: None, expected, got: tokens as f64 }.into()))
    }
}

#[pymethods]
impl PyTrace {
    /// Makes a trace without tokens.
    #[new]
    fn new(experts: usize, layers: usize, top_k: usize) -> PyResult<Self> {
        RoutingTrace::new(experts, layers, top_k).map(PyTrace).map_err(refused)
    }

    /// Makes a trace from 64-bit ids `[tokens, layers, top_k]`; −1 means missing.
    #[staticmethod]
    fn from_ids(ids: Place, tokens: usize, experts: usize, layers: usize, top_k: usize) -> PyResult<Self> {
        let trace = RoutingTrace::from_ids(host_slice::<i64>(ids), tokens, experts, layers, top_k);
        trace.map(PyTrace).map_err(refused)
    }

    /// Reads a trace from the bytes of a safetensors file.
    #[staticmethod]
    fn from_safetensors(bytes: &[u8]) -> PyResult<Self> {
        RoutingTrace::from_safetensors(bytes).map(PyTrace).map_err(refused)
    }

    /// Returns the trace as the bytes of a safetensors file.
    fn to_safetensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_safetensors().map_err(refused)?))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let bytes = slf.borrow().to_safetensors(slf.py())?;
        Ok((slf.get_type().getattr("from_safetensors")?, (bytes,)))
    }

    fn __repr__(&self) -> String {
        let (tokens, layers) = (self.0.tokens(), self.0.layers());
        format!(
            "RoutingTrace({tokens} tokens, {layers} layers, {} of {} experts)",
            self.0.top_k(),
            self.0.experts()
        )
    }

    #[getter]
    fn tokens(&self) -> usize {
        self.0.tokens()
    }

    #[getter]
    fn layers(&self) -> usize {
        self.0.layers()
    }

    #[getter]
    fn top_k(&self) -> usize {
        self.0.top_k()
    }

    #[getter]
    fn experts(&self) -> usize {
        self.0.experts()
    }

    /// The entries, little-endian: one byte each up to 256 experts (255 for top_k = 1), else two. All bits
    /// set means missing.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match self.0.ids() {
            Ids::U8(ids) => PyBytes::new(py, ids),
            Ids::U16(ids) => {
                PyBytes::new(py, &ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())
            }
        }
    }

    /// Appends tokens `start` to `stop` of another trace: a cached prefix, or the next part of a partial
    /// rollout.
    fn stitch(slf: &Bound<'_, Self>, other: &Bound<'_, Self>, start: usize, stop: usize) -> PyResult<()> {
        if slf.is(other) {
            let (argument, expected) = ("other", "another trace than the one that it is appended to");
            return Err(refused(lockstep_core::Error::Combination { argument, expected }.into()));
        }
        slf.borrow_mut().0.stitch(&other.borrow().0, start..stop).map_err(refused)
    }

    /// Appends tokens without a record; the live router chooses their experts.
    fn append_absent(&mut self, tokens: usize) -> PyResult<()> {
        self.room(tokens)?;
        self.0.append_absent(tokens);
        Ok(())
    }

    /// Appends padding tokens, whose entries are spread over all experts.
    fn append_padding(&mut self, tokens: usize) -> PyResult<()> {
        self.room(tokens)?;
        self.0.append_padding(tokens);
        Ok(())
    }

    /// How often each expert ran, over all layers: shares that sum to 1, or to top_k.
    #[pyo3(signature = (sum_to_top_k=false))]
    fn load(&self, sum_to_top_k: bool) -> PyResult<Vec<f32>> {
        let sum = if sum_to_top_k { LoadSum::TopK } else { LoadSum::One };
        routing::load(&self.0.view(), self.0.experts(), sum).map_err(refused)
    }

    /// Compares this trace with another one of the same tokens.
    fn mismatch<'py>(&self, py: Python<'py>, other: &PyTrace) -> PyResult<Bound<'py, PyDict>> {
        let (a, b) = (self.0.view(), other.0.view());
        let found = py.detach(|| routing::mismatch(&a, &b)).map_err(refused)?;
        let dict = PyDict::new(py);
        dict.set_item("routers", found.routers)?;
        dict.set_item("differing", found.differing)?;
        dict.set_item("tokens", found.tokens)?;
        dict.set_item("tokens_differing", found.tokens_differing)?;
        dict.set_item("router_fraction", found.router_fraction())?;
        dict.set_item("token_fraction", found.token_fraction())?;
        dict.set_item("layers_per_token", found.layers_per_token())?;
        dict.set_item("overlap", found.overlap())?;
        dict.set_item("layers", found.layers)?;
        Ok(dict)
    }

    /// KL of this trace's gates against those of another trace, over routers that ran the same experts.
    fn gate_kl<'py>(
        &self,
        py: Python<'py>,
        gates: Place,
        other: &PyTrace,
        other_gates: Place,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (a, b) = (self.0.view(), other.0.view());
        divergence(py, routing::gate_kl((&a, host_slice(gates)), (&b, host_slice(other_gates))))
    }

    /// The cost of replaying this trace on the live scores: ln(mass of the live choice / mass of the recorded
    /// choice).
    #[pyo3(signature = (router, scores, bias=None))]
    fn replay_kl<'py>(
        &self,
        py: Python<'py>,
        router: &PyRouter,
        scores: Place,
        bias: Option<Place>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let bias = bias.map(host_slice);
        let trace = self.0.view();
        divergence(py, routing::replay_kl(&Device::cpu(), &router.0, host_slice(scores), bias, &trace))
    }
}

fn divergence<'py>(py: Python<'py>, found: Result<GateKl, Error>) -> PyResult<Bound<'py, PyDict>> {
    let found = found.map_err(refused)?;
    let dict = PyDict::new(py);
    dict.set_item("mean", found.mean())?;
    dict.set_item("routers", found.routers)?;
    dict.set_item("left_out", found.left_out)?;
    dict.set_item("layer_means", found.layer_means())?;
    Ok(dict)
}
