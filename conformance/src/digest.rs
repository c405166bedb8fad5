//! The digest: SHA-256 over all output bits of a fixed corpus, a single value that every backend must
//! produce.
//!
//! Hashed in this order, with integers little-endian: the tag; for each case its op and label; for each
//! output its name, its number of elements, its width in bytes and its bits. A string is hashed as its length
//! (u32) and its bytes.
//!
//! The recipes' digest is a separate one over whole recipes: the tag; for each recipe and each of its
//! [batches](crate::whole::batches), both names; then the results of [`Recipe::advantages`] and
//! [`Recipe::loss`]. Each array is hashed as its name, its number of elements and its bits; counts and
//! metrics as the text that Rust prints, which distinguishes any two numbers.

use crate::cases::{Case, corpus};
use crate::configurations::configurations;
use crate::output::{Output, Values};
use crate::whole::batches::batches;
use crate::{launch, levels};
use lockstep::{Backend, Credit, Device, Loss, Recipe, recipe};
use sha2::{Digest, Sha256};

/// The corpus's seed, part of the digest's definition.
const SEED: u64 = 0x10c5_7e90;
const TAG: &str = "lockstep digest 1";
const RECIPES_TAG: &str = "lockstep recipes digest 1";

/// The published digest. Its file is the only place that states it; `update_digest` (an example of this
/// package) writes it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// The published digest of the recipes; see [`PUBLISHED`].
pub const PUBLISHED_RECIPES: &str = include_str!("../RECIPES_DIGEST");

/// The cases that the digest covers.
pub fn cases() -> Vec<Case> {
    corpus(SEED)
}

/// A digest being computed.
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

/// An array's elements, little-endian.
macro_rules! bits {
    ($hasher:expr, $($name:literal: $values:expr;)*) => {
        $($hasher.array($name, $values.len(), $values.iter().flat_map(|x| x.to_le_bytes()));)*
    };
}

impl Hasher {
    fn array(&mut self, name: &str, length: usize, bytes: impl Iterator<Item = u8>) {
        self.text(name);
        self.0.update((length as u64).to_le_bytes());
        self.0.update(bytes.collect::<Vec<u8>>());
    }

    fn credit(&mut self, credit: &Credit) {
        let (mask, weights) = (credit.loss_mask.as_deref(), credit.weights.as_deref());
        bits! { self,
            "advantage": credit.advantage;
            "returns": credit.returns;
            "mask": mask.unwrap_or_default();
            "keep": credit.keep;
            "weights": weights.unwrap_or_default();
            "mean": credit.groups.mean;
            "std": credit.groups.std;
            "role_values": credit.state.role_values;
        }
        self.text(&format!("{:?}", credit.correction));
    }

    fn loss(&mut self, loss: &Loss) {
        bits! { self,
            "coef": loss.coef;
            "token_loss": loss.token_loss;
            "row_loss": loss.row_loss;
            "loss": [loss.loss.unwrap_or(f64::NAN)];
        }
        self.text(&format!("{:?} {:?}", loss.counts, loss.metrics));
        if let Some(term) = &loss.entropy {
            bits! { self, "entropy": [term.loss, term.entropy]; "entropy coef": term.coef; }
        }
        if let Some(value) = &loss.value {
            bits! { self,
                "value": [value.loss, value.clip_fraction];
                "value gradient": value.gradient;
                "value row_loss": value.row_loss;
            }
        }
    }
}

/// Computes the recipes' digest of a device: every named recipe on its batches.
pub fn recipes_digest(device: &Device) -> Result<String, String> {
    let mut hasher = Hasher(Sha256::new());
    hasher.text(RECIPES_TAG);
    for name in recipe::names() {
        let fault = |error: lockstep::Error| format!("{name}: {error}");
        let recipe = Recipe::named(name).map_err(fault)?;
        for (label, rollouts) in batches(&recipe).map_err(fault)? {
            let (credit, loss) = recipe.step(device, &rollouts.view()).map_err(fault)?;
            hasher.text(name);
            hasher.text(label);
            hasher.credit(&credit);
            hasher.loss(&loss);
        }
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

    /// Whether they also have the published one.
    pub fn passed(&self) -> bool {
        self.configurations_agree() && self.digest == PUBLISHED_RECIPES.trim()
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
        for (name, found) in
            self.configurations.iter().filter(|(_, found)| found.as_ref() != Ok(&self.digest))
        {
            let (Ok(what) | Err(what)) = found;
            writeln!(f, "DIFFERS {name:<18} {what}")?;
        }
        let published = PUBLISHED_RECIPES.trim();
        if self.digest != published {
            writeln!(f, "changed bits of recipes: see CHANGELOG section Bits; published is {published}")?;
        }
        write!(f, "{}", if self.passed() { "pass" } else { "FAIL" })
    }
}
