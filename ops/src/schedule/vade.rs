//! VADE-style selection (our reading).

use crate::Error;
use lockstep_schedule::order;
pub use lockstep_schedule::vade::{Posterior, Utility, Vade};

/// The prompts to sample next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VadeSelection {
    /// Indices of the prompts, best first.
    pub prompts: Vec<u32>,
    /// The utility of each prompt's draw, `[P]`.
    pub scores: Vec<f64>,
}

/// Selects the `batch` prompts whose Thompson draws have the highest utility, or all prompts if there are
/// fewer; formula: [`lockstep_schedule::vade`]. [`Vade::update`] then adds the outcomes to the
/// posteriors.
///
/// Errors: parameters out of their domain; a posterior outside 1..=1e12 (index).
///
/// ```
/// use lockstep_ops::schedule::{Posterior, Vade, vade_select};
/// let vade = Vade::default();
/// let mut posteriors = vec![Posterior::default(); 100];
/// let chosen = vade_select(&vade, &posteriors, 8, 1234, 0)?.prompts;
/// assert_eq!(chosen.len(), 8);
/// vade.update(&mut posteriors, &chosen, &[3; 8], &[8; 8])?; // 3 of 8 right
/// assert_eq!(posteriors[chosen[0] as usize], Posterior { a: 4.0, b: 6.0 });
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn vade_select(
    vade: &Vade,
    posteriors: &[Posterior],
    batch: usize,
    seed: u64,
    step: u32,
) -> Result<VadeSelection, Error> {
    vade.check()?;
    let mut scores = vec![0.0; posteriors.len()];
    vade.scores(posteriors, seed, step, &mut scores)?;
    let mut prompts = vec![0; posteriors.len()];
    order::by_key(&scores, &mut prompts)?;
    prompts.truncate(batch);
    Ok(VadeSelection { prompts, scores })
}
