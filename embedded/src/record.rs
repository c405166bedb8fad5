//! Receivers of the corpus's outputs.

use core::fmt::{self, Write as _};
use sha2::{Digest as _, Sha256};

/// Part of the digest's definition.
const TAG: &str = "lockstep embedded digest 2";

/// The element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// binary32.
    F32 = 1,
    /// binary64.
    F64 = 2,
    /// Counts, flags and positions.
    U32 = 3,
    /// Sums of counts.
    U64 = 4,
}

/// Receives every output of the corpus.
pub trait Record {
    /// A launch of the op or scalar function `name` begins; `case` counts its launches.
    fn begin(&mut self, name: &'static str, case: u32);

    /// An array of `len` values begins.
    fn array(&mut self, kind: Kind, len: u32);

    /// The bits of the next value, little-endian.
    fn value(&mut self, bits: &[u8]);
}

/// Records an array of binary32.
pub(crate) fn f32s(record: &mut impl Record, values: &[f32]) {
    record.array(Kind::F32, values.len() as u32);
    values.iter().for_each(|x| record.value(&x.to_bits().to_le_bytes()));
}

/// Records an array of binary64.
pub(crate) fn f64s(record: &mut impl Record, values: &[f64]) {
    record.array(Kind::F64, values.len() as u32);
    values.iter().for_each(|x| record.value(&x.to_bits().to_le_bytes()));
}

/// The digest and the number of values that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// SHA-256.
    pub bytes: [u8; 32],
    /// Number of output values.
    pub values: u32,
}

impl Digest {
    /// Returns whether this is the digest in the file `DIGEST`.
    pub fn is_published(&self) -> bool {
        is(crate::PUBLISHED.trim(), format_args!("{self}"))
    }
}

/// Returns whether `text` is what `value` prints.
fn is(text: &'static str, value: fmt::Arguments<'_>) -> bool {
    let mut rest = Rest(text);
    rest.write_fmt(value).is_ok() && rest.0.is_empty()
}

/// A SHA-256, printed in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub(crate) [u8; 32]);

impl Hash {
    /// Returns whether this is the hash that is printed as `text`.
    pub(crate) fn is(self, text: &'static str) -> bool {
        is(text, format_args!("{self}"))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The part of a text that is still to be written; writing anything else is an error.
struct Rest(&'static str);

impl fmt::Write for Rest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Prints `digest 0123… of 4567 values`.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "digest {} of {} values", Hash(self.bytes), self.values)
    }
}

/// Hashes the record: the tag; for each launch its name and case; for each array its kind (one byte), length
/// and bits. Integers are little-endian; a text is its length (u32) and its bytes.
pub struct Hasher {
    sha256: Sha256,
    values: u32,
}

impl Hasher {
    /// Creates a record that contains only the tag.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let mut hasher = Hasher { sha256: Sha256::new(), values: 0 };
        hasher.text(TAG);
        hasher
    }

    fn text(&mut self, text: &str) {
        self.sha256.update((text.len() as u32).to_le_bytes());
        self.sha256.update(text);
    }

    /// Returns the digest of what was recorded.
    pub fn finish(self) -> Digest {
        Digest { bytes: self.sha256.finalize().into(), values: self.values }
    }
}

impl Record for Hasher {
    fn begin(&mut self, name: &'static str, case: u32) {
        self.text(name);
        self.sha256.update(case.to_le_bytes());
    }

    fn array(&mut self, kind: Kind, len: u32) {
        self.sha256.update([kind as u8]);
        self.sha256.update(len.to_le_bytes());
    }

    fn value(&mut self, bits: &[u8]) {
        self.sha256.update(bits);
        self.values += 1;
    }
}
