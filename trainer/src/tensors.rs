//! Reading and writing tensors in safetensors files, with errors that name the tensor.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// The only metadata key of the files written here: with several keys, their order in the file would vary
/// between runs.
const METADATA: &str = "lockstep";

/// A safetensors file in memory.
pub struct Tensors<'a> {
    tensors: SafeTensors<'a>,
    note: Option<String>,
}

impl<'a> Tensors<'a> {
    /// Parses the bytes of a file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let wrong = || format!("not a complete safetensors file ({} bytes)", bytes.len());
        let tensors = SafeTensors::deserialize(bytes).with_context(wrong)?;
        let (_, header) = SafeTensors::read_metadata(bytes).with_context(wrong)?;
        let note = header.metadata().as_ref().and_then(|m| m.get(METADATA).cloned());
        Ok(Self { tensors, note })
    }

    /// The note stored beside the tensors.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    /// Reads an f32 tensor with known dimensions.
    pub fn shaped(&self, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
        let view = self.tensors.tensor(name).with_context(|| format!("tensor '{name}'"))?;
        let (dtype, shape) = (view.dtype(), view.shape());
        ensure!(
            dtype == Dtype::F32 && shape == dims,
            "tensor '{name}' is {dtype:?} {shape:?}: expected F32 {dims:?}"
        );
        Ok(view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// Tensors to be written.
#[derive(Default)]
pub struct Writer {
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl Writer {
    /// Adds an f32 tensor.
    pub fn floats(&mut self, name: impl Into<String>, dims: &[usize], values: &[f32]) {
        self.add(name, Dtype::F32, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect());
    }

    /// Adds an f64 scalar.
    pub fn scalar(&mut self, name: impl Into<String>, value: f64) {
        self.add(name, Dtype::F64, &[], value.to_le_bytes().to_vec());
    }

    /// Adds a flat f64 tensor.
    pub fn doubles(&mut self, name: impl Into<String>, values: &[f64]) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.add(name, Dtype::F64, &[values.len()], bytes);
    }

    /// Adds a flat u8 tensor.
    pub fn mask(&mut self, name: impl Into<String>, values: &[u8]) {
        self.add(name, Dtype::U8, &[values.len()], values.to_vec());
    }

    fn add(&mut self, name: impl Into<String>, dtype: Dtype, dims: &[usize], bytes: Vec<u8>) {
        self.tensors.push((name.into(), dtype, dims.to_vec(), bytes));
    }

    /// The bytes of the file; the same tensors and note give the same bytes.
    pub fn finish(&self, note: String) -> Result<Vec<u8>> {
        let views = self.tensors.iter().map(|(name, dtype, dims, bytes)| {
            let view =
                TensorView::new(*dtype, dims.clone(), bytes).with_context(|| format!("tensor '{name}'"))?;
            Ok((name, view))
        });
        let views: Vec<_> = views.collect::<Result<_>>()?;
        Ok(safetensors::serialize(views, Some(HashMap::from([(METADATA.to_owned(), note)])))?)
    }
}
