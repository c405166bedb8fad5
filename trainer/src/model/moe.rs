//! The mixture of experts: a softmax router sends each token to its `top_k` experts, whose outputs are mixed by the
//! router's renormalised probabilities. The gradient reaches the router through these probabilities.

use anyhow::Result;
use candle_core::{D, Tensor};

use super::indices;
use super::norm::RmsNorm;
use super::softmax::softmax;

pub(super) struct Moe {
    top_k: usize,
    norm: RmsNorm,
    router: Tensor,
    up: Tensor,
    down: Tensor,
}

/// Which token sits in which slot of which expert. Every expert has the same number of slots, so that all experts run as
/// one batched product and no token is ever dropped; a slot without a token computes on token 0 and is never read.
struct Dispatch {
    /// Slots of each expert.
    slots: usize,
    /// The token of each slot, `[experts * slots]`.
    token: Vec<u32>,
    /// The chosen expert of each token by rank, `[top_k][tokens]`.
    expert: Vec<Vec<u32>>,
    /// The slot of each token by rank, `[top_k][tokens]`.
    slot: Vec<Vec<u32>>,
}

impl Dispatch {
    fn new(probs: &[Vec<f32>], experts: usize, top_k: usize) -> Self {
        let mut queues = vec![Vec::new(); experts];
        let mut expert = vec![Vec::with_capacity(probs.len()); top_k];
        let mut place = vec![Vec::with_capacity(probs.len()); top_k];
        for (token, probs) in probs.iter().enumerate() {
            let mut order: Vec<usize> = (0..experts).collect();
            // A stable sort: ties go to the lowest index.
            order.sort_by(|&a, &b| probs[b].total_cmp(&probs[a]));
            for rank in 0..top_k {
                let e = order[rank];
                expert[rank].push(e as u32);
                place[rank].push(queues[e].len());
                queues[e].push(token as u32);
            }
        }
        let slots = queues.iter().map(Vec::len).max().unwrap_or(0);
        let slot =
            |rank: usize| expert[rank].iter().zip(&place[rank]).map(|(&e, &p)| e * slots as u32 + p as u32);
        let slot = (0..top_k).map(|rank| slot(rank).collect()).collect();
        let token = queues.into_iter().flat_map(|mut q| {
            q.resize(slots, 0);
            q
        });
        Self { slots, token: token.collect(), expert, slot }
    }
}

impl Moe {
    pub(super) fn new(top_k: usize, norm: RmsNorm, router: Tensor, up: Tensor, down: Tensor) -> Self {
        Self { top_k, norm, router, up, down }
    }

    /// x + experts(norm(x)).
    pub(super) fn add_to(&self, x: &Tensor) -> Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        let experts = self.up.dim(0)?;
        let y = self.norm.forward(x)?;
        let probs = softmax(&y.matmul(&self.router)?, 1.0, false)?;
        let dispatch = Dispatch::new(&probs.to_vec2()?, experts, self.top_k);

        let inputs =
            y.index_select(&indices(&dispatch.token)?, 0)?.reshape((experts, dispatch.slots, width))?;
        let outputs = inputs.matmul(&self.up)?.relu()?.matmul(&self.down)?;
        let outputs = outputs.reshape((experts * dispatch.slots, width))?;

        let chosen: Vec<u32> = (0..tokens).flat_map(|t| dispatch.expert.iter().map(move |e| e[t])).collect();
        let gates = probs.gather(&indices(&chosen)?.reshape((tokens, self.top_k))?, D::Minus1)?;
        let gates = gates.broadcast_div(&gates.sum_keepdim(D::Minus1)?)?;
        let mut sum = x.clone();
        for (rank, slot) in dispatch.slot.iter().enumerate() {
            let part = outputs.index_select(&indices(slot)?, 0)?;
            sum = (sum + part.broadcast_mul(&gates.narrow(1, rank, 1)?)?)?;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_to_their_best_experts_and_ties_to_the_lowest() {
        let probs = [vec![0.1, 0.6, 0.3], vec![0.4, 0.2, 0.4], vec![0.2, 0.2, 0.6]];
        let d = Dispatch::new(&probs, 3, 2);
        assert_eq!(d.expert, [[1, 0, 2], [2, 2, 0]]);
        assert_eq!(d.slots, 3);
        assert_eq!(d.token, [1, 2, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(d.slot, [[3, 0, 8], [6, 7, 1]]);
    }
}
