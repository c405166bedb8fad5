//! The inputs of a case, as arrays; every input must be read.

use crate::format;
use crate::outcome::LARGEST;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Inputs by name, and the names read so far.
pub(crate) struct Inputs<'a> {
    values: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'a str>>,
}

/// An input as binary32. The format promises that this is exact; otherwise the comparison would be
/// meaningless.
pub(crate) fn floats(name: &str, values: Vec<f64>) -> Result<Vec<f32>, String> {
    let inexact = |(_, x): &(usize, &f64)| f64::from(**x as f32) != **x && !x.is_nan();
    match values.iter().enumerate().find(inexact) {
        Some((i, x)) => Err(format!("input `{name}`[{i}] is {x}: not exactly a binary32 number")),
        None => Ok(values.iter().map(|x| *x as f32).collect()),
    }
}

fn whole<T: TryFrom<u64>>(name: &str, value: &Value) -> Result<Vec<T>, String> {
    let wrong = || format!("`{name}` is not a list of whole numbers");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|x| T::try_from(x.as_u64().ok_or_else(wrong)?).map_err(|_| wrong())).collect()
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(values: &'a Map<String, Value>) -> Self {
        Inputs { values, read: RefCell::default() }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.values.keys().map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The raw JSON value.
    pub(crate) fn value(&self, name: &str) -> Result<&'a Value, String> {
        let (name, value) =
            self.values.get_key_value(name).ok_or_else(|| format!("input `{name}` is missing"))?;
        self.read.borrow_mut().insert(name);
        Ok(value)
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64, String> {
        format::number(name, self.value(name)?)
    }

    /// An array of numbers; `null` is NaN.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        format::numbers(name, self.value(name)?)
    }

    /// Rows of numbers, of any lengths.
    pub(crate) fn rows(&self, name: &str) -> Result<Vec<Vec<f64>>, String> {
        let rows = self.value(name)?.as_array().ok_or_else(|| format!("`{name}` is not a list"))?;
        rows.iter().map(|row| format::numbers(name, row)).collect()
    }

    /// Numbers that are exact in binary32.
    pub(crate) fn floats(&self, name: &str) -> Result<Vec<f32>, String> {
        floats(name, self.numbers(name)?)
    }

    pub(crate) fn whole<T: TryFrom<u64>>(&self, name: &str) -> Result<Vec<T>, String> {
        whole(name, self.value(name)?)
    }

    /// Reads an input with `read` if it is present.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl Fn(&Self, &str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.has(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    /// Marks inputs that the code does not read for this op.
    pub(crate) fn ignore(&self, names: &[&str]) {
        for name in names {
            let _ = self.value(name);
        }
    }

    /// Checks that every input was read.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let read = self.read.borrow();
        match self.names().find(|name| !read.contains(name)) {
            None => Ok(()),
            Some(name) => Err(format!("input `{name}` is not known for this op")),
        }
    }

    /// Offsets of the sequences. Without them, responses in groups count as sequences of one token each;
    /// `None` if the case has neither.
    pub(crate) fn cu_seqlens(&self) -> Result<Option<Vec<u32>>, String> {
        if let Some(cu) = self.values.get("cu_seqlens") {
            return whole("cu_seqlens", cu).map(Some);
        }
        let Some(groups) = self.values.get("cu_groups") else { return Ok(None) };
        let sequences = whole::<u32>("cu_groups", groups)?.last().copied().unwrap_or(0);
        Ok(Some((0..=sequences.min(LARGEST as u32)).collect()))
    }

    /// The token range of each sequence, and which tokens take part; empty if the case has no tokens.
    pub(crate) fn shape(&self) -> Result<Shape, String> {
        let Some(cu) = self.cu_seqlens()? else { return Ok(Shape::default()) };
        let spans: Vec<Range<usize>> = cu.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect();
        let tokens = spans.last().map_or(0, |span| span.end);
        let live = match self.values.get("loss_mask") {
            Some(mask) => whole::<u8>("loss_mask", mask)?.iter().map(|live| *live != 0).collect(),
            None => vec![true; tokens.min(LARGEST)],
        };
        Ok(Shape { spans, live })
    }
}

/// Where a case's tokens are.
#[derive(Clone, Default)]
pub(crate) struct Shape {
    pub(crate) spans: Vec<Range<usize>>,
    pub(crate) live: Vec<bool>,
}
