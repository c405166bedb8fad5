//! r·kl, docs/maths/kl.md.

use super::kl::Kl;
use super::token::Guard;

/// The value of one token and its derivative by logp, where x = logp − logp_ref and d = logp − logp_old.
/// `clamp_out` bounds r·k.
pub fn token(kl: &Kl, guard: Guard, through: bool, x: f64, d: f64) -> (f64, f64) {
    let (r, k) = (guard.value(d).exp(), kl.free(x));
    let own = Kl { clamp_out: f64::INFINITY, ..*kl }.gradient(x);
    let moved = if through { k * guard.derivative(d) } else { 0.0 };
    let beyond = ((r * k).abs() > kl.clamp_out || x.abs() > kl.clamp_in) && !kl.straight_through;
    ((r * k).clamp(-kl.clamp_out, kl.clamp_out), if beyond { 0.0 } else { r * (own + moved) })
}
