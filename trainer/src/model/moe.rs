//! The mixture of experts: a softmax router sends each token to its `top_k` experts and mixes their outputs
//! with the renormalised router probabilities, through which the gradient reaches the router. With `top_k` 1
//! it takes the probability itself, as Switch does: renormalised it is 1 and has no gradient.
//!
//! The router is candle's own or, for routing replay, Lockstep's, whose gates are the same up to rounding.

use anyhow::Result;
use candle_core::{D, Tensor};

use super::indices;
use super::norm::RmsNorm;
use super::precision::Precision;
use super::routes::{Gate, Routes};
use super::softmax::softmax;

pub(super) struct Moe {
    top_k: usize,
    norm: RmsNorm,
    router: Tensor,
    up: Tensor,
    down: Tensor,
}

/// Which token occupies which slot of which expert. Every expert has the same number of slots, so that all
/// experts run as one batched product and no token is ever dropped; an unused slot computes on token 0 and is
/// never read.
struct Dispatch {
    /// Slots per expert.
    slots: usize,
    /// The token of each slot, `[experts * slots]`.
    token: Vec<u32>,
    /// The slot of each token for each of its ranks, `[top_k][tokens]`.
    slot: Vec<Vec<u32>>,
}

/// The `top_k` most probable experts of each token, `[tokens * top_k]`.
fn best(probs: &[Vec<f32>], top_k: usize) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(probs.len() * top_k);
    for probs in probs {
        let mut order: Vec<u32> = (0..probs.len() as u32).collect();
        // The sort is stable: ties go to the lowest index.
        order.sort_by(|&a, &b| probs[b as usize].total_cmp(&probs[a as usize]));
        chosen.extend(&order[..top_k]);
    }
    chosen
}

impl Dispatch {
    /// Assigns tokens to slots of the experts `chosen`, `[tokens * top_k]`.
    fn new(chosen: &[u32], experts: usize, top_k: usize) -> Self {
        let mut queues = vec![Vec::new(); experts];
        let mut place = vec![Vec::with_capacity(chosen.len() / top_k); top_k];
        for (token, chosen) in chosen.chunks_exact(top_k).enumerate() {
            for (rank, &e) in chosen.iter().enumerate() {
                place[rank].push(queues[e as usize].len());
                queues[e as usize].push(token as u32);
            }
        }
        let slots = queues.iter().map(Vec::len).max().unwrap_or(0);
        let slot = |rank: usize| {
            let chosen = chosen.chunks_exact(top_k).map(move |chosen| chosen[rank]);
            chosen.zip(&place[rank]).map(|(e, &p)| e * slots as u32 + p as u32)
        };
        let slot = (0..top_k).map(|rank| slot(rank).collect()).collect();
        let token = queues.into_iter().flat_map(|mut q| {
            q.resize(slots, 0);
            q
        });
        Self { slots, token: token.collect(), slot }
    }
}

impl Moe {
    pub(super) fn new(top_k: usize, norm: RmsNorm, router: Tensor, up: Tensor, down: Tensor) -> Self {
        Self { top_k, norm, router, up, down }
    }

    /// Returns x + experts(norm(x)), with the gates of `gate` if given, otherwise with candle's.
    pub(super) fn add_to(
        &self,
        x: &Tensor,
        gate: Option<&Gate>,
        layer: usize,
        routes: Option<&mut Routes>,
        precision: Precision,
    ) -> Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        let experts = self.up.dim(0)?;
        let y = self.norm.forward(x)?;
        let scores = y.matmul(&self.router)?;
        let (chosen, gates) = match gate {
            Some(gate) => gate.apply(&scores, layer, routes)?,
            None => self.own_gates(&scores, tokens)?,
        };
        let dispatch = Dispatch::new(&chosen, experts, self.top_k);

        let y = precision.input(&y)?;
        let inputs =
            y.index_select(&indices(&dispatch.token)?, 0)?.reshape((experts, dispatch.slots, width))?;
        let outputs = precision.input(&inputs.matmul(&self.up)?.relu()?)?.matmul(&self.down)?;
        let outputs = outputs.reshape((experts * dispatch.slots, width))?;

        let mut sum = x.clone();
        for (rank, slot) in dispatch.slot.iter().enumerate() {
            let part = outputs.index_select(&indices(slot)?, 0)?;
            sum = (sum + part.broadcast_mul(&gates.narrow(1, rank, 1)?)?)?;
        }
        Ok(sum)
    }

    fn own_gates(&self, scores: &Tensor, tokens: usize) -> Result<(Vec<u32>, Tensor)> {
        let probs = softmax(scores, 1.0, false)?;
        let chosen = best(&probs.to_vec2()?, self.top_k);
        let gates = probs.gather(&indices(&chosen)?.reshape((tokens, self.top_k))?, D::Minus1)?;
        if self.top_k == 1 {
            return Ok((chosen, gates));
        }
        let gates = gates.broadcast_div(&gates.sum_keepdim(D::Minus1)?)?;
        Ok((chosen, gates))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    /// With the model's own router and with Lockstep's, which agree.
    #[test]
    fn a_router_of_one_expert_learns() {
        let scores = Var::from_slice(&[0.0_f32, 1.0, -1.0, 2.0, 0.0, 0.5], (2, 3), &Device::Cpu).unwrap();
        let any = || scores.as_tensor().clone();
        let moe = Moe::new(1, RmsNorm::new(any()), any(), any(), any());
        let gate = Gate::new(3, 1).unwrap();
        let [own, gated] = [moe.own_gates(&scores, 2), gate.apply(&scores, 0, None)].map(|found| {
            let (chosen, gates) = found.unwrap();
            assert_eq!(chosen, [1, 0]);
            let gradient = gates.sum_all().unwrap().backward().unwrap().get(&scores).unwrap().clone();
            [gates, gradient].map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap()).concat()
        });
        assert!(own.iter().zip(&gated).all(|(a, b)| (a - b).abs() < 1e-6), "{own:?} {gated:?}");
        assert!(own[2..].iter().all(|g| g.abs() > 0.01), "{own:?}");
    }

    #[test]
    fn tokens_go_to_their_best_experts_and_ties_to_the_lowest() {
        let probs = [vec![0.1, 0.6, 0.3], vec![0.4, 0.2, 0.4], vec![0.2, 0.2, 0.6]];
        let chosen = best(&probs, 2);
        assert_eq!(chosen, [1, 2, 0, 2, 2, 0]);
        let d = Dispatch::new(&chosen, 3, 2);
        assert_eq!(d.slots, 3);
        assert_eq!(d.token, [1, 2, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(d.slot, [[3, 0, 8], [6, 7, 1]]);
    }
}
