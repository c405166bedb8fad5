//! One digest of whole recipes, for every machine that runs them: the tag; for each recipe and each of its
//! [batches](batches::batches), both names; then the results of [`Recipe::advantages`] and [`Recipe::loss`].
//! Each array is hashed as its name, its number of elements and its bits; counts and metrics as the text that
//! Rust prints, which distinguishes any two numbers.
#![forbid(unsafe_code)]

pub mod batches;

use batches::batches;
use lockstep::{Credit, Device, Loss, Recipe, recipe};
use sha2::{Digest, Sha256};

const TAG: &str = "lockstep recipes digest 1";

/// The published digest of all recipes. Its file is the only place that states it; `update_digest` (an
/// example of `conformance`) writes it.
pub const PUBLISHED: &str = include_str!("../../RECIPES_DIGEST");

/// Computes the digest of a device: every named recipe on its batches.
pub fn digest(device: &Device) -> Result<String, String> {
    digest_of(device, recipe::names())
}

/// Computes the same of some recipes. Errors: an unknown name; a recipe that a batch does not suit.
pub fn digest_of(device: &Device, names: &[&str]) -> Result<String, String> {
    let mut hasher = Hasher::new(TAG);
    for name in names {
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

/// A digest being computed. Integers are little-endian; a string is hashed as its length (u32) and its bytes.
pub struct Hasher(Sha256);

/// An array's elements, little-endian.
macro_rules! bits {
    ($hasher:expr, $($name:literal: $values:expr;)*) => {
        $($hasher.array($name, $values.len(), $values.iter().flat_map(|x| x.to_le_bytes()));)*
    };
}

impl Hasher {
    /// Begins with a tag.
    pub fn new(tag: &str) -> Self {
        let mut hasher = Hasher(Sha256::new());
        hasher.text(tag);
        hasher
    }

    /// Hashes a string.
    pub fn text(&mut self, text: &str) {
        self.0.update((text.len() as u32).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    /// Hashes bytes as they are.
    pub fn bytes(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// The digest.
    pub fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

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
