//! Prefix trees over responses that share their first half in pairs.

use super::{GpuBench, OnGpu, enqueue, from_iter, mask, offsets};
use crate::{Inputs, shared_halves};
use lockstep::Device;
use lockstep::ops::prefix_tree;
use lockstep::ops::tree::Outcomes;
use lockstep_core::ragged::Mask;
use lockstep_core::tree::{TreeAdvantage, TreeNodes, TreeSort};
use lockstep_gpu::{Buffer, Driver, Error, Gpu, Stream};

/// The sorted tree, and the first round of its sort.
pub(super) struct Tree<D: Driver> {
    tokens: Buffer<u32, D>,
    cu_merges: Buffer<u32, D>,
    middle: Buffer<u32, D>,
    unsorted: Buffer<u32, D>,
    nothing_shared: Buffer<u32, D>,
    order: Buffer<u32, D>,
    lcp: Buffer<u32, D>,
    value: Buffer<f64, D>,
    parent: Buffer<u32, D>,
    leaf: Buffer<u32, D>,
    out: [Buffer<u32, D>; 4],
}

impl<D: Driver> Tree<D> {
    pub(super) fn new(gpu: &Gpu<D>, stream: &Stream<D>, inputs: &Inputs) -> Result<Self, Error> {
        let tokens = shared_halves(&inputs.cu_seqlens);
        let tree = inputs.batch().and_then(|batch| {
            prefix_tree(&Device::cpu(), &batch, tokens[..].into(), &Outcomes::new(&inputs.rewards), None)
        });
        let tree = tree.expect("a batch and token ids made to be right");
        // Groups of eight: neighbours are merged in pairs first.
        let sequences = inputs.rewards.len() as u32;
        let row = || gpu.alloc(inputs.rewards.len());
        Ok(Tree {
            tokens: gpu.upload(stream, &tokens)?,
            cu_merges: from_iter(gpu, stream, (0..=sequences).step_by(2))?,
            middle: from_iter(gpu, stream, (1..sequences).step_by(2))?,
            unsorted: from_iter(gpu, stream, 0..sequences)?,
            nothing_shared: from_iter(gpu, stream, (0..sequences).map(|_| 0))?,
            order: gpu.upload(stream, &tree.order)?,
            lcp: gpu.upload(stream, &tree.lcp)?,
            value: gpu.upload(stream, &tree.value)?,
            parent: gpu.upload(stream, &tree.parent)?,
            leaf: gpu.upload(stream, &tree.leaf)?,
            out: [row()?, row()?, row()?, row()?],
        })
    }
}

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        // Half of the tokens are shared, so that many are examined.
        GpuBench::new("tree_sort", 2.0, sort),
        GpuBench::new("tree_nodes", 36.0 * per_token, nodes),
        GpuBench::new("tree_advantage", 5.0, advantage),
    ]
}

fn sort<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let tree = &mut batch.tree;
    let [sorted, sorted_lcp, ..] = &mut tree.out;
    let kernel = TreeSort {
        cu_merges: offsets(&tree.cu_merges),
        middle: tree.middle.view(),
        cu_seqlens: offsets(&batch.cu_seqlens),
        tokens: tree.tokens.view(),
        pad: None,
        order: tree.unsorted.view(),
        lcp: tree.nothing_shared.view(),
        sorted: sorted.view_mut(),
        sorted_lcp: sorted_lcp.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn nodes<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let tree = &mut batch.tree;
    let [counted, node, parent, leaf] = &mut tree.out;
    let kernel = TreeNodes {
        cu_groups: offsets(&batch.cu_groups),
        order: tree.order.view(),
        lcp: tree.lcp.view(),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        weights: None,
        value: batch.row64.view_mut(),
        counted: counted.view_mut(),
        node: node.view_mut(),
        parent: parent.view_mut(),
        leaf: leaf.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn advantage<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let tree = &batch.tree;
    let kernel = TreeAdvantage {
        cu_seqlens: offsets(&batch.cu_seqlens),
        cu_groups: offsets(&batch.cu_groups),
        loss_mask: mask(&batch.loss_mask),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        lcp: tree.lcp.view(),
        value: tree.value.view(),
        parent: tree.parent.view(),
        leaf: tree.leaf.view(),
        advantage: Some(batch.advantage.view()),
        std: None,
        eps: 1e-6,
        token_advantage: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
