//! Rollouts as a safetensors file: one flat tensor per column, under the column's name.
//!
//! The reader accepts U8 and BOOL for flags; U32, I32, U64 and I64 for offsets, ids and counts; and F32, F64,
//! F16 and BF16 for numbers. The writer writes the column's own type. A single number may have no dimension,
//! and `reward_components` may be `[K, S]`.

use super::{Rollouts, RolloutsBuf};
use crate::columns::{Column, ColumnElement, Shape};
use crate::{Batch, Error, for_each_column};
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;

/// The key and value of the metadata. There is only one key, because the format does not fix the order of
/// several.
const NOTE: (&str, &str) = ("lockstep", "rollouts");

fn refuse<T>(message: String) -> Result<T, Error> {
    Err(Error::File(message))
}

/// An element that a file can hold.
trait FileElement: ColumnElement {
    /// The type that is written.
    const DTYPE: Dtype;
    /// The types that are read.
    const READS: &'static str;
    /// The values that are accepted, for messages.
    const EXPECTED: &'static str;

    /// Reads all elements of a tensor, if its type is one that is read. Errors: the position and the value of
    /// the first rejected element.
    fn read(dtype: Dtype, data: &[u8]) -> Option<Elements<Self>>;

    /// Appends the bytes of an element.
    fn write(self, to: &mut Vec<u8>);
}

/// The elements, or the position and value of the first that is rejected.
type Elements<T> = Result<Vec<T>, (usize, String)>;

/// Reads every element: `from` converts its bytes to a number, and `to` converts that to the column's type.
fn each<const N: usize, X: Copy + ToString, T>(
    data: &[u8],
    from: impl Fn([u8; N]) -> X,
    to: impl Fn(X) -> Option<T>,
) -> Elements<T> {
    let read = |(i, bytes): (usize, &[u8; N])| {
        let value = from(*bytes);
        to(value).ok_or_else(|| (i, value.to_string()))
    };
    data.as_chunks::<N>().0.iter().enumerate().map(read).collect()
}

impl FileElement for u8 {
    const DTYPE: Dtype = Dtype::U8;
    const READS: &'static str = "U8 or BOOL";
    const EXPECTED: &'static str = "0 or 1";

    fn read(dtype: Dtype, data: &[u8]) -> Option<Elements<u8>> {
        let flag = |x: u8| (x <= 1).then_some(x);
        matches!(dtype, Dtype::U8 | Dtype::BOOL).then(|| each(data, |[byte]| byte, flag))
    }

    fn write(self, to: &mut Vec<u8>) {
        to.push(self);
    }
}

