//! r·kl, maths.md §1.3.

use super::kl::Kl;
use super::token::Guard;

/// Value and d/dlogp of one token: x = logp − logp_ref, d = logp − logp_old.
pub fn token(kl: &Kl, guard: Guard, through: bool, x: f64, d: f64) -> (f64, f64) {
    let r = guard.value(d).exp();
    let moved = if through { kl.value(x) * guard.derivative(d) } else { 0.0 };
    (r * kl.value(x), r * (kl.gradient(x) + moved))
}
