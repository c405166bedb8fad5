//! Differences between two routings (docs/maths/routing.md).

use crate::Error;
use lockstep_core::require;
use lockstep_core::routing::Trace;

/// Differences between two traces. Rows without a record in one of the traces are excluded.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Number of routers (pairs of token and layer) compared.
    pub routers: usize,
    /// Number of routers whose sets of experts differ.
    pub differing: usize,
    /// Number of tokens with at least one router compared.
    pub tokens: usize,
    /// Number of tokens with at least one router that differs.
    pub tokens_differing: usize,
    /// Number of experts in both sets, over all routers.
    pub shared: usize,
    /// Number of experts per router, K.
    pub top_k: usize,
    /// Numbers of routers compared and of routers that differ, per layer.
    pub layers: Vec<(usize, usize)>,
}

impl Mismatch {
    /// Fraction of routers that differ; 0 if none were compared.
    pub fn router_fraction(&self) -> f64 {
        ratio(self.differing, self.routers)
    }

    /// Fraction of tokens with at least one router that differs; 0 if none were compared.
    pub fn token_fraction(&self) -> f64 {
        ratio(self.tokens_differing, self.tokens)
    }

    /// Mean number of layers that differ per token; 0 if none were compared.
    pub fn layers_per_token(&self) -> f64 {
        ratio(self.differing, self.tokens)
    }

    /// Mean of |A ∩ B| / K over routers; 1 if none were compared.
    pub fn overlap(&self) -> f64 {
        if self.routers == 0 { 1.0 } else { ratio(self.shared, self.routers * self.top_k) }
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Errors unless two traces have the same shape and every record has distinct experts.
pub(super) fn check_pair(a: &Trace<'_>, b: &Trace<'_>) -> Result<(), Error> {
    let shapes = [
        ("tokens of the second trace", a.tokens(), b.tokens()),
        ("layers of the second trace", a.layers(), b.layers()),
        ("top_k of the second trace", a.top_k(), b.top_k()),
    ];
    for (argument, expected, got) in shapes {
        require::length(argument, expected, "as in the first trace", got)?;
    }
    for trace in [a, b] {
        // A trace does not say how many experts the router has, so allow as many as its entries can name.
        trace.validate(trace.tokens(), trace.missing() as usize + usize::from(trace.top_k() > 1))?;
    }
    Ok(())
}

/// Compares two traces of the same tokens as sets: the order of the experts does not matter.
///
/// ```
/// use lockstep_ops::routing::{RoutingTrace, mismatch};
/// let a = RoutingTrace::from_ids(&[0, 1, 2, 3], 1, 4, 2, 2)?;
/// let b = RoutingTrace::from_ids(&[1, 0, 2, 1], 1, 4, 2, 2)?;
/// let found = mismatch(&a.view(), &b.view())?;
/// assert_eq!((found.router_fraction(), found.token_fraction(), found.overlap()), (0.5, 1.0, 0.75));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
///
/// Errors: tokens, layers or top_k that differ (which one, and both numbers); a record that repeats an expert
/// (token, layer and entry).
pub fn mismatch(a: &Trace<'_>, b: &Trace<'_>) -> Result<Mismatch, Error> {
    check_pair(a, b)?;
    let top_k = a.top_k();
    let mut found = Mismatch { top_k, layers: vec![(0, 0); a.layers()], ..Mismatch::default() };
    for token in 0..a.tokens() {
        let (before, differing) = (found.routers, found.differing);
        for layer in 0..a.layers() {
            let row = token * a.layers() + layer;
            if a.is_absent(row) || b.is_absent(row) {
                continue;
            }
            let (first_a, first_b) = (a.position(row), b.position(row));
            let in_b = |expert: u32| (0..top_k).any(|j| b.at(first_b + j) == expert);
            let shared = (0..top_k).filter(|j| in_b(a.at(first_a + j))).count();
            found.routers += 1;
            found.shared += shared;
            found.layers[layer].0 += 1;
            if shared < top_k {
                found.differing += 1;
                found.layers[layer].1 += 1;
            }
        }
        found.tokens += usize::from(found.routers > before);
        found.tokens_differing += usize::from(found.differing > differing);
    }
    Ok(found)
}
