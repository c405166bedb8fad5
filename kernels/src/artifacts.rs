//! The built artifacts, embedded in the crate.

/// PTX text for sm_80, which the driver compiles for all later architectures.
pub const PTX: &str = include_str!("../artifacts/lockstep.ptx");

/// HSA code object for gfx942.
pub const GFX942: &[u8] = include_bytes!("../artifacts/lockstep.gfx942.co");
