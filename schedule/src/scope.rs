//! SCOPE-style salvage of wrong rollouts (our reading): keeps the steps before the first error and has the
//! rest rewritten.
//!
//! **Formula** (abstract only; docs/maths/schedules.md), with step scores s_1 … s_n of a process reward
//! model: the first error is the first s < θ (0.5); the rollout is salvaged if the share of steps before it
//! is at least φ (0.3). The corrected suffix is off-policy: weight it by a truncated ratio, or mask it;
//! prefix tokens keep their sampling log-probabilities.
//!
//! **Special cases**: if no step is below θ there is nothing to salvage: verifier and model disagree. A NaN
//! score is an error.

use lockstep_core::Error;
use lockstep_core::require;

/// The decision about a wrong rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salvage {
    /// No step is below θ.
    NoErrorFound,
    /// The first error is this step (from 0), too early to keep the steps before it.
    TooEarly(u32),
    /// Keep this many steps and continue from there.
    Keep(u32),
}

/// Decides about one rollout from its step scores. Errors: no step; a NaN score (with its index); a NaN θ; φ
/// outside 0..=1.
pub fn salvage(scores: &[f64], threshold: f64, least_share: f64) -> Result<Salvage, Error> {
    require::some("scores", "one per step", scores.len())?;
    require::each("scores", scores, "a number", |s| !s.is_nan())?;
    require::scalar("threshold", !threshold.is_nan(), "a number", threshold)?;
    require::unit("least_share", least_share)?;
    let Some(first) = scores.iter().position(|s| *s < threshold) else {
        return Ok(Salvage::NoErrorFound);
    };
    let enough = first as f64 / scores.len() as f64 >= least_share;
    Ok(if enough { Salvage::Keep(first as u32) } else { Salvage::TooEarly(first as u32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_decides() {
        let s = |scores: &[f64]| salvage(scores, 0.5, 0.3).unwrap();
        assert_eq!(s(&[0.9, 0.8, 0.5, 0.4, 0.9, 0.1]), Salvage::Keep(3));
        assert_eq!(s(&[0.9, 0.2, 0.9, 0.9]), Salvage::TooEarly(1));
        assert_eq!(
            s(&[0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
            Salvage::Keep(3),
            "exactly the share"
        );
        assert_eq!(s(&[0.5, 0.5]), Salvage::NoErrorFound);
        assert_eq!(salvage(&[0.1], 0.5, 0.0), Ok(Salvage::Keep(0)));
        let e = salvage(&[0.1, f64::NAN], 0.5, 0.3).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "scores", index: Some(1), .. }));
    }
}
