//! Exact selection of the n largest values of a batch, or of n random ones, for KL-Cov, Clip-Cov and the
//! tokens with the largest entropies.

use super::aggregate::{fold_rows, row_sums};
use super::locate;
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::aggregate::moments::{COUNT, MEAN, MOMENTS};
use lockstep_core::gate::PpoClip;
use lockstep_core::ragged::{In, Offsets, Out};
use lockstep_core::require;
use lockstep_core::select::{
    ClipTest, Covariance, DIGITS, DigitCounts, NarrowDigits, Order, SHIFTS, SelectTop, SelectionKey,
};
use lockstep_cpu::Nth;

/// Computes (A − mean A)·(logp − mean logp) of every token, `[N]`, with means over the live tokens of the
/// batch; formula: [`lockstep_core::select::covariance`]. Masked tokens have 0.
///
/// Errors: lengths that disagree; a live value that is not finite (argument, index).
#[doc(alias("KL-Cov", "Clip-Cov"))]
pub fn covariance(
    device: &Device,
    batch: &Batch<'_>,
    logp: &[f32],
    advantage: Advantage<'_>,
) -> Result<Vec<f32>, Error> {
    let mut out = Vec::new();
    covariance_into(device, batch, logp, advantage, &mut out)?;
    Ok(out)
}

/// Like [`covariance`], but into `out`, whose memory is reused; returns the number of live tokens. `out` is
/// unspecified after an error.
pub fn covariance_into(
    device: &Device,
    batch: &Batch<'_>,
    logp: &[f32],
    advantage: Advantage<'_>,
    out: &mut Vec<f32>,
) -> Result<u64, Error> {
    batch.check_tokens("logp", logp.len())?;
    advantage.check(batch, "advantage")?;
    let (values, per_token) = advantage.values();
    // The op reads only the mean. Sums are enough for it, and take a quarter of the time of all six moments.
    let (logp_sums, live) = row_sums(device, batch, "logp", logp)?;
    let advantage_sums = match per_token {
        true => row_sums(device, batch, "advantage", values)?.0,
        false => {
            // A sequence without live tokens does not count, so its advantage may be anything.
            let holds = |row: usize, x: f32| live[row] == 0 || x.is_finite();
            locate::each("advantage", values, "a finite number", holds)?;
            let total = |(x, n): (&f32, &u32)| if *n > 0 { f64::from(*x) * f64::from(*n) } else { 0.0 };
            values.iter().zip(&live).map(total).collect()
        }
    };
    let count: u64 = live.iter().copied().map(u64::from).sum();
    let moments = |sums: &[f64]| -> Result<[f64; MOMENTS], Error> {
        let mut moments = [0.0; MOMENTS];
        if count > 0 {
            let total = fold_rows(device, sums, batch.sequences())?[0];
            (moments[COUNT], moments[MEAN]) = (count as f64, total / count as f64);
        }
        Ok(moments)
    };
    let (logp_moments, advantage_moments) = (moments(&logp_sums)?, moments(&advantage_sums)?);
    out.resize(batch.tokens(), 0.0);
    device.run(&Covariance {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        advantage: In::new(values),
        advantage_per_token: per_token,
        logp_moments: In::new(&logp_moments),
        advantage_moments: In::new(&advantage_moments),
        covariance: Out::new(out),
    })?;
    Ok(count)
}

/// Which tokens can be selected, and in which order.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// A value of each token, `[N]`; a token with NaN is not a candidate.
    pub values: &'a [f32],
    /// A candidate's value lies strictly between these two; infinite ends admit every number.
    pub band: [f32; 2],
    /// If given, excludes the tokens that PPO's clip affects: the clip, `logp`, `logp_old` and the
    /// advantages.
    pub unclipped: Option<(PpoClip, &'a [f32], &'a [f32], Advantage<'a>)>,
    /// The order of selection: largest values first, or random.
    pub order: Order,
}

impl<'a> Candidates<'a> {
    /// Every live token is a candidate; the largest values come first.
    pub fn largest(values: &'a [f32]) -> Self {
        let band = [f32::NEG_INFINITY, f32::INFINITY];
        Candidates { values, band, unclipped: None, order: Order::Largest }
    }
}

/// The value that a token gets.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// Its own value, `[N]`.
    Each(&'a [f32]),
    /// The same value for all tokens.
    All(f32),
}

/// A selection of tokens.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    keys: Vec<u32>,
    state: [u32; 2],
    ties_before: Vec<u32>,
    /// The selected tokens, if the search found them all. This repeats what the other fields say, so it is
    /// not compared.
    places: Option<Vec<u32>>,
}

