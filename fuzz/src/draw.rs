//! Reads a fuzz input's bytes from the front, one choice after the other, so that seeds can be written by
//! hand (`examples/seeds.rs`). Missing bytes are 0.

use arbitrary::Unstructured;

/// What a number usually looks like.
#[derive(Clone, Copy, Debug)]
pub enum Like {
    /// A log-probability: at most 0.
    LogProbability,
    /// A rollout-correction weight: at least 0.
    Weight,
    /// A reward or an advantage: any sign, with many ties.
    Reward,
    /// A parameter: positive, around 1.
    Parameter,
}

/// Numbers that arithmetic tends to stumble over.
const EDGES: [f32; 16] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -0.0,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    -20.0,
    -88.8,
    -104.0,
    20.0,
    1.0,
    16_777_216.0,
];

/// A reader of choices.
pub struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    /// Starts reading `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Draw(Unstructured::new(bytes))
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// A number below `n`, from one byte.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// One of `choices`.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Yes or no, from one byte.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// A number: one byte gives an ordinary number, an edge case, or the instruction to take any bit pattern
    /// from the next four bytes.
    pub fn float(&mut self, like: Like) -> f32 {
        match self.byte() {
            byte @ 0..0xe0 => {
                let x = f32::from(byte);
                match like {
                    Like::LogProbability => x / -32.0,
                    Like::Weight => x / 64.0,
                    Like::Reward => (x - 112.0) / 16.0,
                    Like::Parameter => (x + 1.0) / 64.0,
                }
            }
            byte @ 0xe0..0xf0 => EDGES[usize::from(byte) - 0xe0],
            _ => f32::from_bits(self.u32()),
        }
    }

    /// Like [`Draw::float`], in binary64.
    pub fn double(&mut self, like: Like) -> f64 {
        if self.byte() < 0xf0 { f64::from(self.float(like)) } else { f64::from_bits(self.u64()) }
    }

    /// Like [`Draw::float`], or `None`.
    pub fn optional(&mut self, like: Like) -> Option<f32> {
        self.flag().then(|| self.float(like))
    }

    /// `n` numbers; three values of the first byte request a wrong length.
    pub fn floats(&mut self, n: usize, like: Like) -> Vec<f32> {
        let n = self.length(n);
        (0..n).map(|_| self.float(like)).collect()
    }

    /// `n` mask bytes, or a wrong number of them.
    pub fn mask(&mut self, n: usize) -> Vec<u8> {
        let n = self.length(n);
        (0..n).map(|_| self.one_of(&[1, 0, 255])).collect()
    }

    fn length(&mut self, n: usize) -> usize {
        match self.byte() {
            0xff => n.saturating_sub(1),
            0xfe => n + 1,
            0xfd => 0,
            _ => n,
        }
    }
}
