//! Trees given by parent pointers: values of tree rollouts and MCTS, and advantages of their steps.

use super::{Outcomes, PrefixTree, check_weights, value};
use crate::ops::advantage::{GroupParams, group_advantage};
use crate::ops::locate;
use crate::{Batch, Device, Error};
use lockstep_core::advantage::{Baseline, Scale, Singleton};
use lockstep_core::ragged::Offsets;
use lockstep_core::require;
use lockstep_core::tree::NONE;

/// A forest of M nodes (steps), with one root for each prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplicitTree<'a> {
    /// Parent of each node, which must have a smaller index, or [`NONE`] for a root, `[M]`.
    pub parent: &'a [u32],
    /// Outcome reward of the response that ends at a node, `[M]`; NaN = no response ends there, or it was
    /// truncated.
    pub outcome: &'a [f32],
    /// Weight of each outcome, `[M]`; `None` = 1.
    pub weights: Option<&'a [f32]>,
}

/// The baseline of a step's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepBaseline {
    /// The value of the parent node: TreePS-RAG-style process advantages (our reading).
    #[default]
    Parent,
    /// The mean value of all children of the parent.
    Siblings,
    /// The mean value of the parent's other children.
    OtherSiblings,
}

/// Parameters of [`step_values`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepParams {
    /// The baseline of a step's value.
    pub baseline: StepBaseline,
    /// Divide by the standard deviation of the siblings' values, with this ddof and eps, which is added to
    /// it. Nothing is divided if the values are equal.
    pub norm_by_std: Option<(u32, f64)>,
}

/// Values and advantages of steps.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepValues {
    /// V: the weighted mean of the outcomes at and below the node, `[M]`; NaN without outcomes.
    pub value: Vec<f64>,
    /// Number of those outcomes, `[M]`.
    pub counted: Vec<u32>,
    /// Advantage of the step that leads to the node, `[M]`; 0 for roots and for nodes without a value.
    pub advantage: Vec<f32>,
}

/// Computes Monte-Carlo values of an explicit tree and the advantages of its steps: TreePS-RAG-style (our
/// reading; 2601.06922, docs/maths/rewards.md), A(v) = V(v) − V(u) for the step from u to v, or relative to
/// siblings.
///
/// The ops are those of [`prefix_tree`](super::prefix_tree), with steps as tokens, and of
/// [`group_advantage`], with siblings as groups.
///
/// Errors: lengths that disagree; a parent that does not exist, comes after its child or closes a cycle
/// (node); an outcome that is infinite, or a weight that is negative or not finite (node).
///
/// ```
/// use lockstep_ops::core::tree::NONE;
/// use lockstep_ops::ops::tree::{ExplicitTree, StepParams, step_values};
/// use lockstep_ops::Device;
/// // A question, two searches; the first has two answers, right and wrong, the second one, wrong.
/// let nan = f32::NAN;
/// let parent = [NONE, 0, 0, 1, 1, 2];
/// let outcome = [nan, nan, nan, 1.0, 0.0, 0.0];
/// let tree = ExplicitTree { parent: &parent, outcome: &outcome, weights: None };
/// let steps = step_values(&Device::cpu(), &tree, &StepParams::default())?;
/// assert_eq!(steps.value, [1.0 / 3.0, 0.5, 0.0, 1.0, 0.0, 0.0]);
/// assert_eq!(steps.advantage[3..], [0.5, -0.5, 0.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn step_values(
    device: &Device,
    tree: &ExplicitTree<'_>,
    params: &StepParams,
) -> Result<StepValues, Error> {
    let nodes = tree.parent.len();
    require::length("outcome", nodes, "one per node of `parent`", tree.outcome.len())?;
    check_parents(tree.parent)?;
    if let Some(weights) = tree.weights {
        require::length("weights", nodes, "one per node of `parent`", weights.len())?;
        check_weights(weights)?;
    }
    locate::each("outcome", tree.outcome, "a finite reward, or NaN for none", |_, r| !r.is_infinite())?;
    let mut steps =
        StepValues { value: vec![f64::NAN; nodes], counted: vec![0; nodes], advantage: vec![0.0; nodes] };
    if nodes == 0 {
        return Ok(steps);
    }
    let children = Children::of(tree.parent);
    monte_carlo(device, tree, &children, &mut steps)?;
    compare(device, &children, params, &mut steps)?;
    Ok(steps)
}

/// Errors unless every parent comes before its child, which rules out cycles.
pub(super) fn check_parents(parent: &[u32]) -> Result<(), Error> {
    let late = |(node, &up): (usize, &u32)| up != NONE && up as usize >= node;
    let Some(node) = parent.iter().enumerate().position(late) else { return Ok(()) };
    let got = parent[node];
    if got as usize >= parent.len() {
        return Err(value("parent", node, "a node, or NONE for a root", got.into()));
    }
    // Walk up from there: either back to the node itself, or to a root.
    let (mut up, mut steps) = (got, 0);
    while up as usize != node && (up as usize) < parent.len() && steps <= parent.len() {
        (up, steps) = (parent[up as usize], steps + 1);
    }
    let cycle = up as usize == node;
    let expected = if cycle {
        "a node that is not a descendant: this is a cycle"
    } else {
        "a node with a smaller index"
    };
    Err(value("parent", node, expected, got.into()))
}

/// Children of each node, followed by the roots, in index order.
struct Children {
    offsets: Vec<u32>,
    nodes: Vec<u32>,
}

