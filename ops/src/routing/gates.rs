//! Divergences between sets of gates. docs/maths/routing.md compares only sets of experts; both statistics of
//! gates are our reading.

use super::RoutingTrace;
use super::mismatch::check_pair;
use crate::{Device, Error, ops};
use lockstep_core::Error as Argument;
use lockstep_core::num::{exp64, ln64};
use lockstep_core::require;
use lockstep_core::routing::{Router, RouterKind, Trace};

/// A KL divergence of gates, in nats, summed over routers (pairs of token and layer).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GateKl {
    /// Number of routers compared.
    pub routers: usize,
    /// Number of routers with a record in both traces that were excluded because their experts differ.
    pub left_out: usize,
    /// Sum of the divergence over the routers compared, in nats.
    pub sum: f64,
    /// Number of routers compared and sum of the divergence, per layer.
    pub layers: Vec<(usize, f64)>,
}

impl GateKl {
    fn of(layers: usize) -> GateKl {
        GateKl { layers: vec![(0, 0.0); layers], ..GateKl::default() }
    }

    fn add(&mut self, layer: usize, kl: f64) {
        self.routers += 1;
        self.sum += kl;
        self.layers[layer].0 += 1;
        self.layers[layer].1 += kl;
    }

    /// Mean over the routers compared, in nats; 0 if none were.
    pub fn mean(&self) -> f64 {
        mean(self.routers, self.sum)
    }

    /// Mean over the routers compared in each layer, in nats; 0 if none were.
    pub fn layer_means(&self) -> Vec<f64> {
        self.layers.iter().map(|(routers, sum)| mean(*routers, *sum)).collect()
    }
}

fn mean(routers: usize, sum: f64) -> f64 {
    if routers == 0 { 0.0 } else { sum / routers as f64 }
}

/// Smallest share of a gate inside a logarithm, 2⁻¹²⁶: a gate that underflowed would make the divergence
/// infinite.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// Computes KL(a ‖ b) = Σ_e a_e ln(a_e / b_e) of the gates that ran, in nats, each row divided by its sum,
/// over routers that ran the same experts. Our reading.
///
/// Where the experts differ, the divergence is infinite; such routers are counted in `left_out`
/// ([`super::mismatch()`] has more statistics of them). Routers without a record in one of the traces are
/// skipped without being counted. `a` and `b` are pairs of a trace and its gates, `[rows, K]` in the order of
/// the trace.
///
/// Errors: traces of different shapes; gates of the wrong length; a gate of a recorded row that is NaN,
/// infinite or negative, or a row whose gates are all 0 (argument, index).
pub fn gate_kl(a: (&Trace<'_>, &[f32]), b: (&Trace<'_>, &[f32])) -> Result<GateKl, Error> {
    check_pair(a.0, b.0)?;
    let (rows, k) = (a.0.rows(), a.0.top_k());
    for (argument, (_, gates)) in [("first gates", a), ("second gates", b)] {
        require::length(argument, rows * k, "rows of the trace times top_k", gates.len())?;
    }
    let mut found = GateKl::of(a.0.layers());
    for row in (0..rows).filter(|row| !a.0.is_absent(*row) && !b.0.is_absent(*row)) {
        let totals = [total("first gates", a.1, row, k)?, total("second gates", b.1, row, k)?];
        let (at_a, at_b) = (a.0.position(row), b.0.position(row));
        let (mut kl, mut same) = (0.0, true);
        for j in 0..k {
            let Some(i) = (0..k).find(|i| b.0.at(at_b + i) == a.0.at(at_a + j)) else {
                same = false;
                break;
            };
            let share = |gates: &[f32], entry: usize, total: f64| f64::from(gates[row * k + entry]) / total;
            let (p, q) = (share(a.1, j, totals[0]), share(b.1, i, totals[1]));
            if p > 0.0 {
                kl += p * ln64(p / q.max(SMALLEST));
            }
        }
        match same {
            // Rounding can make the sum of equal gates slightly negative.
            true => found.add(row % a.0.layers(), kl.max(0.0)),
            false => found.left_out += 1,
        }
    }
    Ok(found)
}

/// The sum of a row's gates.
fn total(argument: &'static str, gates: &[f32], row: usize, k: usize) -> Result<f64, Error> {
    let refuse = |index: usize, expected| {
        let got = f64::from(gates[index]);
        Error::from(Argument::Value { argument, index: Some(index), expected, got })
    };
    let mut sum = 0.0;
    for index in row * k..(row + 1) * k {
        if !(gates[index] >= 0.0 && gates[index].is_finite()) {
            return Err(refuse(index, "a finite gate of at least 0"));
        }
        sum += f64::from(gates[index]);
    }
    if sum == 0.0 { Err(refuse(row * k, "a row whose gates are not all 0")) } else { Ok(sum) }
}

