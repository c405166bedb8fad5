//! What the site computes: a request in JSON, and an answer in JSON, by the code that trains.
//!
//! The page and its tests ask the same questions: [`answer`] runs in the browser as WebAssembly, and natively
//! in the tests, which compare the bits.
#![deny(unsafe_code)]

mod bits;
mod curve;
mod drift;
mod edit;
mod file;
mod group;
#[cfg(target_family = "wasm")]
mod module;
mod prefixes;
mod router;
#[cfg(feature = "site")]
pub mod site;
pub mod snippet;

use lockstep::Device;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why there is no answer: the library's own message.
type Error = Box<dyn std::error::Error>;

/// What a page asks.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// The numbers that a recipe's sliders set, and the texts to copy.
    Settings(edit::Edited),
    /// Loss and gradient over the ratio.
    Curve(edit::Edited),
    /// Advantages of two groups of four.
    Group(group::Request),
    /// Effective sample size, clips and corrections as policies move apart.
    Drift(edit::Edited),
    /// A prefix tree with its values.
    Tree(prefixes::Request),
    /// A small router, its experts free and replayed.
    Router(router::Request),
    /// A file of rollouts.
    File(edit::Edited),
    /// The digest of the corpus, whose launches are attached.
    Digest {},
    /// The digest of both calls of some recipes, or of all.
    Recipes { names: Option<Vec<String>> },
}

/// Answers a request: `{"ok": …}`, or `{"error": "…"}` with the library's message. `attached` is the file
/// that the request is about, if it is about one.
///
/// ```
/// let answer = lockstep_web::answer(br#"{"ask": "settings", "recipe": "grop"}"#, &[]);
/// assert!(answer.contains("similar names: grpo"), "{answer}");
/// ```
pub fn answer(request: &[u8], attached: &[u8]) -> String {
    let answer = match respond(request, attached) {
        Ok(value) => serde_json::json!({ "ok": value }),
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    answer.to_string()
}

fn respond(request: &[u8], attached: &[u8]) -> Result<Value, Error> {
    let device = Device::cpu();
    Ok(match serde_json::from_slice(request)? {
        Request::Settings(edited) => value(edited.settings()?)?,
        Request::Curve(edited) => value(curve::curve(&device, &edited.recipe()?)?)?,
        Request::Group(request) => value(group::group(&device, &request)?)?,
        Request::Drift(edited) => value(drift::drift(&device, &edited.recipe()?)?)?,
        Request::Tree(request) => value(prefixes::tree(&device, &request)?)?,
        Request::Router(request) => value(router::router(&device, &request)?)?,
        Request::File(edited) => value(file::file(&device, &edited.recipe()?, attached)?)?,
        Request::Digest {} => value(bits::corpus(attached)?)?,
        Request::Recipes { names } => value(bits::recipes(&device, names.as_deref())?)?,
    })
}

fn value(answer: impl Serialize) -> Result<Value, Error> {
    Ok(serde_json::to_value(answer)?)
}
