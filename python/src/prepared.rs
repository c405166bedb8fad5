//! The loss of a batch like the previous one. The cost of a small loss is the Python around it, so everything
//! that repeats is done here.

use crate::{PyDevice, PyPlan, credit_views, refused};
use lockstep::Views;
use lockstep::core::ragged::Out;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::cell::RefCell;
use std::ffi::c_void;

/// Description of a CPU tensor that `plan` accepts as it is.
struct Expected {
    dtype: Py<PyAny>,
    shape: Py<PyAny>,
    len: usize,
    itemsize: usize,
}

impl Expected {
    fn new(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (dtype, shape) = (tensor.getattr("dtype")?.unbind(), tensor.getattr("shape")?.unbind());
        let itemsize = tensor.getattr("itemsize")?.extract()?;
        Ok(Expected { dtype, shape, len: tensor.call_method0("numel")?.extract()?, itemsize })
    }

    /// Returns its address and length, if the tensor matches.
    fn place(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
        let py = tensor.py();
        // A list, for one, has none.
        let Ok(dtype) = tensor.getattr(intern!(py, "dtype")) else { return Ok(None) };
        let same = dtype.is(&self.dtype)
            && tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()?
            && tensor.getattr(intern!(py, "shape"))?.eq(&self.shape)?
            && tensor.call_method0(intern!(py, "is_contiguous"))?.is_truthy()?
            && !tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
        if !same {
            return Ok(None);
        }
        let at: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        // A tensor without memory of its own, such as a DTensor, is at 0: the usual call refuses it, but
        // copies one that starts between two elements.
        Ok((at != 0 && at.is_multiple_of(self.itemsize)).then_some((at, self.len)))
    }
}

/// A plan of the loss alone on a CPU, with the columns that it expects.
#[pyclass(name = "Prepared", module = "lockstep", frozen)]
pub(crate) struct PyPrepared {
    plan: Py<PyPlan>,
    device: Py<PyDevice>,
    /// Columns: number if it is read, name, expected tensor.
    columns: Vec<(Option<usize>, Py<PyString>, Expected)>,
    /// Offsets that were added to the batch: number, address, elements.
    added: Vec<(usize, usize, usize)>,
    /// Keeps the added offsets alive.
    _kept: Py<PyAny>,
    credit: [Option<Expected>; 4],
    per_token: bool,
}

thread_local! {
    static WORKSPACE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[pymethods]
impl PyPrepared {
    /// `columns` are the call's columns as `(number, name, tensor)`, where None as number means that the plan
    /// does not read it; `added` is the offsets that were added, and their owner; `credit` is advantage, loss
    /// mask, weights, returns.
    #[new]
    fn new(
        plan: Py<PyPlan>,
        device: Py<PyDevice>,
        columns: Vec<(Option<usize>, Py<PyString>, Bound<'_, PyAny>)>,
        added: (Vec<(usize, usize, usize)>, Py<PyAny>),
        credit: [Option<Bound<'_, PyAny>>; 4],
        per_token: bool,
    ) -> PyResult<Self> {
        let columns =
            columns.into_iter().map(|(number, name, tensor)| Ok((number, name, Expected::new(&tensor)?)));
        let columns = columns.collect::<PyResult<_>>()?;
        let [advantage, loss_mask, weights, returns] =
            credit.map(|tensor| tensor.map(|tensor| Expected::new(&tensor)).transpose());
        let credit = [advantage?, loss_mask?, weights?, returns?];
        let (added, kept) = added;
        Ok(PyPrepared { plan, device, columns, added, _kept: kept, credit, per_token })
    }

    /// Writes dL/dlogp to the address `coef` and returns the loss; returns None if a tensor is not the
    /// expected one.
    fn run(
        &self,
        py: Python<'_>,
        columns: &Bound<'_, PyDict>,
        credit: &Bound<'_, PyTuple>,
        coef: usize,
    ) -> PyResult<Option<f64>> {
        let mut places: [Option<(usize, usize)>; 64] = [None; 64];
        for (number, at, len) in &self.added {
            places[*number] = Some((*at, *len));
        }
        for (number, name, expected) in &self.columns {
            let Some(tensor) = columns.get_item(name)? else { return Ok(None) };
            let Some((at, len)) = expected.place(&tensor)? else { return Ok(None) };
            if let Some(number) = number {
                places[*number] = Some((at, len));
            }
        }
        let mut of_credit = [None; 4];
        for ((expected, place), tensor) in self.credit.iter().zip(&mut of_credit).zip(credit.iter()) {
            match expected {
                None if tensor.is_none() => {}
                Some(expected) if !tensor.is_none() => match expected.place(&tensor)? {
                    None => return Ok(None),
                    some => *place = some,
                },
                _ => return Ok(None),
            }
        }
        let [Some(advantage), loss_mask, weights, returns] = of_credit else { return Ok(None) };
        let (plan, device) = (self.plan.get(), self.device.get());
        let Some(slot) = plan.losses[0] else { return Ok(None) };
        py.detach(|| {
            WORKSPACE.with_borrow_mut(|block| {
                let words = plan.plan.workspace_bytes().div_ceil(8);
                if block.len() < words {
                    block.resize(words, 0);
                }
                let credit = credit_views((advantage, self.per_token, loss_mask, weights, returns));
                // SAFETY: each tensor has the type and length that `Expected` states and is contiguous in
                // host memory; the caller holds the tensors and `coef`, which is as long as `logp`. The block
                // is this thread's.
                unsafe {
                    let columns = Views::from_raw(|column| {
                        places[column as usize].map(|(at, len)| (at as *const c_void, len))
                    });
                    let queue = device.0.queue_on(std::ptr::null_mut())?;
                    let into = Out::from_raw(block.as_mut_ptr().cast::<u8>(), 8 * block.len());
                    let written = *into;
                    let coef = Out::from_raw(coef as *mut f32, plan.plan.capacity().tokens);
                    plan.plan.enqueue_checked(&queue, &columns, Some(&credit), (into, Some(coef)))?;
                    Ok(Some(written.as_ptr().add(slot.offset).cast::<f64>().read()))
                }
            })
        })
        .map_err(refused)
    }
}
