//! Basic blocks of a function, and which branches decide whether a block runs.

use super::Function;
use std::collections::BTreeSet;
use std::ops::Range;

/// A function's blocks. The block after the last is the exit, where every `ret` goes.
pub(super) struct Flow {
    /// Instruction range of each block.
    pub(super) blocks: Vec<Range<usize>>,
    /// Successors of each block.
    pub(super) next: Vec<Vec<usize>>,
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
        Flow { next: next.collect(), blocks }
    }

    /// For each block, the blocks that post-dominate it, itself included; the exit is the last column.
    fn post_dominators(&self) -> Vec<Vec<bool>> {
        let exit = self.blocks.len();
        let mut sets = vec![vec![true; exit + 1]; exit];
        let only_exit: Vec<bool> = (0..=exit).map(|block| block == exit).collect();
        sets.push(only_exit);
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..exit).rev() {
                let meet = |x: usize| x == block || self.next[block].iter().all(|&next| sets[next][x]);
                let set: Vec<bool> = (0..=exit).map(meet).collect();
                if set != sets[block] {
                    sets[block] = set;
                    changed = true;
                }
            }
        }
        sets
    }

    /// For each block, the blocks whose execution its branch decides.
    pub(super) fn decided(&self) -> Vec<Vec<usize>> {
        let after = self.post_dominators();
        let decided = |branch: usize| {
            let on_one_way = |x: usize| self.next[branch].iter().any(|&next| after[next][x]);
            let on_all_ways = |x: usize| after[branch][x] && x != branch;
            (0..self.blocks.len()).filter(|&x| on_one_way(x) && !on_all_ways(x)).collect()
        };
        (0..self.blocks.len()).map(decided).collect()
    }

    /// Reachable blocks that never reach the exit.
    pub(super) fn endless(&self) -> Vec<usize> {
        let exit = self.blocks.len();
        let mut ends = vec![false; exit];
        ends.push(true);
        for _ in 0..exit {
            for block in (0..exit).rev() {
                ends[block] |= self.next[block].iter().any(|&next| ends[next]);
            }
        }
        (0..exit).filter(|&block| !ends[block]).collect()
    }
}
