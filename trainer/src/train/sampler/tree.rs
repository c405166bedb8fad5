//! LATR's tree of rollouts: where a second token is likely enough, a rollout branches; branches that turn out
//! to say the same as the rollout they left, or to fall behind, are pruned with what branched off them. The
//! rules are those of [`lockstep::schedules::latr`].
//!
//! As in the released code (starreeze/latr, `model/generation.py`, `sample_nk = "full"`) a rollout takes the
//! likeliest token while its tree has room, and draws its tokens once the tree is full.

use anyhow::Result;
use lockstep::core::num::exp64;
use lockstep::schedule::{Latr, falls_behind, latr_fit, latr_prunes};
use rayon::prelude::*;

use super::SamplerRecord;
use crate::model::Model;
use crate::policy::{Sampled, pick, shards};
use crate::vocab::END;

/// Tokens between two comparisons with the likeliest branch, as released.
const COMPARE_EVERY: usize = 10;

/// The rules of a tree.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Where a rollout branches, and which branches say the same.
    pub(super) latr: Latr,
    /// The threshold below which a branch falls behind, if there is one.
    pub(super) behind: Option<f64>,
    /// Maximum number of tokens in a response.
    pub(super) limit: usize,
}

/// A rollout of a tree, from the root to where it is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Leaf {
    tokens: Vec<u32>,
    logp: Vec<f32>,
    /// Its place in the group, the name of its draws; a pruned rollout's place is given away.
    place: usize,
    /// The place of the rollout that it left, and the position at which it did.
    parent: Option<(usize, usize)>,
    ended: bool,
    /// Its row in the model's last pass.
    row: usize,
}

impl Leaf {
    fn push(&mut self, token: usize, log_probs: &[f32], limit: usize) {
        self.tokens.push(token as u32);
        self.logp.push(log_probs[token]);
        self.ended = token as u32 == END || self.tokens.len() == limit;
    }

    fn log_p(&self) -> f64 {
        self.logp.iter().map(|x| f64::from(*x)).sum()
    }
}

/// The tree of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    /// Parents come before their children.
    leaves: Vec<Leaf>,
    capacity: usize,
    record: SamplerRecord,
}

impl Tree {
    /// A root with room for `capacity` rollouts, at least 1; the model runs it as row `row`.
    pub(super) fn new(capacity: usize, row: usize) -> Self {
        let root = Leaf { row, ..Leaf::default() };
        Self { leaves: vec![root], capacity, record: SamplerRecord::default() }
    }

    /// Appends a token to every rollout that goes on, and adds the branches that it takes there. `log_probs`
    /// are those of the model's rows; `draw` gives the number of a place and a position.
    fn grow(
        &mut self,
        rules: &Rules,
        log_probs: &[Vec<f32>],
        draw: impl Fn(usize, usize) -> f32,
    ) -> Result<()> {
        let is_full = self.leaves.len() == self.capacity;
        let open: Vec<usize> = (0..self.leaves.len()).filter(|at| !self.leaves[*at].ended).collect();
        self.record.tokens += open.len() as u64;
        if is_full {
            for leaf in self.leaves.iter_mut().filter(|leaf| !leaf.ended) {
                let row = &log_probs[leaf.row];
                leaf.push(pick(row, draw(leaf.place, leaf.tokens.len())), row, rules.limit);
            }
            return Ok(());
        }
        let ranked: Vec<Vec<usize>> = open
            .iter()
            .map(|at| ranked(&log_probs[self.leaves[*at].row], rules.latr.candidates as usize))
            .collect();
        let mut candidates = Vec::new();
        for (at, tokens) in open.iter().zip(&ranked) {
            let row = &log_probs[self.leaves[*at].row];
            // Rounding may leave a log-probability slightly above 0.
            let probability = |token: &usize| exp64(row[*token].into()).min(1.0);
            candidates.push(rules.latr.branches(&tokens.iter().map(probability).collect::<Vec<_>>())?);
        }
        let room = self.capacity - (self.leaves.len() - open.len());
        let kept = latr_fit(&candidates, room as u32)?;
        for ((at, tokens), kept) in open.into_iter().zip(ranked).zip(kept) {
            for token in &tokens[1..kept as usize] {
                let place = (0..).find(|place| self.leaves.iter().all(|leaf| leaf.place != *place));
                let stem = &self.leaves[at];
                let parent = Some((stem.place, stem.tokens.len()));
                let mut branch = Leaf { place: place.unwrap_or_default(), parent, ..stem.clone() };
                branch.push(*token, &log_probs[stem.row], rules.limit);
                self.leaves.push(branch);
                self.record.tokens += 1;
                self.record.branches += 1;
            }
            let leaf = &mut self.leaves[at];
            leaf.push(tokens[0], &log_probs[leaf.row], rules.limit);
        }
        Ok(())
    }

