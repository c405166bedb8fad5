//! `tree_sort`, `tree_nodes`, `tree_advantage`: each takes the oracle's result for the step before it.
//!
//! The responses come from a seed, because no batch array has their shape in all three: rows are merges,
//! groups, sequences.

use super::prelude::*;
use crate::cases::responses::{PAD, responses};
use crate::oracle::{tree_advantage, tree_nodes, tree_sort};
use lockstep_core::ragged::Mask as Valid;
use lockstep_core::tree::{NONE, TreeAdvantage, TreeNodes, TreeSort};

/// Which op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Sort,
    Nodes,
    Advantage,
    /// The same with a weight per response. It is a separate variant because the corpus's labels contain
    /// these names, and the digest depends on them.
    Weighted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tree {
    op: Op,
    seed: u64,
    /// Whether ended responses continue as [`PAD`].
    pad: bool,
    /// Weights per response; for the advantage: sequence advantages and a divisor.
    full: bool,
}

const EPS: f64 = 1e-6;

impl OpTest for Tree {
    names! {
        Tree { op: Op::Sort, .. } => "tree_sort",
        Tree { op: Op::Nodes, .. } => "tree_nodes",
        Tree { op: Op::Advantage | Op::Weighted, .. } => "tree_advantage",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("tree_sort", &["order"], 0.0, "a position"),
        allow("tree_nodes", &["value"], 1e-7, "a sum of n terms: n roundings of 2^-53, 2^-29 of a unit each"),
        allow("tree_advantage", &["token_advantage"], 1.0, ROUNDED),
    ];
    const CATCHES: &'static str = "a prefix taken for a duplicate; a node of several children; an end that \
                                   equals padding; a token read twice";
    // The arrays hold positions in the whole batch, so rows cannot be moved.
    const ROWS_ARE_BLOCKS: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match self.op {
            Op::Sort => self.sort(backend, data, out),
            Op::Nodes => self.nodes(backend, data, out),
            Op::Advantage | Op::Weighted => self.advantage(backend, data, out),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match self.op {
            Op::Sort => {
                let all = self.responses(data.elements());
                let [mut order, mut lcp] = ["order", "lcp"].map(Want::new);
                for r in 0..data.rows() {
                    let span = data.span(r);
                    for (k, shared) in tree_sort::sorted(&all[span.clone()], self.pad()) {
                        order.exact((span.start + k) as f64);
                        lcp.exact(shared);
                    }
                }
                vec![order, lcp]
            }
            Op::Nodes => {
                let names = ["value", "counted", "node", "parent", "leaf"];
                let [mut value, mut counted, mut node, mut parent, mut leaf] = names.map(Want::new);
                let trees = self.trees(data.elements(), &data.offsets, data);
                for at in 0..data.elements() {
                    let found = &trees.nodes[at];
                    value.push(number(found.value), found.magnitude);
                    counted.exact(found.counted as f64);
                    node.exact(place(found.node));
                    parent.exact(place(found.parent));
                    leaf.exact(place(trees.leaf[at]));
                }
                vec![value, counted, node, parent, leaf]
            }
            Op::Advantage | Op::Weighted => {
                let mut want = Want::new("token_advantage");
                let all = self.responses(data.rows());
                let weights: Vec<f64> = (0..data.rows()).map(|r| self.weight(data, r)).collect();
                let cu_groups = self.groups(data.rows());
                for (g, group) in cu_groups.windows(2).enumerate() {
                    let span = group[0] as usize..group[1] as usize;
                    let rewards: Vec<f64> = data.row[0][span.clone()].iter().map(|r| (*r).into()).collect();
                    let (inputs, weights) = (&all[span.clone()], &weights[span.clone()]);
                    let found = tree_advantage::corrections(inputs, &rewards, weights, self.pad());
                    for (sequence, corrections) in span.zip(found) {
                        let counted = !data.row[0][sequence].is_nan();
                        let own = if self.full { f64::from(data.row[1][sequence]) } else { 0.0 };
                        let divisor = if self.full { self.std(g) + EPS } else { 1.0 };
                        for (i, (correction, magnitude)) in data.span(sequence).zip(corrections) {
                            if !data.live(i) || !counted {
                                want.push(0.0, 0.0);
                                continue;
                            }
                            let value = own + correction / divisor;
                            // The values before the division are binary64: 1e-6 of a unit.
                            want.push(value, value.abs() + 1e-6 * magnitude / divisor);
                        }
                    }
                }
                vec![want]
            }
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let sizes = [&[8u32, 1, 0, 2, 16, 5, 33, 3][..], &[130], &[4; 24], &[1], &[2, 2]];
        let flags = [(false, true), (true, false), (true, true), (false, false)];
        let all = pairs(pairs(sizes, flags), [Op::Sort, Op::Nodes, Op::Advantage]);
        numbered(all, source, |k, ((sizes, (pad, full)), op), _| {
            case(Tree { op, seed: source.bits(k), pad, full }, sizes)
        })
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let op = match op {
            "tree_sort" => Op::Sort,
            "tree_nodes" => Op::Nodes,
            _ => draw.pick(&[Op::Advantage, Op::Weighted]),
        };
        let mut sizes: Vec<u32> = (0..1 + draw.below(6)).map(|_| draw.below(20) as u32).collect();
        // A batch has at least one sequence.
        sizes[0] += 1;
        // Several passes of a wave over a single group.
        if op == Op::Nodes && draw.below(8) == 0 {
            sizes.push(100 + draw.below(200) as u32);
        }
        let (pad, full, seed) = (draw.yes(), draw.yes(), draw.source().bits(0));
        case(Tree { op, seed, pad, full }, &sizes)
    }
}

/// The trees of a batch, with positions in the whole batch.
struct Trees {
    order: Vec<u32>,
    lcp: Vec<u32>,
    nodes: Vec<tree_nodes::Node>,
    /// By sequence.
    leaf: Vec<Option<usize>>,
}

/// A value, or −7 for none, because an oracle compares numbers.
fn number(value: f64) -> f64 {
    if value.is_nan() { -7.0 } else { value }
}

fn place(node: Option<usize>) -> u32 {
    node.map_or(NONE, |node| node as u32)
}

fn packed(responses: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    (shapes::offsets_of(responses.iter().map(|response| response.len() as u32)), responses.concat())
}

impl Tree {
    fn source(&self) -> Source {
        Source::new(self.seed)
    }