impl PartialEq for Selection {
    fn eq(&self, other: &Self) -> bool {
        let Selection { keys, state, ties_before, places: _ } = self;
        (keys, state, ties_before) == (&other.keys, &other.state, &other.ties_before)
    }
}

/// Selects the first `n` candidates of the batch, or all if there are fewer; ties go to the lowest index.
///
/// Errors: lengths that disagree; an invalid band; a clip out of its domain.
pub fn select(
    device: &Device,
    batch: &Batch<'_>,
    candidates: &Candidates<'_>,
    n: u32,
) -> Result<Selection, Error> {
    let mut selection = Selection::default();
    select_into(device, batch, candidates, n, &mut selection)?;
    Ok(selection)
}

/// Like [`select`], but into `selection`, whose memory is reused. `selection` is unspecified after an error.
pub fn select_into(
    device: &Device,
    batch: &Batch<'_>,
    candidates: &Candidates<'_>,
    n: u32,
    selection: &mut Selection,
) -> Result<(), Error> {
    batch.check_tokens("values", candidates.values.len())?;
    let Selection { keys, state, ties_before, places } = selection;
    keys.resize(batch.tokens(), 0);
    ties_before.resize(batch.sequences(), 0);
    let unclipped = match candidates.unclipped {
        None => None,
        Some((clip, logp, logp_old, advantage)) => {
            batch.check_tokens("logp", logp.len())?;
            batch.check_tokens("logp_old", logp_old.len())?;
            advantage.check(batch, "advantage")?;
            let (values, advantage_per_token) = advantage.values();
            let [logp, logp_old, advantage] = [logp, logp_old, values].map(In::new);
            Some(ClipTest { logp, logp_old, advantage, advantage_per_token, clip })
        }
    };
    device.run(&SelectionKey {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        values: In::new(candidates.values),
        band: candidates.band,
        unclipped,
        order: candidates.order,
        keys: Out::new(keys),
    })?;
    (*state, *places) = match device.fast_cpu() {
        Some(cpu) => {
            let Nth { bound, wanted, ties, larger } = cpu.nth_largest(keys, n);
            count_before(batch.cu_seqlens(), &ties, ties_before);
            let places = larger.map(|mut places| {
                places.extend(&ties[..wanted as usize]);
                places
            });
            ([bound, wanted], places)
        }
        None => (narrow(device, batch.cu_seqlens(), keys, n, ties_before)?, None),
    };
    Ok(())
}

/// Finds, in several passes, the n-th largest key, how many keys equal to it to select, and the number of
/// such keys before each row.
fn narrow(
    device: &Device,
    offsets: Offsets<'_>,
    keys: &[u32],
    n: u32,
    ties_before: &mut [u32],
) -> Result<[u32; 2], Error> {
    let rows = offsets.rows();
    let mut counts = vec![0; DIGITS * rows];
    let mut state = [0, n];
    for shift in SHIFTS {
        device.run(&DigitCounts {
            offsets,
            keys: In::new(keys),
            state: In::new(&state),
            shift,
            counts: Out::new(&mut counts),
        })?;
        let mut narrowed = [0; 2];
        device.run(&NarrowDigits {
            counts: In::new(&counts),
            rows,
            state: In::new(&state),
            shift,
            narrowed: Out::new(&mut narrowed),
            ties_before: Out::new(ties_before),
        })?;
        state = narrowed;
    }
    Ok(state)
}

/// Counts the positions in `ties`, which are ascending, before each row.
fn count_before(offsets: Offsets<'_>, ties: &[u32], before: &mut [u32]) {
    let mut seen = 0;
    for (row, before) in before.iter_mut().enumerate() {
        let start = offsets.span(row).start;
        seen += ties[seen..].iter().take_while(|tie| (**tie as usize) < start).count();
        *before = seen as u32;
    }
}

impl Selection {
    /// Returns `on` for the selected tokens, `off` for the other live ones and 0 for masked ones, `[N]`, and
    /// the number of selected tokens. `batch` must be the one that the selection was made from.
    ///
    /// Errors: lengths that disagree.
    pub fn choose(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        on: Pick<'_>,
        off: Pick<'_>,
    ) -> Result<(Vec<f32>, u64), Error> {
        let mut out = Vec::new();
        let selected = self.choose_into(device, batch, on, off, &mut out)?;
        Ok((out, selected))
    }