    /// Prunes branches, with what branched off them.
    fn prune(&mut self, rules: &Rules) -> Result<()> {
        let likeliest = self.leaves.iter().map(Leaf::log_p).fold(f64::NEG_INFINITY, f64::max);
        // A full tree has won its race.
        let race = rules.behind.filter(|_| self.leaves.len() < self.capacity);
        let mut pruned: Vec<usize> = Vec::new();
        for leaf in &self.leaves {
            let Some((place, birth)) = leaf.parent else { continue };
            if pruned.contains(&place) {
                pruned.push(leaf.place);
                continue;
            }
            let (age, position) = (leaf.tokens.len() - birth, leaf.tokens.len());
            let parent = self.leaves.iter().find(|parent| parent.place == place);
            let Some(parent) = parent.filter(|_| !leaf.ended) else { continue };
            let same = rules.latr.compares(age as u32)
                && !parent.ended
                && latr_prunes(&rules.latr, &leaf.tokens[birth..], &parent.tokens[birth..], Some(END))?;
            let behind = match race.filter(|_| position.is_multiple_of(COMPARE_EVERY)) {
                Some(threshold) => falls_behind(leaf.log_p(), likeliest, position as u32, threshold)?,
                None => false,
            };
            if same || behind {
                pruned.push(leaf.place);
            }
        }
        self.leaves.retain(|leaf| !pruned.contains(&leaf.place));
        self.record.pruned += pruned.len() as u64;
        Ok(())
    }

    /// Its rollouts, and what it took to make them.
    pub(super) fn finish(mut self) -> (Vec<Sampled>, SamplerRecord) {
        let shared = |leaf: &Leaf| leaf.parent.map_or(0, |(_, birth)| birth as u64);
        self.record.saved = self.leaves.iter().map(shared).sum();
        let sampled = |leaf: Leaf| Sampled { response: leaf.tokens, logp: leaf.logp, routed: None };
        (self.leaves.into_iter().map(sampled).collect(), self.record)
    }
}

/// The likeliest tokens of a row, at most `n`; ties go to the lowest id.
fn ranked(log_probs: &[f32], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..log_probs.len()).collect();
    order.sort_by(|a, b| log_probs[*b].total_cmp(&log_probs[*a]));
    order.truncate(n);
    order
}

/// Grows a tree for each prompt, with room for `capacity` rollouts; `draw` gives the number in `[0, 1)` of a
/// prompt, a place and a position. Returns each tree's rollouts and counts.
pub(super) fn grow(
    model: &Model,
    prompts: &[Vec<u32>],
    rules: &Rules,
    capacity: usize,
    draw: impl Fn(usize, usize, usize) -> f32 + Sync,
) -> Result<Vec<(Vec<Sampled>, SamplerRecord)>> {
    let numbered: Vec<(usize, &Vec<u32>)> = prompts.iter().enumerate().collect();
    let parts: Vec<Vec<Tree>> = shards(&numbered)
        .into_par_iter()
        .map(|shard| grow_shard(model, shard, rules, capacity, &draw))
        .collect::<Result<_>>()?;
    Ok(parts.into_iter().flatten().map(Tree::finish).collect())
}

