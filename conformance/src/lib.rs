//! What proves Lockstep: an `f64` oracle, cases, golden files of a peer, a suite generic over the backend, the digest.
#![forbid(unsafe_code)]

pub mod golden;
pub mod oracle;
pub mod precision;