    /// Like [`choose`](Selection::choose), but into `out`, whose memory is reused.
    pub fn choose_into(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        on: Pick<'_>,
        off: Pick<'_>,
        out: &mut Vec<f32>,
    ) -> Result<u64, Error> {
        self.check(batch, on, off)?;
        let part = |pick| match pick {
            Pick::All(value) => (None, value),
            Pick::Each(values) => (Some(In::new(values)), 0.0),
        };
        let ((on, on_value), (off, off_value)) = (part(on), part(off));
        out.resize(batch.tokens(), 0.0);
        let mut selected = vec![0; batch.sequences()];
        device.run(&SelectTop {
            cu_seqlens: batch.cu_seqlens(),
            loss_mask: batch.loss_mask(),
            keys: In::new(&self.keys),
            state: In::new(&self.state),
            ties_before: In::new(&self.ties_before),
            on,
            on_value,
            off,
            off_value,
            out: Out::new(out),
            row_selected: Out::new(&mut selected),
        })?;
        Ok(selected.into_iter().map(u64::from).sum())
    }

    /// Like [`choose_into`](Selection::choose_into) for live tokens; masked entries are unspecified. If the
    /// positions of the selected tokens are known, a copy replaces the kernel.
    #[doc(hidden)]
    pub fn choose_live_into(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        on: Pick<'_>,
        off: Pick<'_>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let Some(places) = &self.places else {
            return self.choose_into(device, batch, on, off, out).map(|_| ());
        };
        self.check(batch, on, off)?;
        out.clear();
        match off {
            Pick::Each(values) => out.extend_from_slice(values),
            Pick::All(value) => out.resize(batch.tokens(), value),
        }
        for place in places {
            let i = *place as usize;
            out[i] = match on {
                Pick::Each(values) => values[i],
                Pick::All(value) => value,
            };
        }
        Ok(())
    }

    /// Errors unless batch and values have the lengths of the selection.
    fn check(&self, batch: &Batch<'_>, on: Pick<'_>, off: Pick<'_>) -> Result<(), Error> {
        batch.check_tokens("selection", self.keys.len())?;
        for (name, pick) in [("on", on), ("off", off)] {
            if let Pick::Each(values) = pick {
                batch.check_tokens(name, values.len())?;
            }
        }
        Ok(())
    }
}

/// Computes how many of M tokens KL-Cov and Clip-Cov select: ⌊ratio·M⌋, at least one, but none of an empty
/// batch (docs/maths/gates.md).
///
/// Errors: a ratio outside 0..=1.
pub fn share(ratio: f64, tokens: u64) -> Result<u32, Error> {
    require::unit("ratio", ratio)?;
    let floor = (ratio * tokens as f64) as u64;
    Ok(floor.max(1).min(tokens).min(u32::MAX.into()) as u32)
}

/// Computes how many of M distinct values are at or above TRL's quantile 1 − `top` (with linear
/// interpolation, like `torch.quantile`).
///
/// Errors: a `top` outside 0..=1.
pub fn top_quantile(top: f64, tokens: u64) -> Result<u32, Error> {
    require::unit("top_entropy", top)?;
    let below = ((1.0 - top) * tokens.saturating_sub(1) as f64).ceil() as u64;
    Ok(tokens.saturating_sub(below).min(u32::MAX.into()) as u32)
}

/// `torch.quantile` of finite binary32 numbers, which are reordered: the rank is the binary64 product of the
/// binary32 `q`, and the interpolation between two order statistics is one binary32 multiply-add. `None`
/// without numbers.
pub fn torch_quantile(values: &mut [f32], q: f32) -> Option<f32> {
    let last = values.len().checked_sub(1)?;
    let rank = f64::from(q) * last as f64;
    let below = (rank as usize).min(last);
    let above = (rank.ceil() as usize).min(last);
    let weight = (rank - below as f64) as f32;
    let (_, a, rest) = values.select_nth_unstable_by(below, f32::total_cmp);
    let a = *a;
    let b = if above > below { rest.iter().copied().min_by(f32::total_cmp).unwrap_or(a) } else { a };
    let d = b - a;
    Some(if weight < 0.5 { weight.mul_add(d, a) } else { (-d).mul_add(1.0 - weight, b) })
}

#[cfg(test)]
mod tests {
    use super::torch_quantile;

    #[test]
    fn a_quantile_is_torchs() {
        let of = |values: &[f32], q: f32| torch_quantile(&mut values.to_vec(), q);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[3.0], 0.9), Some(3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 0.0), Some(1.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 1.0), Some(4.0));
        // Rank 0.75: 4 - (4 - 1)·0.25.
        assert_eq!(of(&[4.0, 1.0], 0.75), Some(3.25));
        // Rank 0.25.
        assert_eq!(of(&[4.0, 1.0], 0.25), Some(1.75));
        // The binary32 0.6 times 5 is more than 3: torch 2.15 takes a little of the next number.
        assert_eq!(of(&[0.0, 0.0, 0.0, 0.25, 1024.0, 2048.0], 0.6), Some(0.250_122_04));
    }
}
