//! The published digests, computed here.

use crate::Error;
use lockstep::{Device, recipe};
use lockstep_cpu::plain::Plain;
use lockstep_embedded::launches::Launches;
use lockstep_embedded::{PUBLISHED, digest};
use lockstep_recipe_bits as recipe_bits;
use serde::Serialize;

/// A digest, and the published one, if one is published.
#[derive(Debug, Serialize)]
pub(crate) struct Digest {
    digest: String,
    published: Option<&'static str>,
}

/// The corpus of `embedded`, on the plain reference; `launches` are its words, little-endian.
pub(crate) fn corpus(launches: &[u8]) -> Result<Digest, Error> {
    let (words, rest) = launches.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Some(launches) = Launches::published(&words).filter(|_| rest.is_empty()) else {
        return Err(format!("{} bytes that are not the published launches", launches.len()).into());
    };
    Ok(Digest { digest: digest(&Plain, launches).to_string(), published: Some(PUBLISHED.trim()) })
}

/// Both calls of recipes on conformance's batches; of all recipes if `names` is absent.
pub(crate) fn recipes(device: &Device, names: Option<&[String]>) -> Result<Digest, Error> {
    let all = names.is_none();
    let names = names.map_or(recipe::names().to_vec(), |names| names.iter().map(String::as_str).collect());
    let digest = recipe_bits::digest_of(device, &names)?;
    Ok(Digest { digest, published: all.then_some(recipe_bits::PUBLISHED.trim()) })
}