    fn responses(&self, count: usize) -> Vec<Vec<u32>> {
        responses(count, self.source().fork(1))
    }

    fn pad(&self) -> Option<u32> {
        self.pad.then_some(PAD)
    }

    /// A division of an advantage case's sequences into groups.
    fn groups(&self, sequences: usize) -> Vec<u32> {
        let (mut offsets, source) = (vec![0u32], self.source().fork(2));
        while (offsets[offsets.len() - 1] as usize) < sequences {
            let last = offsets[offsets.len() - 1];
            let size = [1, 0, 8, 3, 40][source.below(offsets.len(), 5)];
            offsets.push((last + size).min(sequences as u32));
        }
        offsets
    }

    /// Standard deviation of a group; 0 for some groups.
    fn std(&self, group: usize) -> f64 {
        f64::from(self.source().fork(3).below(group, 5) as f32 / 4.0)
    }

    /// Weight of a response.
    fn weight(&self, data: &Data, response: usize) -> f64 {
        match self.op {
            Op::Nodes if self.full => data.element[1][response].into(),
            Op::Weighted => data.row[2][response].into(),
            _ => 1.0,
        }
    }

    /// The oracle's result for every group.
    fn trees(&self, sequences: usize, cu_groups: &[u32], data: &Data) -> Trees {
        let all = self.responses(sequences);
        let mut trees = Trees { order: vec![], lcp: vec![], nodes: vec![], leaf: vec![None; sequences] };
        let rewards = match self.op {
            Op::Sort | Op::Nodes => &data.element[0],
            Op::Advantage | Op::Weighted => &data.row[0],
        };
        let counted = |i: usize| self.op != Op::Nodes || data.live(i);
        let reward = |i: usize| if counted(i) { f64::from(rewards[i]) } else { f64::NAN };
        for group in cu_groups.windows(2) {
            let start = group[0] as usize;
            let sorted = tree_sort::sorted(&all[start..group[1] as usize], self.pad());
            let order: Vec<usize> = sorted.iter().map(|(k, _)| start + k).collect();
            let inputs: Vec<Vec<u32>> = order.iter().map(|i| all[*i].clone()).collect();
            let rewards: Vec<f64> = order.iter().map(|i| reward(*i)).collect();
            let weights: Vec<f64> = order.iter().map(|i| self.weight(data, *i)).collect();
            let (nodes, leaf) = tree_nodes::group(&inputs, &rewards, &weights, self.pad());
            let shift = |node: Option<usize>| node.map(|node| node + start);
            trees.lcp.extend(sorted.iter().map(|(_, shared)| shared));
            trees.order.extend(order.iter().map(|i| *i as u32));
            for (k, node) in nodes.into_iter().enumerate() {
                trees.leaf[order[k]] = shift(leaf[k]);
                let (parent, own) = (shift(node.parent), shift(node.node));
                trees.nodes.push(tree_nodes::Node { node: own, parent, ..node });
            }
        }
        trees
    }

