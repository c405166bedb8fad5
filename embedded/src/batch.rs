//! The one packed batch: structured lengths, designed values, and masks with garbage under them.

use crate::hash::Source;

/// Row lengths: zero, one, around a block of 32, around a cycle of 128 columns, two cycles and a remainder.
/// No two neighbours start at the same offset modulo 32.
pub(crate) const LENGTHS: [u32; 13] = [0, 1, 31, 32, 33, 0, 0, 127, 128, 129, 300, 1, 0];
/// Number of rows.
pub(crate) const ROWS: usize = LENGTHS.len();
/// Number of elements.
pub(crate) const ELEMENTS: usize = OFFSETS[ROWS] as usize;

/// Offsets of the rows.
pub(crate) const OFFSETS: [u32; ROWS + 1] = {
    let mut offsets = [0; ROWS + 1];
    let mut row = 0;
    while row < ROWS {
        offsets[row + 1] = offsets[row] + LENGTHS[row];
        row += 1;
    }
    offsets
};

/// How far the current policy and other policies are apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// Log-ratios of a few tenths, as in training.
    Realistic,
    /// Log-ratios over ±30, past the clamps: saturation, large sums.
    Wide,
    /// Log-ratios of exactly 0, ±0.5, ±20: `>` against `>=`.
    Ties,
    /// Log-ratios below the resolution of 1 + x, zeros of both signs, subnormals.
    Tiny,
    /// Values that no trainer should pass, in one token of 16: NaN with every kind of payload, infinities,
    /// positive numbers.
    Hostile,
}

impl Range {
    pub(crate) const ALL: [Range; 5] =
        [Range::Realistic, Range::Wide, Range::Ties, Range::Tiny, Range::Hostile];

    /// Returns a log-probability of the reference stream.
    fn base(self, source: Source, i: usize) -> f32 {
        let u = source.unit(i);
        match self {
            Range::Realistic | Range::Hostile => -6.0 * u * u * u - 0.001,
            Range::Wide => -40.0 * u - 31.0,
            Range::Ties => -((u * 64.0) as u32 as f32) / 8.0 - 20.0,
            Range::Tiny => -u * u * 0.01 - 1e-4,
        }
    }

    /// Returns another policy's log-probability of the same token.
    fn other(self, source: Source, i: usize, base: f32) -> f32 {
        let moved = match self {
            Range::Hostile if source.below(i, 16) == 0 => return garbage(source.below(i, 256) / 16),
            Range::Realistic | Range::Hostile => {
                base + 0.3 * (source.fork(1).signed(i) + source.fork(2).signed(i))
            }
            Range::Wide => base + 30.0 * source.signed(i),
            Range::Ties => base + [0.0, 0.0, 0.0, 0.5, -0.5, 20.0, -20.0, 0.125][source.below(i, 8)],
            Range::Tiny => match source.below(i, 8) {
                0 => base,
                1 => -0.0,
                2 => 0.0,
                3 => base * (1.0 + f32::EPSILON),
                4 => -1e-42,
                5 => f32::from_bits(0x8000_0001),
                _ => base + 1e-6 * source.signed(i),
            },
        };
        if moved > 0.0 { -0.5 * source.unit(i) } else { moved }
    }
}

/// Returns unexpected values: NaN with several payloads (the second is signalling), infinities, the largest
/// and the smallest number.
pub(crate) fn garbage(i: usize) -> f32 {
    const PATTERNS: [u32; 11] = [
        0x7fc0_0000,
        0x7f80_0001,
        0xffc1_2345,
        0x7f80_0000,
        0xff80_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x0000_0001,
        0x807f_ffff,
        0x40f0_0000,
        0xf149_f2ca,
    ];
    f32::from_bits(PATTERNS[i % PATTERNS.len()])
}

/// The inputs of a launch.
pub(crate) struct Batch {
    pub(crate) logp: [f32; ELEMENTS],
    pub(crate) logp_old: [f32; ELEMENTS],
    pub(crate) logp_ref: [f32; ELEMENTS],
    /// Rollout-correction weights.
    pub(crate) weights: [f32; ELEMENTS],
    /// Per token; the first [`ROWS`] also serve as per-sequence advantages.
    pub(crate) advantage: [f32; ELEMENTS],
    /// Summands of very different magnitudes.
    pub(crate) values: [f32; ELEMENTS],
    mask: [u8; ELEMENTS],
    masked: bool,
}

impl Batch {
    /// Creates case number `case` of a stream. The mask pattern cycles with the case; masked elements hold
    /// garbage.
    pub(crate) fn new(source: Source, range: Range, case: u32) -> Self {
        let zeros = [0.0; ELEMENTS];
        let mut batch = Batch {
            logp: zeros,
            logp_old: zeros,
            logp_ref: zeros,
            weights: zeros,
            advantage: zeros,
            values: zeros,
            mask: [1; ELEMENTS],
            masked: !case.is_multiple_of(6),
        };
        for row in 0..ROWS {
            let (start, end) = (OFFSETS[row] as usize, OFFSETS[row + 1] as usize);
            for i in start..end {
                batch.mask[i] = match case % 6 {
                    2 => u8::from(!row.is_multiple_of(3)),
                    3 => u8::from((i - start) % 2 == 1),
                    4 => u8::from(i + 1 == end),
                    // About 7 of 10, with bytes other than 1, so that `== 1` and multiplication by the byte
                    // would show.
                    5 if source.fork(8).below(i, 10) < 7 => 1 + source.fork(9).below(i, 255) as u8,
                    5 => 0,
                    _ => 1,
                };
                batch.fill(source, range, i);
            }
        }
        batch
    }

    fn fill(&mut self, source: Source, range: Range, i: usize) {
        let base = range.base(source.fork(1), i);
        self.logp_old[i] = base;
        self.logp[i] = range.other(source.fork(2), i, base);
        self.logp_ref[i] = range.other(source.fork(3), i, base);
        self.weights[i] = [0.0, 2.0, source.fork(4).unit(i), 2.0 * source.fork(4).unit(i)][i % 4];
        self.advantage[i] = match source.fork(5).below(i, 12) {
            0 => 0.0,
            1 => -0.0,
            2 => 1.0,
            3 => 50.0 * source.fork(6).signed(i),
            4 => f32::from_bits(0x8000_0003),
            _ => 2.5 * source.fork(6).signed(i),
        };
        self.values[i] = match source.fork(7).below(i, 64) {
            0 if range == Range::Hostile => garbage(i),
            1 => f32::from_bits(source.bits(i) as u32 & 0x807f_ffff),
            _ => source.fork(7).spread(i),
        };
        if self.mask[i] == 0 {
            let arrays = [&mut self.logp, &mut self.logp_old, &mut self.logp_ref, &mut self.weights];
            for (k, array) in arrays.into_iter().enumerate() {
                array[i] = garbage(i + k);
            }
            (self.advantage[i], self.values[i]) = (garbage(i + 4), garbage(i + 5));
        }
    }

    /// Returns the loss mask of this case, absent in one of six cases.
    pub(crate) fn mask(&self) -> Option<&[u8]> {
        self.masked.then_some(&self.mask[..])
    }
}
