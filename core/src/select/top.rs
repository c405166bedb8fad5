//! One of two values for each token, by whether it is among the n largest.
//!
//! **Formula**: token i is selected if its key is above the n-th largest, or equal to it with fewer than `wanted` equal keys before
//! it: ties go to the lowest index. out = on where selected, off elsewhere.
//!
//! **Shapes**: `keys`, `out` `[N]`; `state` `[2]` and `ties_before` `[S]` as [`narrow_digits`](super::digits) left them.
//!
//! **Special cases**: masked tokens write 0. Key 0 is never selected.

use crate::num::canonical;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{AddF64, Direction, Team};

/// The op `select_top`.
#[derive(Clone, Copy, Debug)]
pub struct SelectTop<'a> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Keys, `[N]`.
    pub keys: In<'a, u32>,
    /// The n-th largest key, and how many equal to it are wanted, `[2]`.
    pub state: In<'a, u32>,
    /// Keys equal to it in the rows before, `[S]`.
    pub ties_before: In<'a, u32>,
    /// Values where selected, `[N]`; absent = `on_value`.
    pub on: Option<In<'a, f32>>,
    /// One value where selected.
    pub on_value: f32,
    /// Values elsewhere, `[N]`; absent = `off_value`.
    pub off: Option<In<'a, f32>>,
    /// One value elsewhere.
    pub off_value: f32,
    /// `[N]`.
    pub out: Out<'a, f32>,
    /// Selected tokens, `[S]`.
    pub row_selected: Out<'a, u32>,
}

crate::kernel_args!(SelectTop<'_> { cu_seqlens, loss_mask, keys, state, ties_before, on, on_value, off, off_value, out, row_selected });

impl Kernel for SelectTop<'_> {
    const NAME: &'static str = "select_top";

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_seqlens.span(row);
        let (mask, keys, out) = (self.loss_mask, self.keys, self.out);
        let (bound, wanted) = (self.state.at(0), f64::from(self.state.at(1)));
        let before = f64::from(self.ties_before.at(row));
        let (on, off) = (Either::new(self.on, self.on_value), Either::new(self.off, self.off_value));
        let tie = move |i: usize| if keys.at(i) == bound { 1.0 } else { 0.0 };
        team.scan(AddF64, span, Direction::Prefix, tie, move |i, ties| {
            let key = keys.at(i);
            let selected = (key > bound) | ((key == bound) & (before + ties <= wanted));
            let value = if selected { on.at(i) } else { off.at(i) };
            out.put(i, if mask.at(i) { canonical(value) } else { 0.0 });
        });
        let [above, ties] = team.sum(span, move |i| [if keys.at(i) > bound { 1.0 } else { 0.0 }, tie(i)]);
        if team.leads() {
            let left = if wanted > before { wanted - before } else { 0.0 };
            self.row_selected.put(row, (above + if ties < left { ties } else { left }) as u32);
        }
    }
}

/// An array, or one value for every token. Not a [`Stream`](crate::ragged::Stream): a scan's closure keeps that one's constant in memory, and
/// LLVM then chooses between its address and the array's (8 bytes of stack, generic loads). Here only bits are chosen.
#[derive(Clone, Copy)]
struct Either<'a> {
    array: Option<In<'a, f32>>,
    /// 0 where there is an array.
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