/// All trees of a shard grow position by position. The cache of a prefix is copied to the branches that leave
/// it, and rollouts that ended or were pruned are run no longer.
fn grow_shard(
    model: &Model,
    shard: &[(usize, &Vec<u32>)],
    rules: &Rules,
    capacity: usize,
    draw: &(impl Fn(usize, usize, usize) -> f32 + Sync),
) -> Result<Vec<Tree>> {
    let mut trees: Vec<Tree> = (0..shard.len()).map(|row| Tree::new(capacity, row)).collect();
    let (mut rows, mut cache) = (shard.len(), model.cache(shard.len())?);
    // The prompt tokens that all trees read before any of them grows.
    let mut seen = shard.iter().map(|(_, p)| p.len()).min().unwrap_or(1);
    let mut tokens: Vec<u32> = (0..seen).flat_map(|t| shard.iter().map(move |(_, p)| p[t])).collect();
    while !tokens.is_empty() {
        let hidden = model.hidden(&tokens, rows, Some(&mut cache), None)?;
        let last = hidden.narrow(0, tokens.len() - rows, rows)?;
        let log_probs: Vec<Vec<f32>> = model.log_probs(&last)?.to_vec2()?;
        tokens.clear();
        let mut from = Vec::new();
        for ((index, prompt), tree) in shard.iter().zip(&mut trees) {
            let read = prompt.get(seen);
            if read.is_none() {
                tree.grow(rules, &log_probs, |place, position| draw(*index, place, position))?;
                tree.prune(rules)?;
            }
            for leaf in tree.leaves.iter_mut().filter(|leaf| !leaf.ended) {
                from.push(leaf.row as u32);
                leaf.row = tokens.len();
                tokens.extend(read.or(leaf.tokens.last()));
            }
        }
        seen += 1;
        if !tokens.is_empty() && !from.iter().copied().eq(0..rows as u32) {
            cache = cache.select(&from)?;
            rows = from.len();
        }
    }
    Ok(trees)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { latr: Latr { ages: [2; 3], ..PAPER }, behind: None, limit: 6 };
    /// As in `Latr::default`.
    const PAPER: Latr = Latr {
        probability: 0.15,
        gap: 0.25,
        candidates: 2,
        ages: [20, 30, 50],
        suffix: 0.2,
        rouge: 0.5,
        edit: None,
    };

    /// Grows a tree by a position, from the probabilities after each rollout's tokens, and prunes it.
    fn step(tree: &mut Tree, rules: &Rules, probabilities: impl Fn(&[u32]) -> [f32; 5]) {
        let mut rows = Vec::new();
        for leaf in &mut tree.leaves {
            leaf.row = rows.len();
            rows.push(probabilities(&leaf.tokens).map(f32::ln).to_vec());
        }
        // The draw of a place is in the middle of its token's part of the line, if that has one fifth.
        tree.grow(rules, &rows, |place, _| place as f32 / 5.0 + 0.1).unwrap();
        tree.prune(rules).unwrap();
    }

    fn said(tree: &Tree) -> Vec<(usize, &[u32])> {
        tree.leaves.iter().map(|leaf| (leaf.place, &leaf.tokens[..])).collect()
    }

    const EVEN: [f32; 5] = [0.2; 5];
    const SURE: [f32; 5] = [0.0, 0.0, 0.0, 0.9, 0.1];

    /// 0.3 is above 0.15 and 0.2 below 0.5. There is room for three: the second candidate of the first
    /// rollout comes before that of the second one.
    #[test]
    fn a_tree_by_hand() {
        let (mut tree, rules) = (Tree::new(3, 0), Rules { latr: PAPER, ..RULES });
        step(&mut tree, &rules, |_| [0.0, 0.5, 0.3, 0.2, 0.0]);
        assert_eq!(said(&tree), [(0, &[1][..]), (1, &[2])]);
        step(&mut tree, &rules, |_| [0.0, 0.0, 0.1, 0.45, 0.4]);
        assert_eq!(said(&tree), [(0, &[1, 3][..]), (1, &[2, 3]), (2, &[1, 4])]);
    }

    #[test]
    fn a_full_tree_draws_and_a_tree_with_room_takes_the_likeliest() {
        let mut tree = Tree::new(2, 0);
        step(&mut tree, &RULES, |_| [0.0, 0.5, 0.24, 0.24, 0.02]);
        assert_eq!(said(&tree), [(0, &[1][..])], "0.26 below");
        step(&mut tree, &RULES, |_| [0.35, 0.0, 0.65, 0.0, 0.0]);
        step(&mut tree, &RULES, |_| [0.0, 0.0, 0.0, 0.5, 0.5]);
        assert_eq!(said(&tree), [(0, &[1, 2, 3][..]), (1, &[1, 2, 4])]);
        step(&mut tree, &RULES, |_| EVEN);
        assert_eq!(said(&tree), [(0, &[1, 2, 3, 0][..]), (1, &[1, 2, 4, 1])]);
        step(&mut tree, &RULES, |_| EVEN);
        step(&mut tree, &RULES, |_| EVEN);
        assert!(tree.leaves.iter().all(|leaf| leaf.ended), "one by the end token, one by the limit");
        let logs = |probabilities: &[f32]| probabilities.iter().map(|p| p.ln()).collect::<Vec<f32>>();
        let (rollouts, record) = tree.finish();
        assert_eq!(rollouts[0].logp, logs(&[0.5, 0.65, 0.5, 0.2]));
        assert_eq!(rollouts[1].logp, logs(&[0.5, 0.65, 0.5, 0.2, 0.2, 0.2]), "the prefix is the stem's");
        assert_eq!(record, SamplerRecord { tokens: 8, saved: 2, branches: 1, pruned: 0 });
    }

    /// Two tokens after it left, a branch has said 2 3 where the stem said 1 3: half of that is the same.
    /// What branched off it goes too, and its place is given to the next branch.
    #[test]
    fn branches_that_say_the_same_are_pruned_with_their_own() {
        let mut tree = Tree::new(4, 0);
        step(&mut tree, &RULES, |_| [0.0, 0.5, 0.3, 0.2, 0.0]);
        step(&mut tree, &RULES, |said| if said == [2] { [0.0, 0.0, 0.1, 0.5, 0.4] } else { SURE });
        assert_eq!(said(&tree), [(0, &[1, 3][..])]);
        let counts = |tree: &Tree| (tree.record.tokens, tree.record.branches, tree.record.pruned);
        assert_eq!(counts(&tree), (5, 2, 2));
        step(&mut tree, &RULES, |_| [0.4, 0.6, 0.0, 0.0, 0.0]);
        assert_eq!(said(&tree), [(0, &[1, 3, 1][..]), (1, &[1, 3, 0])], "a branch that ends at once");
        step(&mut tree, &RULES, |_| SURE);
        assert_eq!(tree.leaves.len(), 2, "one that has ended is not compared");
        assert_eq!(counts(&tree), (8, 3, 2));
    }

    /// At the tenth token the branch is 9·ln 2 − ln 0.6 = 6.75 below the stem; 10·ln 0.6 is −5.1, 10·ln 0.4
    /// is −9.2.
    #[test]
    fn branches_that_fall_behind_are_pruned() {
        let left = |behind| {
            let rules = Rules { latr: PAPER, behind, limit: 20 };
            let mut tree = Tree::new(3, 0);
            step(&mut tree, &rules, |_| [0.0, 0.5, 0.3, 0.2, 0.0]);
            for _ in 1..10 {
                let of = |said: &[u32]| if said[0] == 1 { SURE } else { [0.0, 0.0, 0.0, 0.1, 0.45] };
                step(&mut tree, &rules, of);
            }
            tree.leaves.len()
        };
        assert_eq!([None, Some(0.4), Some(0.6)].map(left), [2, 2, 1]);
    }
}
