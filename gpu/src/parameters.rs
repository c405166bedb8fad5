//! A kernel's fields as the parameters of its entry point: `teams: u32`, 24 pointers, 64 words of 64 bits.

use lockstep_core::op::{DisjointRows, Encoder, Kernel, Launch, MAX_POINTERS, MAX_WORDS};
use lockstep_core::ragged::{In, Out};
use std::ffi::c_void;

/// A kernel as a launch sees it, whatever its type. Every kernel is one.
///
/// # Safety
/// The parameters are a kernel's own, its rows are disjoint, and the check is the kernel's.
#[allow(unsafe_code)]
pub unsafe trait Encoded {
    /// The parameters of the kernel's entry point.
    fn parameters(&self) -> Parameters;

    /// See [`Launch::check`].
    fn check(&self) -> Result<(), lockstep_core::Error>;

    /// See [`Launch::check_bounds`].
    fn check_bounds(&self) -> Result<(), lockstep_core::Error>;
}

// SAFETY: `DisjointRows` promises the rows; the rest is the kernel's.
#[allow(unsafe_code)]
unsafe impl<K: DisjointRows> Encoded for K {
    fn parameters(&self) -> Parameters {
        Parameters::of(self)
    }

    fn check(&self) -> Result<(), lockstep_core::Error> {
        Launch::check(self)
    }

    fn check_bounds(&self) -> Result<(), lockstep_core::Error> {
        Launch::check_bounds(self)
    }
}

/// Number of parameters of an entry point.
const COUNT: usize = 1 + MAX_POINTERS + MAX_WORDS;

/// An array among the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its address on the device or the host.
    pub address: *mut u8,
    /// Its size in bytes.
    pub bytes: usize,
    /// Whether the kernel writes it.
    pub written: bool,
}

/// All parameters of an entry point, on the stack, and which entry point it is. What a launch does with them
/// is compiled once, not for every op.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) op: &'static str,
    pub(crate) variant: usize,
    pub(crate) rows: usize,
    pub(crate) teams: u32,
    arrays: [Array; MAX_POINTERS],
    words: [u64; MAX_WORDS],
    used: (usize, usize),
}

impl Parameters {
    /// Encodes a kernel.
    #[inline(never)]
    pub fn of<K: Kernel>(kernel: &K) -> Parameters {
        const { assert!(K::POINTERS <= MAX_POINTERS && K::WORDS <= MAX_WORDS) };
        let none = Array { address: std::ptr::null_mut(), bytes: 0, written: false };
        let mut to = Parameters {
            op: K::NAME,
            variant: kernel.variant(),
            rows: kernel.rows(),
            teams: 0,
            arrays: [none; MAX_POINTERS],
            words: [0; MAX_WORDS],
            used: (0, 0),
        };
        kernel.encode(&mut to);
        debug_assert_eq!(to.used, (K::POINTERS, K::WORDS), "{}", K::NAME);
        to
    }

    /// Returns the op's name in the table.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// Returns the number of the entry point among the op's.
    pub fn variant(&self) -> usize {
        self.variant
    }

    /// Returns the number of rows to run.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the arrays, including absent ones, in the order of the kernel's fields.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays[..self.used.0]
    }

    /// Returns the arrays mutably, to point them elsewhere.
    pub fn arrays_mut(&mut self) -> &mut [Array] {
        &mut self.arrays[..self.used.0]
    }

    /// Returns the arguments of [`Decoder::new`](lockstep_core::op::Decoder::new).
    pub fn raw(&self) -> ([*mut u8; MAX_POINTERS], [u64; MAX_WORDS]) {
        (self.arrays.map(|array| array.address), self.words)
    }

    /// Calls `launch` with pointers to the values, the form that both vendors' launch functions take.
    pub(crate) fn with_pointers<R>(&self, launch: impl FnOnce(&mut [*mut c_void]) -> R) -> R {
        let (addresses, words) = self.raw();
        let mut params = [std::ptr::null_mut::<c_void>(); COUNT];
        params[0] = (&raw const self.teams).cast_mut().cast();
        for (param, address) in params[1..].iter_mut().zip(&addresses) {
            *param = (&raw const *address).cast_mut().cast();
        }
        for (param, word) in params[1 + MAX_POINTERS..].iter_mut().zip(&words) {
            *param = (&raw const *word).cast_mut().cast();
        }
        launch(&mut params)
    }

    fn array(&mut self, array: Array, length: usize) {
        self.arrays[self.used.0] = array;
        self.used.0 += 1;
        self.word(length as u64);
    }
}

impl Encoder for Parameters {
    fn word(&mut self, word: u64) {
        self.words[self.used.1] = word;
        self.used.1 += 1;
    }

    fn input<T: Copy>(&mut self, array: Option<In<'_, T>>) {
        let (address, length) = array.map_or((std::ptr::null(), 0), |array| (array.as_ptr(), array.len()));
        let bytes = length * size_of::<T>();
        self.array(Array { address: address.cast_mut().cast(), bytes, written: false }, length);
    }

    fn output<T: Copy>(&mut self, array: Option<&Out<'_, T>>) {
        let (address, length) =
            array.map_or((std::ptr::null_mut(), 0), |array| (array.as_ptr(), array.len()));
        let bytes = length * size_of::<T>();
        self.array(Array { address: address.cast(), bytes, written: true }, length);
    }
}
