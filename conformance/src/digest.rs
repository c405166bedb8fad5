//! The digest: SHA-256 over all output bits of a fixed corpus. One number that every backend must print.
//!
//! Hashed, in this order, integers little-endian: the tag; for each case its op and label; for each output its name,
//! its number of elements, its width in bytes and its bits. A string is its length (u32) and its bytes.

use crate::cases::{Case, corpus};
use crate::launch;
use crate::output::{Output, Values};
use lockstep::Device;
use sha2::{Digest, Sha256};

/// The corpus's own seed; part of the digest's definition.
const SEED: u64 = 0x10c5_7e90;
const TAG: &str = "lockstep digest 1";

/// The digest that is published, the one file that states it. `update_digest` (an example of this package) writes it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// The cases that the digest covers.
pub fn cases() -> Vec<Case> {
    corpus(SEED)
}

/// The digest in the making.
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn new() -> Self {
        let mut hasher = Hasher(Sha256::new());
        hasher.text(TAG);
        hasher
    }

    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u32).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn case(&mut self, case: &Case, outputs: &[Output]) {
        self.text(case.op());
        self.text(&case.label);
        for output in outputs {
            self.text(output.name);
            self.0.update((output.len() as u64).to_le_bytes());
            let width: u8 = if matches!(output.values, Values::F64(_)) { 8 } else { 4 };
            self.0.update([width]);
            self.0.update(output.bytes());
        }
    }

    pub(crate) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The digest of this device.
pub fn digest(device: &Device) -> Result<String, String> {
    digest_of(device, &cases())
}

/// The digest of some cases: whether those of an earlier corpus still have their bits.
pub fn digest_of(device: &Device, cases: &[Case]) -> Result<String, String> {
    let mut hasher = Hasher::new();
    for case in cases {
        hasher.case(case, &launch::run(device, case)?);
    }
    Ok(hasher.hex())
}