    fn sort(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (n, source) = (data.elements(), self.source().fork(4));
        let all = self.responses(n);
        let (cu_seqlens, tokens) = packed(&all);
        let (mut order, mut lcp, mut middle) = (vec![], vec![], vec![]);
        for r in 0..data.rows() {
            let span = data.span(r);
            let split = span.start + source.below(r, span.len() + 1);
            for run in [span.start..split, split..span.end] {
                let sorted = tree_sort::sorted(&all[run.clone()], self.pad());
                order.extend(sorted.iter().map(|(k, _)| (run.start + k) as u32));
                lcp.extend(sorted.iter().map(|(_, shared)| shared));
            }
            middle.push(split as u32);
        }
        backend.run(&TreeSort {
            cu_merges: data.packed()?,
            middle: In::new(&middle),
            cu_seqlens: offsets("cu_seqlens", &cu_seqlens, tokens.len(), "tokens")?,
            tokens: In::new(&tokens),
            pad: self.pad(),
            order: In::new(&order),
            lcp: In::new(&lcp),
            sorted: out.element("order"),
            sorted_lcp: out.element("lcp"),
        })
    }

    fn nodes(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let n = data.elements();
        let Trees { order, lcp, .. } = self.trees(n, &data.offsets, data);
        // The canonical NaN and no other.
        let shown = |x: f64| if x.to_bits() == 0x7ff8_0000_0000_0000 { -7.0 } else { x };
        backend.run(&TreeNodes {
            cu_groups: data.packed()?,
            order: In::new(&order),
            lcp: In::new(&lcp),
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            weights: self.full.then(|| In::new(&data.element[1][..])),
            value: out.array(n, move |value: Vec<f64>| {
                vec![element("value", Values::F64(value.into_iter().map(shown).collect()))]
            }),
            counted: out.element("counted"),
            node: out.element("node"),
            parent: out.element("parent"),
            leaf: out.element("leaf"),
        })
    }

    fn advantage(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let sequences = data.rows();
        let cu_groups = self.groups(sequences);
        let trees = self.trees(sequences, &cu_groups, data);
        let value: Vec<f64> = trees.nodes.iter().map(|node| node.value).collect();
        let parent: Vec<u32> = trees.nodes.iter().map(|node| place(node.parent)).collect();
        let leaf: Vec<u32> = trees.leaf.iter().map(|node| place(*node)).collect();
        let std: Vec<f32> = (0..cu_groups.len() - 1).map(|g| self.std(g) as f32).collect();
        backend.run(&TreeAdvantage {
            cu_seqlens: data.packed()?,
            cu_groups: offsets("cu_groups", &cu_groups, sequences, "sequences")?,
            loss_mask: data.masked(),
            rewards: In::new(&data.row[0]),
            valid: Valid::all(),
            lcp: In::new(&trees.lcp),
            value: In::new(&value),
            parent: In::new(&parent),
            leaf: In::new(&leaf),
            advantage: self.full.then(|| In::new(&data.row[1][..])),
            std: self.full.then(|| In::new(&std[..])),
            eps: EPS,
            token_advantage: out.element("token_advantage"),
        })
    }
}

/// Usually 0 or 1, sometimes fractional or missing.
fn reward(source: Source, i: usize) -> f32 {
    match source.below(i, 8) {
        0 => f32::NAN,
        1 => source.fork(1).signed(i),
        k => (k % 2) as f32,
    }
}

/// Like [`reward`], with magnitudes so different that their sums round.
fn wide(source: Source, i: usize) -> f32 {
    if source.below(i, 8) == 2 { source.fork(2).spread(i) } else { reward(source, i) }
}

fn case(params: Tree, sizes: &[u32]) -> Case {
    let source = params.source().fork(5);
    let count = sizes.iter().sum::<u32>() as usize;
    let mut data = Data::default();
    if matches!(params.op, Op::Advantage | Op::Weighted) {
        data.offsets = packed(&params.responses(count)).0;
        data.mask = Mask::ALL[source.below(0, 6)].bytes(&data.offsets, source.fork(1));
        let advantage = data.per_row(|r| values::advantage(source.fork(3), r));
        data.row = vec![data.per_row(|r| reward(source.fork(2), r)), advantage];
        if params.op == Op::Weighted {
            data.row.push(data.per_row(|r| values::weight(source.fork(4), r)));
        }
    } else {
        data.offsets = shapes::offsets_of(sizes.iter().copied());
        if params.op == Op::Nodes {
            data.mask = Mask::ALL[source.below(0, 3)].bytes(&data.offsets, source.fork(1));
            let weight = |i| if source.below(i, 9) == 0 { 0.0 } else { values::weight(source.fork(3), i) };
            data.element = vec![data.array(|i| wide(source.fork(2), i)), data.array(weight)];
        }
    }
    Case::of(params, format!("{params:?}, {} sizes, {count} responses", sizes.len()), data)
}
