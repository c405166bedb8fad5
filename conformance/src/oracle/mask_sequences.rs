//! A loss mask without the dropped sequences.

/// The mask of one token.
pub fn token(live: bool, kept: bool) -> f64 {
    f64::from(u8::from(live && kept))
}
