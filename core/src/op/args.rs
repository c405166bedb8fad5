//! Launch arguments as plain data, so that they can be passed to a device.
//!
//! A kernel's fields become two lists: **pointers** (every array) and **words** (lengths and scalars, 64 bits
//! each), in the order of the fields. A device's entry point takes every pointer as a separate parameter,
//! because only then does the compiler know that it points to global memory
//! (docs/decisions/0005-gpu-launch.md), and the words by value; it then rebuilds the kernel. The widths do
//! not depend on values: an absent argument is null pointers and zero words, so all positions are constants
//! on the device.
//!
//! The macro [`launch_args!`](crate::launch_args) generates both directions from the list of a struct's
//! fields.

use crate::ragged::{In, Out};

/// Number of pointers that an entry point takes.
pub const MAX_POINTERS: usize = 24;
/// Number of words that an entry point takes.
pub const MAX_WORDS: usize = 64;

/// The most warps of a block that share a row.
pub const MAX_WARPS: u32 = 16;

/// Receives launch arguments, on the host.
pub trait Encoder {
    /// The next values belong to the field of this name. Fields may be nested.
    #[inline(always)]
    fn field(&mut self, _name: &'static str) {}
    /// Appends a length or a scalar.
    fn word(&mut self, word: u64);
    /// Appends an array that the kernel reads, or null if absent, and its length as a word.
    fn input<T: Copy>(&mut self, array: Option<In<'_, T>>);
    /// Appends an array that the kernel writes, or null if absent, and its length as a word.
    fn output<T: Copy>(&mut self, array: Option<&Out<'_, T>>);
}

/// Returns launch arguments in the order in which they were encoded, on the device.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    pointers: [*mut u8; MAX_POINTERS],
    words: [u64; MAX_WORDS],
    pointer: usize,
    word: usize,
}

impl Decoder {
    /// Creates a decoder of the parameters of an entry point.
    #[inline(always)]
    pub fn new(pointers: [*mut u8; MAX_POINTERS], words: [u64; MAX_WORDS]) -> Self {
        Decoder { pointers, words, pointer: 0, word: 0 }
    }

    /// The next word.
    #[inline(always)]
    pub fn word(&mut self) -> u64 {
        self.word += 1;
        self.words[self.word - 1]
    }

    /// The next pointer.
    #[inline(always)]
    pub fn pointer<T>(&mut self) -> *mut T {
        self.pointer += 1;
        self.pointers[self.pointer - 1].cast()
    }
}

/// A type that launch arguments can contain.
#[allow(unsafe_code)]
pub trait Arg: Sized {
    /// Number of pointers that it takes, whatever its value.
    const POINTERS: usize;
    /// Number of words that it takes, whatever its value.
    const WORDS: usize;

    /// Encodes the value.
    fn encode<E: Encoder>(&self, to: &mut E);

    /// Decodes a value. Zeros and null pointers also decode to a value, which is never used.
    ///
    /// # Safety
    /// `from` holds what [`encode`](Arg::encode) wrote, with pointers to memory that this device may access
    /// as the views say.
    unsafe fn decode(from: &mut Decoder) -> Self;
}

#[allow(unsafe_code)]
impl<T: Copy> Arg for In<'_, T> {
    const POINTERS: usize = 1;
    const WORDS: usize = 1;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        to.input(Some(*self));
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let (first, len) = (from.pointer::<T>(), from.word() as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { In::from_raw(first, len) }
    }
}

#[allow(unsafe_code)]
impl<T: Copy> Arg for Out<'_, T> {
    const POINTERS: usize = 1;
    const WORDS: usize = 1;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        to.output(Some(self));
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let (first, len) = (from.pointer::<T>(), from.word() as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { Out::from_raw(first, len) }
    }
}

#[allow(unsafe_code)]
impl<A: Arg> Arg for Option<A> {
    const POINTERS: usize = A::POINTERS;
    const WORDS: usize = 1 + A::WORDS;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        to.word(u64::from(self.is_some()));
        match self {
            Some(value) => value.encode(to),
            None => {
                // An absent array also writes the word of its length.
                (0..A::POINTERS).for_each(|_| to.input::<u8>(None));
                (0..A::WORDS - A::POINTERS).for_each(|_| to.word(0));
            }
        }
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let some = from.word() != 0;
        // SAFETY: guaranteed by the caller.
        let value = unsafe { A::decode(from) };
        some.then_some(value)
    }
}

macro_rules! scalar {
    ($($scalar:ty: $to:expr, $from:expr;)*) => {$(
        #[allow(unsafe_code)]
        impl Arg for $scalar {
            const POINTERS: usize = 0;
            const WORDS: usize = 1;
            #[inline(always)]
            fn encode<E: Encoder>(&self, to: &mut E) {
                let word: fn($scalar) -> u64 = $to;
                to.word(word(*self));
            }
            #[inline(always)]
            unsafe fn decode(from: &mut Decoder) -> Self {
                let value: fn(u64) -> $scalar = $from;
                value(from.word())
            }
        }
    )*};
}
scalar! {
    bool: u64::from, |word| word != 0;
    u8: u64::from, |word| word as u8;
    i32: |value| u64::from(value.cast_unsigned()), |word| (word as u32).cast_signed();
    u32: u64::from, |word| word as u32;
    u64: |value| value, |word| word;
    usize: |value| value as u64, |word| word as usize;
    f32: |value| u64::from(value.to_bits()), |word| f32::from_bits(word as u32);
    f64: f64::to_bits, f64::from_bits;
}

