//! Writes launches.

use super::{ALARM, Array, Element, Launches, WRITTEN};
use crate::Op;
use lockstep_core::op::{Encoder, OPS};
use lockstep_core::ragged::{In, Out};
use std::vec::Vec;

/// Recorded launches.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Vec<u64>);

impl Recorded {
    /// Records a kernel over host memory as a launch of case number `case`.
    ///
    /// Panics if the op is not in core's table, or if an argument is an array of another type than those that
    /// ops have.
    pub fn launch<K: Op>(&mut self, kernel: &K, case: u32) {
        let mut to = Recorder::default();
        kernel.encode(&mut to);
        let op = OPS.iter().position(|op| op.name == K::NAME);
        let op = op.unwrap_or_else(|| panic!("{} is in no table", K::NAME));
        let length = 5 + to.words.len() + to.arrays.len();
        self.0.extend([length as u64, op as u64, case.into(), to.words.len() as u64, to.count]);
        self.0.extend(to.words);
        self.0.extend(to.arrays);
    }

    /// Adds the launches of `other` behind its own.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The launches, in words.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The launches, to run them.
    pub fn launches(&self) -> Launches<'_> {
        Launches(&self.0)
    }
}

#[derive(Default)]
struct Recorder {
    words: Vec<u64>,
    count: u64,
    arrays: Vec<u64>,
    field: &'static str,
}

impl Recorder {
    fn array<T>(&mut self, len: Option<usize>, flags: u64) -> Array {
        let element = match std::any::type_name::<T>().rsplit("::").next().unwrap_or_default() {
            "u8" => Element::U8,
            "u16" | "Bf16" | "F16" => Element::U16,
            "u32" | "i32" => Element::U32,
            "u64" | "i64" => Element::U64,
            "f32" => Element::F32,
            "f64" => Element::F64,
            other => panic!("`{}` is an array of {other}", self.field),
        };
        let array = Array(len.map_or(0, |len| (len as u64) << 32 | element as u64) | flags);
        self.words.push(len.unwrap_or(0) as u64);
        self.count += 1;
        self.arrays.push(array.0);
        array
    }
}

impl Encoder for Recorder {
    fn field(&mut self, name: &'static str) {
        self.field = name;
    }

    fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    fn input<T: Copy>(&mut self, array: Option<In<'_, T>>) {
        let words = self.array::<T>(array.map(In::len), 0).words();
        let Some(array) = array else { return };
        let from = self.arrays.len();
        self.arrays.resize(from + words, 0);
        // SAFETY: a view of host memory is readable; elements are numbers, which are bytes; the words are as
        // many bytes or more.
        #[allow(unsafe_code)]
        unsafe {
            let to = self.arrays[from..].as_mut_ptr().cast::<T>();
            to.copy_from_nonoverlapping(array.as_ptr(), array.len());
        }
    }

    fn output<T: Copy>(&mut self, array: Option<&Out<'_, T>>) {
        let alarm = if self.field.ends_with("alarm") { ALARM } else { 0 };
        self.array::<T>(array.map(|array| array.len()), WRITTEN | alarm);
    }
}
