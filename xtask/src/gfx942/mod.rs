//! Listing.
use crate::{Fault, ir::Fused};
use anyhow::Result;
use std::collections::BTreeMap;
/// Function.
pub struct Function {
    /// Name.
    pub name: String,
}
/// Parse.
pub fn parse(text: &str) -> Result<Vec<Function>> {
    Ok(text
        .lines()
        .filter(|l| l.starts_with('<') && !l.starts_with("<L"))
        .map(|l| Function { name: l.trim_matches(['<', '>', ':']).to_owned() })
        .collect())
}
/// Check.
pub fn check(_: &[Function]) -> Vec<Fault> {
    Vec::new()
}
/// Fused.
pub fn fused(_: &[Function]) -> BTreeMap<String, Fused> {
    BTreeMap::new()
}
