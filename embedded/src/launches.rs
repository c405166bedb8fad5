//! Recorded launches: ops with their arguments and arrays as plain words, which run anywhere.
//!
//! A launch is, in words of 64 bits: its length in words; the op's index in [`OPS`]; the number of the case
//! that launches it; the number of words and of arrays that the op takes ([`Arg::WORDS`], [`Arg::POINTERS`]);
//! these words; and for each array a descriptor, followed by the elements if it is an input, padded to words.
//! A descriptor is the element type (the lowest byte, 0 if the array is absent), `WRITTEN`, `ALARM`, and
//! the number of elements (the upper half). All is little-endian.

#[cfg(feature = "std")]
mod recorder;

#[cfg(feature = "std")]
pub use recorder::Recorded;

use crate::record::{Hash, Kind, Record};
use crate::{POISON, POISON64, Runner};
use lockstep_core::for_each_op;
use lockstep_core::op::{Arg, Decoder, MAX_POINTERS, MAX_WORDS, OPS};
use lockstep_core::ragged::flag;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of the published launches, as `sha256sum` prints it for their file; `LAUNCHES` is the only
/// file that states it. Conformance's example `embedded` writes it.
pub const PUBLISHED: &str = include_str!("../LAUNCHES");

/// Launches that are safe to run: [`Recorded`] wrote them.
#[derive(Clone, Copy, Debug)]
pub struct Launches<'a>(&'a [u64]);

impl<'a> Launches<'a> {
    /// Returns the launches in `words` if they are the published ones. Others could make a kernel read or
    /// write out of bounds.
    pub fn published(words: &'a [u64]) -> Option<Self> {
        let launches = Self(words);
        launches.sha256().is(PUBLISHED.trim()).then_some(launches)
    }

    /// The SHA-256 of the words, little-endian.
    pub fn sha256(self) -> Hash {
        let mut sha256 = Sha256::new();
        self.0.iter().for_each(|word| sha256.update(word.to_le_bytes()));
        Hash(sha256.finalize().into())
    }
}

/// The most words that the outputs of a launch may take.
pub const MOST: usize = 1 << 13;

/// A byte of an output before a launch. No kernel writes it.
const POISON_BYTE: u8 = 0xba;

/// In a descriptor: the kernel writes the array.
const WRITTEN: u64 = 1 << 8;
/// In a descriptor: only the side of [`flag::LIMIT`] on which an element lies is specified.
const ALARM: u64 = 1 << 9;

/// An element type, as a descriptor has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    U8 = 1,
    U32 = 2,
    U64 = 3,
    F32 = 4,
    F64 = 5,
    U16 = 6,
}

/// An array of a launch.
#[derive(Clone, Copy)]
struct Array(u64);

impl Array {
    fn element(self) -> Option<Element> {
        use Element::{F32, F64, U8, U16, U32, U64};
        [U8, U16, U32, U64, F32, F64].into_iter().find(|element| *element as u64 == self.0 & 0xff)
    }

