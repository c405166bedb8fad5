//! The digest: SHA-256 over all output bits of a fixed corpus. One number that every backend must print.
//!
//! Hashed, in this order, integers little-endian: the tag; for each case its op and label; for each output its name,
//! its number of elements, its width in bytes and its bits. A string is its length (u32) and its bytes.

use crate::cases::{Case, corpus};
use crate::launch;
use crate::levels::{self, Absent};
use crate::output::{Output, Values, first_difference};
use lockstep::{Device, Level};
use sha2::{Digest, Sha256};
use std::fmt;

/// The corpus's own seed; part of the digest's definition.
const SEED: u64 = 0x10c5_7e90;
const TAG: &str = "lockstep digest 1";

/// The digest that is published, the one file that states it. `update_digest` (an example of this package) writes it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// The cases that the digest covers.
pub fn cases() -> Vec<Case> {
    corpus(SEED)
}

struct Hasher(Sha256);

impl Hasher {
    fn new() -> Self {
        let mut hasher = Hasher(Sha256::new());
        hasher.text(TAG);
        hasher
    }

    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u32).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    fn case(&mut self, case: &Case, outputs: &[Output]) {
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

    fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The digest of this device.
pub fn digest(device: &Device) -> Result<String, String> {
    let mut hasher = Hasher::new();
    for case in cases() {
        hasher.case(&case, &launch::run(device, &case)?);
    }
    Ok(hasher.hex())
}

/// One configuration of [`verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Ran; its digest.
    Digest(String),
    /// Ran, and a bit differs from the reference: op, case, output, index, both patterns.
    Differs(String),
    /// Not on this machine.
    Absent(Absent),
}

/// What every configuration said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Name and outcome of each configuration, the reference first.
    pub configurations: Vec<(String, Outcome)>,
    /// The reference's digest.
    pub digest: String,
    /// The digest in the file `DIGEST`.
    pub published: String,
    /// Names that `LOCKSTEP_REQUIRE` asks for and nobody has.
    pub unknown: Vec<String>,
    /// Number of cases and of output elements compared in each configuration.
    pub compared: (usize, usize),
}

/// Runs the corpus at every level, with 1 and 2 threads, against plain on one thread and against the published digest.
pub fn verify() -> VerifyReport {
    let cases = cases();
    let reference = levels::reference();
    let expected: Vec<Vec<Output>> = match cases.iter().map(|case| launch::run(&reference, case)).collect() {
        Ok(expected) => expected,
        Err(error) => panic!("the reference cannot fail: {error}"),
    };
    let mut hasher = Hasher::new();
    cases.iter().zip(&expected).for_each(|(case, outputs)| hasher.case(case, outputs));
    let digest = hasher.hex();

    let mut configurations = Vec::new();
    for level in Level::ALL {
        for threads in [1, 2] {
            let name = format!("{level}, {threads} thread{}", if threads == 1 { "" } else { "s" });
            let outcome = match levels::open(level, threads) {
                Ok(device) => compare(&device, &cases, &expected),
                Err(absent) => Outcome::Absent(absent),
            };
            configurations.push((name, outcome));
        }
    }
    let elements = expected.iter().flatten().map(Output::len).sum();
    VerifyReport {
        configurations,
        digest,
        published: PUBLISHED.trim().into(),
        unknown: levels::unknown(),
        compared: (cases.len(), elements),
    }
}

fn compare(device: &Device, cases: &[Case], expected: &[Vec<Output>]) -> Outcome {
    let mut hasher = Hasher::new();
    for (case, expected) in cases.iter().zip(expected) {
        let outputs = match launch::run(device, case) {
            Ok(outputs) => outputs,
            Err(error) => return Outcome::Differs(format!("{} [{}]: {error}", case.op(), case.label)),
        };
        if let Some((output, index, want, got)) = first_difference(expected, &outputs) {
            let at = format!("{} [{}] `{output}`[{index}]", case.op(), case.label);
            return Outcome::Differs(format!("{at}: {got:#x}, plain has {want:#x}"));
        }
        hasher.case(case, &outputs);
    }
    Outcome::Digest(hasher.hex())
}

impl VerifyReport {
    /// Whether every present configuration has the reference's bits, nothing required is absent, and the digest is the
    /// published one.
    pub fn passed(&self) -> bool {
        self.configurations_agree() && self.digest == self.published
    }

    /// The same without the published digest.
    pub fn configurations_agree(&self) -> bool {
        let good = |(_, outcome): &(String, Outcome)| match outcome {
            Outcome::Digest(digest) => *digest == self.digest,
            Outcome::Differs(_) => false,
            Outcome::Absent(absent) => !absent.required,
        };
        self.unknown.is_empty() && self.configurations.iter().all(good)
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.configurations {
            match outcome {
                Outcome::Digest(digest) if *digest == self.digest => {
                    writeln!(f, "same    {name:<18} {digest}")?
                }
                Outcome::Digest(digest) => writeln!(f, "DIFFERS {name:<18} {digest}")?,
                Outcome::Differs(what) => writeln!(f, "DIFFERS {name:<18} {what}")?,
                Outcome::Absent(Absent { reason, required: true }) => {
                    writeln!(f, "MISSING {name:<18} {reason}")?
                }
                Outcome::Absent(Absent { reason, .. }) => writeln!(f, "absent  {name:<18} {reason}")?,
            }
        }
        for name in &self.unknown {
            writeln!(f, "MISSING {name:<18} {} asks for it, but no level has that name", levels::REQUIRE)?;
        }
        let (cases, elements) = self.compared;
        writeln!(f, "digest  {} ({cases} cases, {elements} values)", self.digest)?;
        if self.digest != self.published {
            writeln!(f, "changed bits: see CHANGELOG section Bits; published is {}", self.published)?;
        }
        write!(f, "{}", if self.passed() { "pass" } else { "FAIL" })
    }
}
