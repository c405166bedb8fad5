//! [`Team::largest`](lockstep_core::team::Team::largest) as vectors: converts the keys once, to a buffer of
//! integers of the same order, then picks.
//!
//! Each pick is a maximum over all keys, then the lowest element that has it. AVX-512 has a faster way for
//! two or more picks ([`ranked`](crate::ranked)); where keys follow values, it computes keys for the
//! candidates only.

use crate::level::Picks;
use crate::short::Slots;
use lockstep_core::num::Arith;
use lockstep_core::ragged::flag;
use lockstep_core::team::fold::{COLUMNS, LANES};
use lockstep_core::team::order::{LEAST, ordered, unordered};
use lockstep_core::team::{Key, MAX_LARGEST, PICKS, PickedRows, ROWS};

/// Numbers on cache-line boundaries.
#[repr(C, align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// Keys of `N` elements, padded with [`LEAST`] after a short row.
pub(crate) type Keys<const N: usize> = Aligned<[i32; N]>;

/// The most candidates considered, and the most picks for which candidates are used.
pub(crate) const FEW: usize = 16;

/// The elements of at most 32 picks.
pub(crate) type Elements = Aligned<[u32; LANES]>;

/// Picked elements and their keys, in order. `found` counts them, including candidates after the last pick.
pub(crate) struct Ranked {
    pub(crate) found: u32,
    pub(crate) at: Elements,
    pub(crate) keys: Slots,
}

/// The candidates of sixteen rows, slot j of row r at j·16 + r, and how many each row has.
#[repr(C, align(64))]
pub(crate) struct Candidates {
    pub(crate) values: [f32; FEW * ROWS],
    pub(crate) at: [u32; FEW * ROWS],
    pub(crate) found: [u32; ROWS],
}

impl Candidates {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Candidates { values: [0.0; FEW * ROWS], at: [0; FEW * ROWS], found: [0; ROWS] }
    }

    /// Converts values to keys. Returns a bit for each row whose candidates are no longer in order by key.
    #[inline(always)]
    pub(crate) fn by_key<A: Arith, F: Key>(&self, key: &F, picked: &mut PickedRows) -> u32 {
        const PAIRS: usize = (FEW - 1) * ROWS;
        let mut keys = [0.0f32; FEW * ROWS];
        for i in 0..FEW * ROWS {
            keys[i] = key.key::<A>(self.values[i], 0.0, 0) + 0.0;
        }
        let mut wrong = [0u32; PAIRS];
        for j in 0..FEW - 1 {
            for r in 0..ROWS {
                wrong[j * ROWS + r] = if (j as u32 + 1) < self.found[r] { 1 << r } else { 0 };
            }
        }
        let mut left = 0;
        for i in 0..PAIRS {
            let (own, next) = (keys[i], keys[i + ROWS]);
            let falls = (own > next) | ((own == next) & (self.at[i] < self.at[i + ROWS]));
            left |= if falls { 0 } else { wrong[i] };
        }
        picked.keys.copy_from_slice(&keys[..PICKS * ROWS]);
        left
    }
}

/// Computes the keys of sixteen rows of `E` elements, and the rows' alarms.
#[inline(always)]
pub(crate) fn keys_of_rows<A: Arith, F: Key, const E: usize>(
    keys: &mut [[f32; E]; ROWS],
    rows: &[f32],
    bias: Option<&[f32]>,
    key: &F,
) -> [u32; ROWS] {
    let mut alarms = [0; ROWS];
    for r in 0..ROWS {
        let (keys, row) = (&mut keys[r], &rows[r * E..(r + 1) * E]);
        let mut alarm = 0;
        match bias {
            Some(bias) => {
                let bias = &bias[..E];
                for e in 0..E {
                    alarm = alarm.max(flag::finite(row[e])).max(flag::finite(bias[e]));
                    keys[e] = key.key::<A>(row[e], bias[e], e);
                }
            }
            None => {
                for e in 0..E {
                    alarm = alarm.max(flag::finite(row[e]));
                    keys[e] = key.key::<A>(row[e], 0.0, e);
                }
            }
        }
        alarms[r] = alarm;
    }
    alarms
}

