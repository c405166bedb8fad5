//! The innermost loops of a control-flow graph, and the longest way through each.

use super::code::Code;
use anyhow::{Context, Result, ensure};
use petgraph::algo::{dominators, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

impl Code {
    /// A path through each innermost loop: from the instruction that every trip begins with to a jump back
    /// to it.
    ///
    /// A loop is what can reach a back edge without leaving it: an edge to an instruction that dominates its
    /// source. Of several ways through a loop it is the one with the most instructions, as if every condition
    /// held for some lane; a call of a slow path is taken only if there is no other way.
    ///
    /// Errors: a cycle that no instruction dominates, whose trips could not be counted.
    pub fn innermost_loops(&self) -> Result<Vec<Vec<usize>>> {
        let edges =
            self.next.iter().enumerate().flat_map(|(from, next)| next.iter().map(move |&to| (from, to)));
        let mut graph: DiGraph<(), (), usize> = DiGraph::default();
        self.ops.iter().for_each(|_| _ = graph.add_node(()));
        edges.for_each(|(from, to)| _ = graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ()));
        let dominators = dominators::simple_fast(&graph, NodeIndex::new(0));
        let reached = |at: usize| at == 0 || dominators.immediate_dominator(NodeIndex::new(at)).is_some();
        // Slow paths are reached by calls alone, which are no edges.
        graph.retain_edges(|graph, edge| {
            graph.edge_endpoints(edge).is_some_and(|(from, _)| reached(from.index()))
        });

        let mut headers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for edge in graph.edge_indices() {
            let (from, to) = graph.edge_endpoints(edge).context("an edge has ends")?;
            // `from` itself is the first of its dominators.
            if dominators.dominators(from).is_some_and(|mut above| above.any(|node| node == to)) {
                headers.entry(to.index()).or_default().push(from.index());
            }
        }
        let back = |from: usize, to: usize| headers.get(&to).is_some_and(|from_all| from_all.contains(&from));
        let mut forward = graph.clone();
        forward.retain_edges(|graph, edge| {
            graph.edge_endpoints(edge).is_some_and(|(from, to)| !back(from.index(), to.index()))
        });
        let order = toposort(&forward, None)
            .ok()
            .with_context(|| format!("{}: a loop that can be entered at several places", self.name))?;
        let mut place = vec![0; self.ops.len()];
        order.iter().enumerate().for_each(|(i, node)| place[node.index()] = i);

        let body = |header: usize, latches: &[usize]| -> BTreeSet<usize> {
            let mut body = BTreeSet::from([header]);
            let mut open = latches.to_vec();
            while let Some(at) = open.pop() {
                if body.insert(at) {
                    open.extend(
                        graph.neighbors_directed(NodeIndex::new(at), petgraph::Incoming).map(|n| n.index()),
                    );
                }
            }
            body
        };
        let mut paths = Vec::new();
        for (&header, latches) in &headers {
            let body = body(header, latches);
            if headers.keys().all(|other| *other == header || !body.contains(other)) {
                paths.push(self.longest(header, latches, &body, &place)?);
            }
        }
        Ok(paths)
    }

    /// The longest path from `header` to one of `latches` inside `body`. `place` orders the instructions so
    /// that all edges but the back edges ascend.
    fn longest(
        &self,
        header: usize,
        latches: &[usize],
        body: &BTreeSet<usize>,
        place: &[usize],
    ) -> Result<Vec<usize>> {
        let mut order: Vec<usize> = body.iter().copied().collect();
        order.sort_by_key(|&at| place[at]);
        for calls in [false, true] {
            // Length of the longest path to an instruction, and what is before it.
            let mut best = BTreeMap::from([(header, (1, None))]);
            for &from in &order {
                let Some(&(length, _)) = best.get(&from) else { continue };
                for &to in &self.next[from] {
                    let open = to != header && body.contains(&to) && (calls || !self.ops[to].calls);
                    if open && best.get(&to).is_none_or(|(other, _)| *other < length + 1) {
                        best.insert(to, (length + 1, Some(from)));
                    }
                }
            }
            let last =
                latches.iter().filter(|latch| best.contains_key(latch)).max_by_key(|latch| best[latch].0);
            if let Some(&last) = last {
                let back = |at: &usize| best[at].1;
                let mut path: Vec<usize> = std::iter::successors(Some(last), back).collect();
                path.reverse();
                ensure!(path.first() == Some(&header), "a path that does not begin at its loop's first");
                return Ok(path);
            }
        }
        anyhow::bail!("{}: a loop without a way through it", self.name)
    }
}