macro_rules! numbers {
    ($($own:ty, $dtype:ident, $reads:literal, $expected:literal, $($from:ident: $read:expr),*;)*) => {
        $(impl FileElement for $own {
            const DTYPE: Dtype = Dtype::$dtype;
            const READS: &'static str = $reads;
            const EXPECTED: &'static str = $expected;

            fn read(dtype: Dtype, data: &[u8]) -> Option<Elements<$own>> {
                match dtype {
                    $(Dtype::$from => Some($read(data)),)*
                    _ => None,
                }
            }

            fn write(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
        })*
    };
}
numbers! {
    u32, U32, "U32, I32, U64 or I64", "0 to 4294967295",
        U32: |data| each(data, u32::from_le_bytes, Some),
        I32: |data| each(data, i32::from_le_bytes, |x| x.try_into().ok()),
        U64: |data| each(data, u64::from_le_bytes, |x| x.try_into().ok()),
        I64: |data| each(data, i64::from_le_bytes, |x| x.try_into().ok());
    u64, U64, "U32, I32, U64 or I64", "a number of at least 0",
        U32: |data| each(data, u32::from_le_bytes, |x| Some(x.into())),
        I32: |data| each(data, i32::from_le_bytes, |x| x.try_into().ok()),
        U64: |data| each(data, u64::from_le_bytes, Some),
        I64: |data| each(data, i64::from_le_bytes, |x| x.try_into().ok());
    f32, F32, "F32, F64, F16 or BF16", "a number in the range of f32",
        F32: |data| each(data, f32::from_le_bytes, Some),
        F64: |data| each(data, f64::from_le_bytes, narrow),
        F16: |data| each(data, f16::from_le_bytes, |x| Some(x.to_f32())),
        BF16: |data| each(data, bf16::from_le_bytes, |x| Some(x.to_f32()));
    f64, F64, "F32, F64, F16 or BF16", "a number",
        F32: |data| each(data, f32::from_le_bytes, |x| Some(x.into())),
        F64: |data| each(data, f64::from_le_bytes, Some),
        F16: |data| each(data, f16::from_le_bytes, |x| Some(x.to_f64())),
        BF16: |data| each(data, bf16::from_le_bytes, |x| Some(x.to_f64()));
}

/// Rounds to binary32; `None` if a finite number would become infinite.
fn narrow(x: f64) -> Option<f32> {
    let narrow = x as f32;
    (narrow.is_finite() || !x.is_finite()).then_some(narrow)
}

/// Reads the elements of a column's tensor.
fn column<T: FileElement>(column: Column, view: &TensorView<'_>) -> Result<Vec<T>, Error> {
    let (name, shape) = (column.name(), view.shape());
    let flat = match column.shape() {
        Shape::Components => matches!(shape.len(), 1 | 2),
        Shape::One => shape.len() <= 1,
        _ => shape.len() == 1,
    };
    if !flat {
        return refuse(format!("tensor `{name}` has shape {shape:?}: expected one dimension"));
    }
    let dtype = view.dtype();
    match T::read(dtype, view.data()) {
        Some(Ok(values)) => Ok(values),
        Some(Err((i, value))) => refuse(format!("tensor `{name}`[{i}] is {value}: expected {}", T::EXPECTED)),
        None => refuse(format!("tensor `{name}` has type {dtype:?}: expected {}", T::READS)),
    }
}

/// The name, type, length and bytes of a column's tensor.
type Tensor = (&'static str, Dtype, usize, Vec<u8>);

fn tensor<T: FileElement>(name: &'static str, values: &[T]) -> Tensor {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| value.write(&mut bytes));
    (name, T::DTYPE, values.len(), bytes)
}

macro_rules! columns {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        impl RolloutsBuf {
            fn take(&mut self, which: Column, view: &TensorView<'_>) -> Result<(), Error> {
                match which {
                    $(Column::$name => self.$name = Some(column(which, view)?),)*
                }
                Ok(())
            }
        }

        impl Rollouts<'_> {
            fn tensors(&self) -> Vec<Tensor> {
                let tensors = [$(self.$name.map(|values| tensor(stringify!($name), values))),*];
                tensors.into_iter().flatten().collect()
            }
        }
    };
}
for_each_column!(columns);