/// Picks the `count` largest of at most `N` elements.
///
/// It passes no pick to a closure: LLVM inlines none of several calls in one function, and then compiles the
/// closure without the level's target features.
#[inline(always)]
pub(crate) fn largest<A: Arith, L: Picks, F: Key, const N: usize>(
    row: &[f32],
    bias: Option<&[f32]>,
    count: usize,
    key: &F,
) -> (Ranked, u32) {
    assert!(
        row.len() <= N && count <= LANES,
        "{count} of {} elements: at most {LANES} of {MAX_LARGEST}",
        row.len()
    );
    let mut keys = Aligned([LEAST; N]);
    if let (Some(near), None, 3..) = (F::NEAR, bias, count) {
        let alarm = keys_of::<A, Value, false, N>(&mut keys.0, row, &[], &Value);
        if alarm <= flag::LIMIT
            && let Some(ranked) = L::picks(&keys, count, Some(near))
            && let Some(ranked) = by_key::<A, L, F>(ranked, count, key)
        {
            return (ranked, alarm);
        }
    }
    let alarm = match bias {
        Some(bias) => keys_of::<A, F, true, N>(&mut keys.0, row, bias, key),
        None => keys_of::<A, F, false, N>(&mut keys.0, row, &[], key),
    };
    let ranked = if count > 1 { L::picks(&keys, count, None) } else { None };
    (ranked.unwrap_or_else(|| one_by_one(&mut keys, count)), alarm)
}

/// Uses the value itself as the key.
struct Value;

impl Key for Value {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, _bias: f32, _element: usize) -> f32 {
        value
    }
}

/// Replaces values by keys, if the order stays the same.
#[inline(always)]
fn by_key<A: Arith, L: Picks, F: Key>(mut ranked: Ranked, count: usize, key: &F) -> Option<Ranked> {
    let mut orders = Aligned([LEAST; FEW]);
    for l in 0..FEW {
        orders.0[l] = ordered(key.key::<A>(ranked.keys.0[l], 0.0, ranked.at.0[l] as usize));
    }
    for l in 0..FEW {
        ranked.keys.0[l] = if l < count { unordered(orders.0[l]) } else { 0.0 };
    }
    if L::falls(&orders, &ranked.at, ranked.found) { Some(ranked) } else { None }
}

/// Picks one by one: the maximum over all keys, then the lowest element that has it.
#[inline(always)]
fn one_by_one<const N: usize>(Aligned(keys): &mut Keys<N>, count: usize) -> Ranked {
    let mut found = Ranked { at: Aligned([0; LANES]), keys: Slots([0.0; LANES]), found: count as u32 };
    for j in 0..count {
        let (best, at) = maximum(keys);
        found.at.0[j] = at;
        found.keys.0[j] = unordered(best);
        if j + 1 < count {
            for e in 0..N {
                keys[e] = if e as u32 == at { LEAST } else { keys[e] };
            }
        }
    }
    found
}

/// Returns the largest key and the lowest element that has it.
#[inline(always)]
fn maximum<const N: usize>(keys: &[i32; N]) -> (i32, u32) {
    let mut best = LEAST;
    for order in keys {
        best = best.max(*order);
    }
    let mut at = i32::MAX;
    for e in 0..N {
        at = at.min(if keys[e] == best { e as i32 } else { i32::MAX });
    }
    (best, at.cast_unsigned())
}

/// Fills `keys` and returns the alarm. Padding after a short row gets no key: the key function must not be
/// called for it.
#[inline(always)]
fn keys_of<A: Arith, F: Key, const BIAS: bool, const N: usize>(
    keys: &mut [i32; N],
    row: &[f32],
    bias: &[f32],
    key: &F,
) -> u32 {
    let mut alarm = 0;
    for (chunk, keys) in keys.chunks_mut(COLUMNS).enumerate() {
        let start = chunk * COLUMNS;
        if start >= row.len() {
            break;
        }
        let live = COLUMNS.min(row.len() - start);
        let keys = &mut keys[..live];
        let value = &row[start..start + live];
        if BIAS {
            let bias = &bias[start..start + live];
            for l in 0..live {
                alarm = alarm.max(flag::finite(value[l])).max(flag::finite(bias[l]));
                keys[l] = ordered(key.key::<A>(value[l], bias[l], start + l));
            }
        } else {
            for l in 0..live {
                alarm = alarm.max(flag::finite(value[l]));
                keys[l] = ordered(key.key::<A>(value[l], 0.0, start + l));
            }
        }
    }
    alarm
}
