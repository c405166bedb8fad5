//! Writes one of two values for each token, depending on whether it is among the n largest.
//!
//! **Formula**: token i is selected if its key is above the n-th largest, or equal to it with fewer than
//! `wanted` equal keys before it, so ties go to the lowest index. out = on if selected, off otherwise.
//!
//! **Shapes**: `keys`, `out` `[N]`; `state` `[2]` and `ties_before` `[S]` as [`narrow_digits`](super::digits)
//! left them.
//!
//! **Special cases**: masked tokens get 0. Key 0 is never selected.

use crate::num::{Arith, canonical, count};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{AddF64, Direction, Element, Lane, Team};

crate::kernel! {
    /// The op `select_top`: one of two values for each token.
    pub struct SelectTop<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Selection keys, `[N]`.
        pub keys: In<'a, u32> [tokens],
        /// The n-th largest key, and how many keys equal to it are wanted, `[2]`.
        pub state: In<'a, u32> [2],
        /// Number of keys equal to it in preceding rows, `[S]`.
        pub ties_before: In<'a, u32> [sequences],
        /// Values of selected tokens, `[N]`; absent for `on_value`.
        pub on: Option<In<'a, f32>> [tokens],
        /// Value of all selected tokens if `on` is absent.
        pub on_value: f32,
        /// Values of the other tokens, `[N]`; absent for `off_value`.
        pub off: Option<In<'a, f32>> [tokens],
        /// Value of all other tokens if `off` is absent.
        pub off_value: f32,
        /// The chosen values, `[N]`.
        pub out: Out<'a, f32> [tokens],
        /// Number of selected tokens per sequence, `[S]`.
        pub row_selected: Out<'a, u32> [sequences],
    }
    unsafe "select_top", over cu_seqlens (tokens, sequences);
}

impl Kernel for SelectTop<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_seqlens.span(row);
        let (mask, keys, out) = (self.loss_mask, self.keys, *self.out);
        let (bound, wanted) = (self.state.at(0), f64::from(self.state.at(1)));
        let before = f64::from(self.ties_before.at(row));
        // Keys are passed as the bits of `f32`; a masked token's key is 0, below every bound.
        let ins = [
            Stream::Array(keys.as_numbers()),
            Stream::or(self.on, self.on_value),
            Stream::or(self.off, self.off_value),
        ];
        let chosen = Chosen { bound, ties: before < wanted };
        let [above, ties] = team.sweep(span, mask, ins, [Some(out)], &chosen).sums;
        // Usually all or none of a row's ties are selected. Only if the selection ends within the row does
        // their order matter.
        if before < wanted && before + ties > wanted {
            let (on, off) = (Either::new(self.on, self.on_value), Either::new(self.off, self.off_value));
            let tie = move |i: usize| if keys.at(i) == bound { 1.0 } else { 0.0 };
            team.scan(AddF64, span, Mask::all(), Direction::Prefix, tie, move |i, ties| {
                let key = keys.at(i);
                let selected = (key > bound) | ((key == bound) & (before + ties <= wanted));
                let value = if selected { on.at(i) } else { off.at(i) };
                out.put(i, if mask.at(i) { canonical(value) } else { 0.0 });
            });
        }
        if team.leads() {
            let left = if wanted > before { wanted - before } else { 0.0 };
            self.row_selected.put(row, (above + if ties < left { ties } else { left }) as u32);
        }
    }
}

/// Chooses by key alone; counts the keys above the bound and those equal to it.
struct Chosen {
    bound: u32,
    /// Whether keys equal to the bound are selected.
    ties: bool,
}

impl Element<3, 1, 2, 0> for Chosen {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 2, 0> {
        let key = input(0).to_bits();
        let (above, tie) = (key > self.bound, key == self.bound);
        let selected = above | (tie & self.ties);
        let value = either(selected, input(1), input(2));
        // A NaN must come with an alarm; otherwise it would not be made canonical.
        Lane { out: [value], sum: [count(above), count(tie)], max: [], alarm: flag::finite(value) }
    }
}

/// `a` or `b`, bit for bit; both are read. An `if` between two loads becomes a load from one of two
/// addresses, on a CPU a gather (measured: twice as slow).
#[inline(always)]
fn either(condition: bool, a: f32, b: f32) -> f32 {
    let mask = u32::from(condition).wrapping_neg();
    f32::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
}

/// An array, or one value for every token. It is not a [`Stream`](crate::ragged::Stream), because a scan's
/// closure keeps a stream's constant in memory, and LLVM then selects between its address and the array's (8
/// bytes of stack, generic loads). Here only bits are selected.
#[derive(Clone, Copy)]
struct Either<'a> {
    array: Option<In<'a, f32>>,
    /// 0 if there is an array.
    value: u32,
}

impl<'a> Either<'a> {
    #[inline(always)]
    fn new(array: Option<In<'a, f32>>, value: f32) -> Self {
        Either { array, value: if array.is_some() { 0 } else { value.to_bits() } }
    }

    #[inline(always)]
    fn at(self, i: usize) -> f32 {
        let element = match self.array {
            Some(array) => array.at(i).to_bits(),
            None => 0,
        };
        f32::from_bits(element | self.value)
    }
}