impl RolloutsBuf {
    /// Reads the bytes of a safetensors file and checks all offsets and lengths; values are checked by the
    /// calls that read them. Tensors that are not columns are an error; with `allow_extra`, their names are
    /// returned as the second result.
    ///
    /// Errors: an incomplete or invalid safetensors file; and, each with the name of the tensor: a tensor
    /// that is not a column; a type, shape or value that the column cannot have (index); inconsistent
    /// offsets, or sequences or groups without members; a length that disagrees with the offsets; more than
    /// 2^24 tokens if no column has an entry for each.
    ///
    /// ```
    /// use lockstep::{Rollouts, RolloutsBuf};
    /// let rollouts = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 2, 4], &[0, 2]) }.to_buf();
    /// let (read, unknown) = RolloutsBuf::from_safetensors(&rollouts.to_safetensors()?, false)?;
    /// assert_eq!((read, unknown.len()), (rollouts, 0));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn from_safetensors(bytes: &[u8], allow_extra: bool) -> Result<(Self, Vec<String>), Error> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| {
            Error::File(format!("not a complete safetensors file ({} bytes): {error}", bytes.len()))
        })?;
        let mut names = file.names();
        names.sort_unstable();
        let (mut rollouts, mut unknown) = (RolloutsBuf::default(), Vec::new());
        for name in &names {
            let Some(column) = Column::named(name) else {
                unknown.push((*name).to_owned());
                continue;
            };
            let view = file.tensor(name).map_err(|error| Error::File(format!("tensor `{name}`: {error}")))?;
            rollouts.take(column, &view)?;
        }
        if let (false, Some(name)) = (allow_extra, unknown.first()) {
            let known: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
            return refuse(format!("tensor `{name}` is not a column: expected one of {}", known.join(", ")));
        }
        for column in [Column::cu_seqlens, Column::cu_groups] {
            if rollouts.view().length(column).is_none() {
                let name = column.name();
                return refuse(format!("tensor `{name}` is missing; the file has: {}", names.join(", ")));
            }
        }
        let components = file.tensor("reward_components").ok();
        if let (Some([_, got]), Some(offsets)) =
            (components.as_ref().map(TensorView::shape), &rollouts.cu_seqlens)
            && got + 1 != offsets.len()
        {
            let rows = offsets.len().saturating_sub(1);
            return refuse(format!(
                "tensor `reward_components` has {got} columns: expected {rows}, one for each sequence"
            ));
        }
        rollouts.check_file()?;
        Ok((rollouts, unknown))
    }

    /// Encodes the columns as the bytes of a safetensors file; equal rollouts give equal bytes.
    ///
    /// Errors: those of the format.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let wrong = |error: safetensors::SafeTensorError| Error::File(error.to_string());
        let tensors = self.view().tensors();
        let views = tensors.iter().map(|(name, dtype, length, bytes)| {
            Ok((*name, TensorView::new(*dtype, vec![*length], bytes).map_err(wrong)?))
        });
        let views: Vec<_> = views.collect::<Result<_, Error>>()?;
        let note = HashMap::from([(NOTE.0.to_owned(), NOTE.1.to_owned())]);
        safetensors::serialize(views, Some(note)).map_err(wrong)
    }

    /// Checks what a file must satisfy in addition to [`Rollouts::check`]: no empty rows, and turns and steps
    /// within their sequences.
    fn check_file(&self) -> Result<(), Error> {
        let offsets = |column: &Option<Vec<u32>>| column.clone().unwrap_or_default();
        let (cu_seqlens, cu_groups) = (offsets(&self.cu_seqlens), offsets(&self.cu_groups));
        let batch = Batch::new(&cu_seqlens, &cu_groups, self.loss_mask.as_deref())?;
        if batch.sequences() == 0 {
            return refuse("tensor `cu_seqlens` has no sequence: expected at least one".into());
        }
        let of_tokens = |column: &Column| column.shape() == Shape::Tokens;
        let held = Column::ALL.iter().filter(|c| of_tokens(c)).any(|c| self.view().length(*c).is_some());
        if !held && batch.tokens() > CLAIMED {
            return refuse(format!(
                "tensor `cu_seqlens` ends at {}, and no tensor has an entry for each token: expected at most \
                 {CLAIMED} then",
                batch.tokens()
            ));
        }
        self.view().check_parts(&batch)?;
        if let Some(turns) = &self.cu_turns
            && let Some(s) = cu_seqlens.iter().position(|start| turns.binary_search(start).is_err())
        {
            let start = cu_seqlens[s];
            return refuse(format!(
                "tensor `cu_turns` lacks {start}: expected a turn where sequence {s} starts"
            ));
        }
        if let (Some(step_tokens), Some(cu_steps)) = (&self.cu_step_tokens, &self.cu_steps) {
            let starts = cu_steps.iter().map(|step| step_tokens[*step as usize]);
            let mut pairs = starts.zip(cu_seqlens.iter().copied()).enumerate();
            if let Some((s, (got, expected))) = pairs.find(|(_, (got, start))| got != start) {
                return refuse(format!(
                    "tensor `cu_steps`[{s}] is a step at token {got}: expected {expected}, where sequence \
                     {s} starts"
                ));
            }
        }
        self.view().check()
    }
}

/// Maximum number of tokens in a file without a per-token column, where a few bytes can claim any number of
/// tokens and readers allocate for it.
const CLAIMED: usize = 1 << 24;
