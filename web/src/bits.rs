//! The published digests, computed here.

use crate::Error;
use lockstep::{Device, recipe};
use lockstep_cpu::plain::Plain;
use lockstep_embedded::{PUBLISHED, digest};
use lockstep_recipe_bits as recipe_bits;
use serde::Serialize;

/// A digest, and the published one, if one is published.
#[derive(Debug, Serialize)]
pub(crate) struct Digest {
    digest: String,
    published: Option<&'static str>,
}

/// The corpus of `embedded`, on the plain reference.
pub(crate) fn corpus() -> Result<Digest, Error> {
    Ok(Digest { digest: digest(&Plain)?.to_string(), published: Some(PUBLISHED.trim()) })
}

/// Both calls of recipes on conformance's batches; of all recipes if `names` is absent.
pub(crate) fn recipes(device: &Device, names: Option<&[String]>) -> Result<Digest, Error> {
    let all = names.is_none();
    let names = names.map_or(recipe::names().to_vec(), |names| names.iter().map(String::as_str).collect());
    let digest = recipe_bits::digest_of(device, &names)?;
    Ok(Digest { digest, published: all.then_some(recipe_bits::PUBLISHED.trim()) })
}
