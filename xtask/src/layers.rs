//! Layers.
/// Run.
pub fn run(_: &std::path::Path) -> anyhow::Result<()> {
    Ok(())
}
