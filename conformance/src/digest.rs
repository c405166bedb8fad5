//! The digest: SHA-256 over all output bits of a fixed corpus, a single value that every backend must
//! produce.
//!
//! Hashed in this order, with integers little-endian: the tag; for each case its op and label; for each
//! output its name, its number of elements, its width in bytes and its bits. A string is hashed as its length
//! (u32) and its bytes.
//!
//! The recipes' digest is a separate one over whole recipes: [`lockstep_recipe_bits`].

use crate::cases::{Case, corpus};
use crate::configurations::configurations;
use crate::output::Output;
use crate::{launch, levels};
use lockstep::{Backend, Device, recipe};

pub use lockstep_recipe_bits::{PUBLISHED as PUBLISHED_RECIPES, digest as recipes_digest};

/// The corpus's seed, part of the digest's definition.
const SEED: u64 = 0x10c5_7e90;
const TAG: &str = "lockstep digest 1";

/// The published digest. Its file is the only place that states it; `update_digest` (an example of this
/// package) writes it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// The cases that the digest covers.
pub fn cases() -> Vec<Case> {
    corpus(SEED)
}

/// A digest being computed.
pub(crate) struct Hasher(lockstep_recipe_bits::Hasher);

impl Hasher {
    pub(crate) fn new() -> Self {
        Hasher(lockstep_recipe_bits::Hasher::new(TAG))
    }

    pub(crate) fn case(&mut self, case: &Case, outputs: &[Output]) {
        self.0.text(case.op());
        self.0.text(&case.label);
        for output in outputs {
            self.0.text(output.name);
            self.0.bytes((output.len() as u64).to_le_bytes());
            self.0.bytes([output.width()]);
            self.0.bytes(output.bytes());
        }
    }

    pub(crate) fn hex(self) -> String {
        self.0.hex()
    }
}

/// Computes the digest of a device.
pub fn digest(device: &Device) -> Result<String, String> {
    digest_of(device, &cases())
}

/// Computes the digest of some cases, to check whether an earlier corpus's cases kept their bits.
pub fn digest_of(device: &Device, cases: &[Case]) -> Result<String, String> {
    let mut hasher = Hasher::new();
    for case in cases {
        hasher.case(case, &launch::run(device, case)?);
    }
    Ok(hasher.hex())
}

/// The recipes' digest of the reference and of every available configuration, or the error that prevented it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipesReport {
    /// The reference's.
    pub digest: String,
    /// Name and digest of each configuration.
    pub configurations: Vec<(String, Result<String, String>)>,
}

impl RecipesReport {
    /// Whether all configurations have the reference's digest.
    pub fn configurations_agree(&self) -> bool {
        self.configurations.iter().all(|(_, found)| found.as_ref() == Ok(&self.digest))
    }

    /// Whether there are any, and they also have the published one.
    pub fn passed(&self) -> bool {
        !self.configurations.is_empty()
            && self.configurations_agree()
            && self.digest == PUBLISHED_RECIPES.trim()
    }
}

/// Computes the recipes' digest on every configuration of these backends; [`verify`](crate::verify) reports
/// the unavailable ones.
pub fn recipes(backends: &[Backend]) -> RecipesReport {
    let digest = recipes_digest(&levels::reference()).unwrap_or_else(|error| error);
    let found = configurations(backends)
        .into_iter()
        .filter_map(|configuration| Some((configuration.name, recipes_digest(&configuration.device.ok()?))));
    RecipesReport { digest, configurations: found.collect() }
}

impl std::fmt::Display for RecipesReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (names, here) = (recipe::names().len(), self.configurations.len());
        writeln!(f, "recipes {} ({names} names, {here} configurations)", self.digest)?;
        for (name, found) in &self.configurations {
            let (Ok(what) | Err(what)) = found;
            if found.as_ref() != Ok(&self.digest) {
                writeln!(f, "DIFFERS {name:<18} {what}")?;
            }
        }
        let published = PUBLISHED_RECIPES.trim();
        if self.digest != published {
            writeln!(f, "changed bits of recipes: see CHANGELOG section Bits; published is {published}")?;
        }
        write!(f, "{}", if self.passed() { "pass" } else { "FAIL" })
    }
}
