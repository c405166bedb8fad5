//! `cargo xtask mutants`
pub mod points;
pub mod rewrite;
pub mod tree;

use anyhow::Result;
use std::path::Path;
/// x
pub fn run(root: &Path) -> Result<()> {
    let folder = crate::workspace(root)?.target_directory.into_std_path_buf().join("mutants");
    let start = std::time::Instant::now();
    let built = tree::build(root, &folder)?;
    println!("{} mutants, {} do not compile, {:?}; built in {:?}", built.mutants.len(), built.dropped, built.programs, start.elapsed());
    Ok(())
}