    fn len(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Words that its elements take.
    fn words(self) -> usize {
        match self.element() {
            None => 0,
            Some(Element::U8) => self.len().div_ceil(8),
            Some(Element::U16) => self.len().div_ceil(4),
            Some(Element::U32 | Element::F32) => self.len().div_ceil(2),
            Some(Element::U64 | Element::F64) => self.len(),
        }
    }

    fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// A word of poison.
    fn poison(self) -> u64 {
        match self.element() {
            Some(Element::U8) => u64::from_ne_bytes([POISON_BYTE; 8]),
            Some(Element::U16) => u64::from(POISON as u16) * 0x0001_0001_0001_0001,
            Some(Element::U64 | Element::F64) => POISON64,
            _ => u64::from(POISON) << 32 | u64::from(POISON),
        }
    }

    /// Passes the elements in `words` on. Shorter numbers become 32 bits wide, and alarms 0 or 1.
    fn record(self, words: &[u64], record: &mut impl Record) {
        let (kind, width) = match self.element() {
            None => return,
            Some(Element::F32) => (Kind::F32, 4),
            Some(Element::F64) => (Kind::F64, 8),
            Some(Element::U64) => (Kind::U64, 8),
            Some(Element::U32) => (Kind::U32, 4),
            Some(Element::U16) => (Kind::U32, 2),
            Some(Element::U8) => (Kind::U32, 1),
        };
        record.array(kind, self.len() as u32);
        for i in 0..self.len() {
            let bytes = words[i * width / 8].to_le_bytes();
            let at = i * width % 8;
            let bytes = &bytes[at..at + width];
            match *bytes {
                [POISON_BYTE] => record.value(&POISON.to_le_bytes()),
                [byte] => record.value(&u32::from(byte).to_le_bytes()),
                [a, b] => {
                    let id = u16::from_le_bytes([a, b]);
                    let id = if id == POISON as u16 { POISON } else { id.into() };
                    record.value(&id.to_le_bytes());
                }
                [a, b, c, d] if self.0 & ALARM != 0 => {
                    let alarm = u32::from_le_bytes([a, b, c, d]);
                    let raised = if alarm == POISON { POISON } else { u32::from(alarm > flag::LIMIT) };
                    record.value(&raised.to_le_bytes());
                }
                _ => record.value(bytes),
            }
        }
    }
}

/// Runs `launches` in their order, and passes every output on.
///
/// Panics if the outputs of one exceed [`MOST`].
pub(crate) fn play<R: Runner>(runner: &R, launches: Launches<'_>, to: &mut impl Record) {
    let mut space = [0; MOST];
    let mut rest = launches.0;
    while let [length, ..] = rest {
        let (launch, after) = rest.split_at(*length as usize);
        one(runner, launch, &mut space, to);
        rest = after;
    }
}

fn one<R: Runner>(runner: &R, launch: &[u64], space: &mut [u64; MOST], to: &mut impl Record) {
    let [_, op, case, words, arrays, rest @ ..] = launch else {
        panic!("a launch of {} words", launch.len())
    };
    let (words, mut rest) = rest.split_at(*words as usize);
    let mut arguments = Arguments { pointers: [core::ptr::null_mut(); MAX_POINTERS], words: [0; MAX_WORDS] };
    arguments.words[..words.len()].copy_from_slice(words);
    let mut outputs = [Array(0); MAX_POINTERS];
    let mut free = &mut space[..];
    for i in 0..*arrays as usize {
        let array = Array(rest[0]);
        rest = &rest[1..];
        if array.is_written() {
            let (own, others) = free.split_at_mut(array.words());
            own.fill(array.poison());
            (arguments.pointers[i], free, outputs[i]) = (own.as_mut_ptr().cast(), others, array);
        } else {
            let (own, others) = rest.split_at(array.words());
            (arguments.pointers[i], rest) = (own.as_ptr().cast_mut().cast(), others);
        }
    }
    let name = OPS[*op as usize].name;
    arguments.run(name, runner);
    to.begin(name, *case as u32);
    let mut from = 0;
    for array in outputs {
        array.record(&space[from..from + array.words()], to);
        from += array.words();
    }
}

struct Arguments {
    pointers: [*mut u8; MAX_POINTERS],
    words: [u64; MAX_WORDS],
}

macro_rules! dispatch {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal,
        [$($number:literal $entry:ident),*] $($block:ident)?;)*) => {
        impl Arguments {
            fn run<R: Runner>(self, name: &str, runner: &R) {
                $(if name == stringify!($name) {
                    // A function of its own, whose stack frame is the op's alone.
                    #[inline(never)]
                    #[allow(unsafe_code)]
                    fn of_op<R: Runner>(Arguments { pointers, words }: Arguments, runner: &R) {
                        // SAFETY: what `Recorded` wrote of this op, with pointers to as many elements,
                        // aligned as words are; outputs are separate parts of writable memory.
                        let kernel = unsafe { <$kernel>::decode(&mut Decoder::new(pointers, words)) };
                        runner.run(&kernel);
                    }
                    return of_op(self, runner);
                })*
            }
        }
    };
}
for_each_op!(dispatch);