#[allow(unsafe_code)]
impl<A: Arg + Copy, const N: usize> Arg for [A; N] {
    const POINTERS: usize = N * A::POINTERS;
    const WORDS: usize = N * A::WORDS;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        self.iter().for_each(|value| value.encode(to));
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        // SAFETY: guaranteed by the caller.
        core::array::from_fn(|_| unsafe { A::decode(from) })
    }
}

/// Implements [`Arg`](crate::op::Arg) for a struct from the list of its fields, for an enum without fields,
/// or for an enum whose variants are numbered and share the words of the named slots. Any other number is
/// the first variant.
///
/// ```text
/// launch_args!(LossOut<'_> { token_loss, row_loss });
/// launch_args!(impl[S: Storage] LogitRows<'_, S> { … });
/// launch_args!(enum Direction { Prefix, Suffix });
/// launch_args!(enum PerRow (number: f64) { 0 => One, 1 => Length { eps: number }, 3 => Constant(number) });
/// ```
///
/// Leaving out a field is a compile error.
#[macro_export]
macro_rules! launch_args {
    ($name:ident $(<$lifetime:lifetime>)? { $($field:ident),* $(,)? }) => {
        $crate::launch_args!(impl[] $name $(<$lifetime>)? { $($field),* });
    };
    (impl[$($bound:tt)*] $name:ident $(<$($generic:tt),*>)? { $($field:ident),* $(,)? }) => {
        #[allow(unsafe_code)]
        impl<$($bound)*> $crate::op::Arg for $name $(<$($generic),*>)? {
            const POINTERS: usize = $crate::op::sum(&[$($crate::op::pointers_of(|x: &Self| &x.$field)),*]);
            const WORDS: usize = $crate::op::sum(&[$($crate::op::words_of(|x: &Self| &x.$field)),*]);
            #[inline(always)]
            fn encode<Enc: $crate::op::Encoder>(&self, to: &mut Enc) {
                $(
                    to.field(stringify!($field));
                    $crate::op::Arg::encode(&self.$field, to);
                )*
            }
            #[inline(always)]
            unsafe fn decode(from: &mut $crate::op::Decoder) -> Self {
                // SAFETY: guaranteed by the caller; fields are evaluated in the order in which they are
                // written.
                unsafe { Self { $($field: $crate::op::Arg::decode(from)),* } }
            }
        }
    };
    (
        enum $name:ident $slots:tt {
            $default:literal => $first:ident $({ $($named:tt)* })?
            $(, $number:literal => $variant:ident $({ $($fields:tt)* })? $(($($tuple:tt)*))?)* $(,)?
        }
    ) => {
        #[allow(unsafe_code)]
        impl $crate::op::Arg for $name {
            const POINTERS: usize = 0;
            const WORDS: usize = $crate::launch_args!(@words $slots);
            // Where every variant has all the slots, nothing reads the absent ones.
            #[allow(unused_variables)]
            #[inline(always)]
            fn encode<Enc: $crate::op::Encoder>(&self, to: &mut Enc) {
                $crate::launch_args!(@absent $slots);
                match *self {
                    $name::$first $({ $($named)* })? => $crate::launch_args!(@encode to, $default, $slots),
                    $($name::$variant $({ $($fields)* })? $(($($tuple)*))? => {
                        $crate::launch_args!(@encode to, $number, $slots)
                    })*
                }
            }
            #[inline(always)]
            unsafe fn decode(from: &mut $crate::op::Decoder) -> Self {
                let kind = from.word();
                $crate::launch_args!(@decode from, $slots);
                match kind {
                    $($number => $name::$variant $({ $($fields)* })? $(($($tuple)*))?,)*
                    _ => $name::$first $({ $($named)* })?,
                }
            }
        }
    };
    (@words ($($slot:ident: $type:ty),*)) => { 1 $(+ <$type as $crate::op::Arg>::WORDS)* };
    (@absent ($($slot:ident: $type:ty),*)) => { $(let $slot = <$type>::default();)* };
    (@encode $to:ident, $number:literal, ($($slot:ident: $type:ty),*)) => {{
        $to.word($number);
        $($crate::op::Arg::encode(&$slot, $to);)*
    }};
    (@decode $from:ident, ($($slot:ident: $type:ty),*)) => {
        // SAFETY: guaranteed by the caller.
        $(let $slot = unsafe { <$type as $crate::op::Arg>::decode($from) };)*
    };
    (enum $name:ident { $first:ident $(, $variant:ident)* $(,)? }) => {
        #[allow(unsafe_code)]
        impl $crate::op::Arg for $name {
            const POINTERS: usize = 0;
            const WORDS: usize = 1;
            #[inline(always)]
            fn encode<Enc: $crate::op::Encoder>(&self, to: &mut Enc) {
                to.word(*self as u64);
            }
            #[inline(always)]
            unsafe fn decode(from: &mut $crate::op::Decoder) -> Self {
                let word = from.word();
                $(if word == $name::$variant as u64 { return $name::$variant; })*
                $name::$first
            }
        }
    };
}

/// Number of pointers of the field that `field` projects to; the projection only carries the type.
#[doc(hidden)]
pub const fn pointers_of<S, A: Arg>(_field: fn(&S) -> &A) -> usize {
    A::POINTERS
}

/// Number of words of the field that `field` projects to.
#[doc(hidden)]
pub const fn words_of<S, A: Arg>(_field: fn(&S) -> &A) -> usize {
    A::WORDS
}

/// Sum of a list, for constants.
#[doc(hidden)]
pub const fn sum(list: &[usize]) -> usize {
    let (mut total, mut i) = (0, 0);
    while i < list.len() {
        total += list[i];
        i += 1;
    }
    total
}
