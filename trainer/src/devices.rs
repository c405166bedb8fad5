//! `lockstep devices`: what this machine can compute on.

/// One line for each device, and one for each backend that has none, with the reason.
pub fn list() -> String {
    lockstep::devices().iter().map(|entry| format!("{entry}\n")).collect()
}