/// Computes how far the gates that a trace imposes are from those of the live router, in nats: KL(g* ‖ p) −
/// KL(g ‖ p) = ln(Σ_{j in I} p_j / Σ_{j in I*} p_j). Our reading.
///
/// p is the live distribution over all experts (softmax of the scores, or the router's activations over their
/// sum), I the router's own choice, I* the record, and g and g* are p restricted to them and divided by their
/// sums. KL(g* ‖ g) itself is infinite as soon as one expert differs. This difference is what replay loses
/// relative to p: 0 where the sets are equal, and small where replay swaps experts that nearly tie. It is at
/// least 0 unless there is a bias, with which I need not have the largest p. A sum of p below 2⁻¹²⁶ counts as
/// 2⁻¹²⁶.
///
/// `scores` are `[rows, E]`, with the rows of the trace; rows without a record are skipped.
///
/// Errors: those of [`ops::gating_forward`]; a trace with a different number of rows or a different top_k; an
/// invalid trace.
///
/// ```
/// use lockstep_ops::{Device, core::routing::{Router, RouterKind}, routing::{RoutingTrace, replay_kl}};
/// let router = Router::new(RouterKind::SoftmaxChosen, 4, 2);
/// let record = RoutingTrace::from_ids(&[0, 2], 1, 4, 1, 2)?;
/// let found = replay_kl(&Device::cpu(), &router, &[1.0, 2.0, 0.5, -1.0], None, &record.view())?;
/// // ln((e¹ + e²) / (e¹ + e^0.5)).
/// assert!((found.mean() - 0.839184).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn replay_kl(
    device: &Device,
    router: &Router,
    scores: &[f32],
    bias: Option<&[f32]>,
    trace: &Trace<'_>,
) -> Result<GateKl, Error> {
    let chosen = ops::gating_forward(device, router, scores, bias, None)?.chosen;
    let rows = scores.len() / router.experts;
    require::length("trace", rows, "rows of scores", trace.rows())?;
    require::length("top_k of the trace", router.top_k, "that of the router", trace.top_k())?;
    trace.validate(trace.tokens(), router.experts)?;
    let chosen = chosen.view(1, router.top_k);
    let live = |row: usize, j: usize| chosen.at(row * router.top_k + j) as usize;
    let mut found = GateKl::of(trace.layers());
    for row in (0..rows).filter(|row| !trace.is_absent(*row)) {
        let scores = &scores[row * router.experts..(row + 1) * router.experts];
        let largest = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let weight = |expert: usize| {
            let s = f64::from(scores[expert]);
            match router.kind {
                RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll => exp64(s - largest),
                RouterKind::SigmoidNormalized | RouterKind::Sigmoid => 1.0 / (1.0 + exp64(-s)),
                RouterKind::SqrtSoftplus => {
                    let small = exp64(-s.abs());
                    (s.max(0.0) + if small < 1e-8 { small } else { ln64(1.0 + small) }).sqrt()
                }
            }
        };
        let all: f64 = (0..router.experts).map(weight).sum();
        let part = |weights: f64| (weights / all).max(SMALLEST);
        let own: f64 = (0..router.top_k).map(|j| weight(live(row, j))).sum();
        let position = trace.position(row);
        let replayed: f64 = (0..router.top_k).map(|j| weight(trace.at(position + j) as usize)).sum();
        let same = (0..router.top_k)
            .all(|j| (0..router.top_k).any(|i| trace.at(position + i) as usize == live(row, j)));
        // The sums of equal sets in different orders may differ in the last bit.
        found.add(row % trace.layers(), if same { 0.0 } else { ln64(part(own) / part(replayed)) });
    }
    Ok(found)
}

impl RoutingTrace {
    /// Records the live router's choice for every row of `scores` `[tokens, layers, E]`: the experts that
    /// would run without replay.
    ///
    /// Errors: those of [`ops::gating_forward`]; scores that are not whole tokens.
    pub fn live(
        device: &Device,
        router: &Router,
        layers: usize,
        scores: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<RoutingTrace, Error> {
        let mut trace = RoutingTrace::new(router.experts, layers, router.top_k)?;
        trace.append_chosen(&ops::gating_forward(device, router, scores, bias, None)?.chosen)?;
        Ok(trace)
    }
}
