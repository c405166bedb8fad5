//! PTX.
use crate::{Fault, ir::Fused};
use anyhow::Result;
use std::collections::BTreeMap;
/// Module.
pub struct Module(Vec<String>);
impl Module {
    /// Names.
    pub fn names(&self) -> Vec<String> {
        self.0.clone()
    }
    /// Fused.
    pub fn fused(&self) -> BTreeMap<String, Fused> {
        BTreeMap::new()
    }
}
/// Parse.
pub fn parse(text: &str) -> Result<Module> {
    Ok(Module(
        text.lines()
            .filter_map(|l| l.split_once(".entry "))
            .map(|(_, n)| n.trim_end_matches('(').to_owned())
            .collect(),
    ))
}
/// Check.
pub fn check(_: &Module) -> Vec<Fault> {
    Vec::new()
}
