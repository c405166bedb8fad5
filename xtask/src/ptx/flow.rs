//! Basic blocks of a function, and which branches decide whether a block runs.

use super::Function;
use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeSet;
use std::ops::Range;

/// A function's blocks. The block after the last is the exit, where every `ret` goes.
pub(super) struct Flow {
    /// Instruction range of each block.
    pub(super) blocks: Vec<Range<usize>>,
    /// Successors of each block.
    pub(super) next: Vec<Vec<usize>>,
    /// Which blocks post-dominate each block that reaches the exit.
    after: Dominators<NodeIndex<usize>>,
}

impl Flow {
    pub(super) fn of(function: &Function) -> Flow {
        let code = &function.code;
        let ends = |at: usize| matches!(code[at].base(), "bra" | "brx" | "ret" | "exit" | "trap");
        let targets = |at: usize| function.targets(&code[at]).unwrap_or_default();
        let mut starts: BTreeSet<usize> = (0..code.len()).flat_map(targets).collect();
        starts.insert(0);
        starts.extend((0..code.len()).filter(|at| ends(*at)).map(|at| at + 1));
        starts.insert(code.len());
        let starts: Vec<usize> = starts.into_iter().collect();
        let blocks: Vec<Range<usize>> = starts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let exit = blocks.len();
        let block_at = |at: usize| starts.binary_search(&at).unwrap_or(exit);
        let next = blocks.iter().map(|block| {
            let last = block.end - 1;
            let mut next: Vec<usize> = targets(last).into_iter().map(block_at).collect();
            let leaves = matches!(code[last].base(), "ret" | "exit" | "trap");
            if leaves {
                next.push(exit);
            }
            if !ends(last) || code[last].guard.is_some() {
                next.push(block_at(block.end));
            }
            next
        });
        let next: Vec<Vec<usize>> = next.collect();
        let back = next.iter().enumerate().flat_map(|(from, next)| next.iter().map(move |&to| (to, from)));
        // The exit is a node even if no block reaches it.
        let back = DiGraph::<(), (), usize>::from_edges(back.chain([(exit, exit)]));
        let after = simple_fast(&back, exit.into());
        Flow { blocks, next, after }
    }

    /// For each block, the blocks whose execution its branch decides.
    pub(super) fn decided(&self) -> Vec<Vec<usize>> {
        let after = |block: usize| {
            let nodes = self.after.dominators(block.into())?;
            Some(nodes.map(|node| node.index()).collect())
        };
        let after: Vec<Option<BTreeSet<usize>>> = (0..=self.blocks.len()).map(after).collect();
        // Every block counts as coming after one that never reaches the exit.
        let is_after = |block: usize, x: usize| after[block].as_ref().is_none_or(|after| after.contains(&x));
        let decided = |branch: usize| {
            let on_one_way = |x: usize| self.next[branch].iter().any(|&next| is_after(next, x));
            let on_all_ways = |x: usize| is_after(branch, x) && x != branch;
            (0..self.blocks.len()).filter(|&x| on_one_way(x) && !on_all_ways(x)).collect()
        };
        (0..self.blocks.len()).map(decided).collect()
    }

    /// Blocks that never reach the exit.
    pub(super) fn endless(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|&block| self.after.dominators(block.into()).is_none()).collect()
    }
}
