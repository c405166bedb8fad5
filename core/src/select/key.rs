//! Selection keys: one number per token, larger keys first, 0 for no candidate.
//!
//! **Formula**: with [`Order::Largest`] the key is the bits of the value, mapped so that unsigned integers
//! order as the values do. With [`Order::Random`] it is a hash of (seed, position), so that the n largest are
//! a uniform choice without replacement. A candidate is a live token whose value is strictly inside `band`
//! and that PPO's clip does not affect (`unclipped`).
//!
//! **Shapes**: `values`, `keys` `[N]`.
//!
//! **Special cases**: NaN is never a candidate; −0 and +0 are equal. A hash of 0 is replaced by 1.
//!
//! **Variants** (docs/maths/gates.md): Clip-Cov uses band (1, 5) and a random order; KL-Cov and the top
//! entropy quantile use the largest values.

use crate::Error;
use crate::gate::{Gate, PpoClip, Sample};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::require;
use crate::team::{Number, Team};

/// The order of selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By largest value.
    Largest,
    /// By largest hash of (seed, position).
    Random {
        /// Seed; it must differ between calls, or the same positions are chosen.
        seed: u64,
        /// Position of element 0 within the whole batch, for a shard of it.
        first: u64,
    },
}

crate::launch_args!(enum Order (seed: u64, first: u64) { 1 => Random { seed, first }, 0 => Largest });

/// A test that excludes the tokens that PPO's clip affects.
#[derive(Clone, Copy, Debug)]
pub struct ClipTest<'a> {
    /// Log-probabilities of the current policy, `[N]`.
    pub logp: In<'a, f32>,
    /// Log-probabilities of the proximal policy, `[N]`.
    pub logp_old: In<'a, f32>,
    /// Advantages, `[S]` or `[N]`.
    pub advantage: In<'a, f32>,
    /// Whether `advantage` has one entry per token.
    pub advantage_per_token: bool,
    /// Clip parameters.
    pub clip: PpoClip,
}

crate::launch_args!(ClipTest<'_> { logp, logp_old, advantage, advantage_per_token, clip });

impl ClipTest<'_> {
    fn check_bounds(&self, tokens: usize, sequences: usize) -> Result<(), Error> {
        crate::lengths!(self; tokens => logp, logp_old;
            if self.advantage_per_token { tokens } else { sequences } => advantage);
        Ok(())
    }
}

crate::kernel! {
    /// The op `selection_key`: the key of each token for [`SelectTop`](super::SelectTop).
    pub struct SelectionKey<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Values to select by, `[N]`.
        pub values: In<'a, f32> [tokens],
        /// Lower and upper bound of a candidate's value, both exclusive; infinite bounds admit every number.
        pub band: [f32; 2],
        /// If present, excludes tokens that PPO's clip affects.
        pub unclipped: Option<ClipTest<'a>>,
        /// The order of selection.
        pub order: Order,
        /// Keys, `[N]`; 0 for no candidate.
        pub keys: Out<'a, u32> [tokens],
    }
    unsafe "selection_key", over cu_seqlens (tokens, sequences),
        require |k| {
            let [low, high] = k.band;
            require::scalar("band.low", !low.is_nan(), "a number", low)?;
            require::scalar("band.high", high > low, "a number above band.low", high)?;
            k.unclipped.map_or(Ok(()), |test| test.clip.check())
        },
        check |k| k.unclipped.map_or(Ok(()), |test| test.check_bounds(tokens, sequences));
}

/// Maps a number to bits that order as the numbers do; 0 for NaN only.
#[inline(always)]
pub fn ordered(x: f32) -> u32 {
    // −0 becomes +0.
    let bits = (x + 0.0).to_bits();
    let negative = bits >> 31 != 0;
    let key = if negative { !bits } else { bits | 0x8000_0000 };
    if x.is_nan() { 0 } else { key }
}

/// Hashes a position; never 0 (splitmix64: a bijection of the counter, then its upper half).
#[inline(always)]
pub fn hash(seed: u64, position: u64) -> u32 {
    let mut z = seed ^ position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z = z.wrapping_add(seed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let high = ((z ^ (z >> 31)) >> 32) as u32;
    if high == 0 { 1 } else { high }
}

impl Kernel for SelectionKey<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_seqlens.span(row);
        let values = Stream::Array(self.values);
        let key = Key { band: self.band, order: self.order };
        match self.unclipped {
            None => team.number(span, self.loss_mask, [values], *self.keys, key),
            Some(test) => {
                let advantage = match test.advantage_per_token {
                    true => Stream::Array(test.advantage),
                    false => Stream::Constant(test.advantage.at(row)),
                };
                let ins = [values, Stream::Array(test.logp), Stream::Array(test.logp_old), advantage];
                team.number(span, self.loss_mask, ins, *self.keys, Unclipped { key, clip: test.clip });
            }
        }
    }
}

/// The key of a value; 0 outside the band.
#[derive(Clone, Copy)]
struct Key {
    band: [f32; 2],
    order: Order,
}

impl Number<1> for Key {
    #[inline(always)]
    fn number<A: Arith>(self, i: usize, input: impl Fn(usize) -> f32) -> u32 {
        let (x, [low, high]) = (input(0), self.band);
        let within = ((x > low) | (low == f32::NEG_INFINITY)) & ((x < high) | (high == f32::INFINITY));
        let key = match self.order {
            Order::Largest => ordered(x),
            Order::Random { seed, first } => hash(seed, first.wrapping_add(i as u64)),
        };
        if within & !x.is_nan() { key } else { 0 }
    }
}

/// The same key, but 0 if the clip is active.
#[derive(Clone, Copy)]
struct Unclipped {
    key: Key,
    clip: PpoClip,
}

impl Number<4> for Unclipped {
    #[inline(always)]
    fn number<A: Arith>(self, i: usize, input: impl Fn(usize) -> f32) -> u32 {
        let (logp, logp_old) = (input(1), input(2));
        let ratio = num::exp::<A>(logp - logp_old);
        let (advantage, logp_second) = (input(3), 0.0);
        let sample =
            Sample { ratio, finite: false, advantage, logp, logp_old, logp_second, own_ratio: ratio };
        let free = self.clip.gate_staged::<A>(sample, 0.0).clipped == 0;
        let key = self.key.number::<A>(i, |_| input(0));
        if free { key } else { 0 }
    }
}
