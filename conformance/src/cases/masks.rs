//! Loss masks: which elements take part.

use super::hash::Source;

/// A rule for generating a loss mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// No mask at all: catches code that requires one.
    Absent,
    /// All live, as bytes: catches a mask read with the wrong polarity.
    Full,
    /// About 7 in 10 live, with bytes other than 1: catches `== 1` and multiplication by the byte.
    Random,
    /// Every third row has no live element: catches a sequence count that includes them, and 0/0.
    DeadRows,
    /// Every other element: catches compaction that keeps the order but not the columns.
    Alternate,
    /// Only the last element of a row: catches assumptions about prefixes.
    LastOnly,
}

impl Mask {
    /// All rules.
    pub const ALL: [Mask; 6] =
        [Mask::Absent, Mask::Full, Mask::Random, Mask::DeadRows, Mask::Alternate, Mask::LastOnly];

    /// The mask bytes for these rows.
    pub fn bytes(self, offsets: &[u32], source: Source) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for (row, pair) in offsets.windows(2).enumerate() {
            for i in pair[0]..pair[1] {
                let live = match self {
                    Mask::Absent => return None,
                    Mask::Full => true,
                    Mask::Random => source.below(i as usize, 10) < 7,
                    Mask::DeadRows => row % 3 != 1,
                    Mask::Alternate => (i - pair[0]) % 2 == 1,
                    Mask::LastOnly => i + 1 == pair[1],
                };
                let byte =
                    if self == Mask::Random { 1 + (source.bits(i as usize) >> 32) as u8 % 255 } else { 1 };
                bytes.push(if live { byte } else { 0 });
            }
        }
        if self == Mask::Absent { None } else { Some(bytes) }
    }
}

/// The values at masked positions of every float array, which expose a kernel that multiplies by the mask.
pub fn garbage(i: usize) -> f32 {
    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -1e30, 7.5, f32::from_bits(0xffc1_2345)][i % 7]
}
