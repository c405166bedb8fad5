//! `lockstep devices`: lists what this machine can compute on.

/// One line per device, and one per backend without a device, with the reason.
pub fn list() -> String {
    lockstep::devices().iter().map(|entry| format!("{entry}\n")).collect()
}