impl Children {
    fn of(parent: &[u32]) -> Self {
        let nodes = parent.len();
        let key = |up: u32| if up == NONE { nodes } else { up as usize };
        let mut offsets = vec![0; nodes + 2];
        for up in parent {
            offsets[key(*up) + 1] += 1;
        }
        for k in 0..=nodes {
            offsets[k + 1] += offsets[k];
        }
        let (mut next, mut list) = (offsets.clone(), vec![0; nodes]);
        for (node, up) in parent.iter().enumerate() {
            list[next[key(*up)] as usize] = node as u32;
            next[key(*up)] += 1;
        }
        Children { offsets, nodes: list }
    }

    fn of_node(&self, node: usize) -> &[u32] {
        &self.nodes[self.offsets[node] as usize..self.offsets[node + 1] as usize]
    }

    /// Number of nodes; the list after the last node's is that of the roots.
    fn count(&self) -> usize {
        self.nodes.len()
    }
}

/// Computes the values with the op of prefix trees: a response is its path, and `lcp` is the number of steps
/// that neighbours in depth-first order share.
fn monte_carlo(
    device: &Device,
    tree: &ExplicitTree<'_>,
    children: &Children,
    steps: &mut StepValues,
) -> Result<(), Error> {
    let count = children.count();
    let mut paths = PrefixTree::default();
    let (mut rewards, mut weights, mut cu_groups) = (Vec::new(), Vec::new(), vec![0]);
    // The first path at or below a node, and the number of such paths.
    let (mut first, mut below, mut depth) = (vec![0u32; count], vec![0u32; count], vec![1u32; count]);
    let mut preorder = Vec::with_capacity(count);
    for &root in children.of_node(count) {
        let (mut stack, mut shared) = (vec![root], 0);
        let start = rewards.len();
        while let Some(node) = stack.pop() {
            let (at, own) = (node as usize, tree.outcome[node as usize]);
            preorder.push(at);
            shared = shared.min(depth[at] - 1);
            first[at] = rewards.len() as u32;
            let list = children.of_node(at);
            if list.is_empty() || !own.is_nan() {
                paths.order.push(rewards.len() as u32);
                paths.lcp.push(if rewards.len() == start { 0 } else { shared });
                rewards.push(own);
                weights.push(tree.weights.map_or(1.0, |weights| weights[at]));
                below[at] = 1;
                shared = depth[at];
            }
            for &child in list.iter().rev() {
                depth[child as usize] = depth[at] + 1;
                stack.push(child);
            }
        }
        cu_groups.push(rewards.len() as u32);
    }
    for &at in preorder.iter().rev() {
        if tree.parent[at] != NONE {
            below[tree.parent[at] as usize] += below[at];
        }
    }
    let outcomes = Outcomes { rewards: &rewards, valid: None, weights: Some(&weights) };
    let offsets = Offsets::new("roots", &cu_groups, rewards.len(), "paths")?;
    paths.find_nodes(device, offsets, &outcomes)?;
    for &at in preorder.iter().rev() {
        let (start, paths_below) = (first[at] as usize, below[at] as usize);
        if paths_below == 1 {
            let counts = !rewards[start].is_nan() && weights[start] != 0.0;
            steps.value[at] = if counts { rewards[start].into() } else { f64::NAN };
            steps.counted[at] = u32::from(counts);
            continue;
        }
        // The node branches where its second child (or path) begins; with a single child, it has that child's
        // value.
        let starts = children.of_node(at).iter().map(|child| first[*child as usize] as usize);
        match starts.into_iter().find(|child| *child > start) {
            Some(branch) => {
                steps.value[at] = paths.value[branch];
                steps.counted[at] = paths.counted[branch];
            }
            None => {
                let only = children.of_node(at)[0] as usize;
                steps.value[at] = steps.value[only];
                steps.counted[at] = steps.counted[only];
            }
        }
    }
    Ok(())
}

/// Computes the advantages with the op of groups: a group is the children of a node.
fn compare(
    device: &Device,
    children: &Children,
    params: &StepParams,
    steps: &mut StepValues,
) -> Result<(), Error> {
    let count = children.count();
    let last = children.offsets[count] as usize;
    if last == 0 {
        return Ok(());
    }
    // Relative to the parent, in binary64, so that a small difference of two values survives the rounding to
    // binary32; neither a comparison with the siblings' mean nor their standard deviation changes by this
    // shift. The children of a node without a value have none either.
    let rewards: Vec<f32> = (0..count)
        .flat_map(|up| children.of_node(up).iter().map(move |node| (up, *node as usize)))
        .map(|(up, node)| (steps.value[node] - steps.value[up]) as f32)
        .collect();
    let zero = vec![0.0; count];
    let baseline = match params.baseline {
        StepBaseline::Parent => Baseline::Given,
        StepBaseline::Siblings => Baseline::Mean,
        StepBaseline::OtherSiblings => Baseline::LeaveOneOut,
    };
    let scale = match params.norm_by_std {
        Some((ddof, eps)) => Scale::Std { ddof, eps },
        None => Scale::None { ddof: 1 },
    };
    let given = (params.baseline == StepBaseline::Parent).then_some(&zero[..]);
    let group = GroupParams { given, ..GroupParams::new(baseline, scale).singleton(Singleton::Zero) };
    let each: Vec<u32> = (0..=last as u32).collect();
    let batch = Batch::with_empty_rows(&each, &children.offsets[..=count], None)?;
    let advantages = group_advantage(device, &batch, &rewards, None, &group)?;
    for (node, advantage) in children.nodes.iter().zip(&advantages.advantage) {
        steps.advantage[*node as usize] = *advantage;
    }
    Ok(())
}
