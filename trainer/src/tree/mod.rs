//! `lockstep tree`: draws the prefix tree of a group of rollouts, as text and as an HTML page.

mod page;
mod shape;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lockstep::ops::tree::{Outcomes, TreeStatistics, prefix_tree};
use lockstep::{Column, Device, RolloutsBuf};

use crate::rl::column;
use crate::{atomic, files};
use shape::Shape;

/// Arguments of `lockstep tree`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct TreeArgs {
    /// A safetensors file with cu_seqlens, cu_groups, rewards and tokens, as written by
    /// `train --dump-rollouts`
    #[arg(value_name = "ROLLOUTS.safetensors")]
    pub rollouts: PathBuf,
    /// Index of the group, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub group: usize,
    /// Also write an HTML page with a drawing of the tree
    #[arg(short, long, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
}

/// Runs `lockstep tree` and returns what it prints.
pub fn tree(args: &TreeArgs) -> Result<String> {
    if let Some(path) = &args.output {
        atomic::check(path)?;
        atomic::check_apart(path, &[&args.rollouts])?;
    }
    let (rollouts, _) = files::read_rollouts(&args.rollouts, true)?;
    let drawn = Drawn::new(&rollouts, args.group).with_context(|| args.rollouts.display().to_string())?;
    let mut said = drawn.head() + &text::draw(&drawn.shape);
    if let Some(path) = &args.output {
        atomic::write(path, page::html(&drawn).as_bytes())?;
        said += &format!("written: {}\n", path.display());
    }
    Ok(said)
}

/// A group's tree, ready to draw.
struct Drawn {
    group: usize,
    groups: usize,
    statistics: TreeStatistics,
    shape: Shape,
}

impl Drawn {
    fn new(rollouts: &RolloutsBuf, group: usize) -> Result<Self> {
        let groups = rollouts.batch()?.groups();
        ensure!(group < groups, "there is no group {group}: the file has {groups}, counted from 0");
        let (part, _) = rollouts.view().select(&[group])?;
        let batch = part.batch()?;
        let tokens = column(&part.tokens, Column::tokens)
            .context("a prefix tree needs token ids; `lockstep train --dump-rollouts` writes them")?;
        let rewards = column(&part.rewards, Column::rewards)?;
        let tree = prefix_tree(&Device::cpu(), &batch, tokens.into(), &Outcomes::new(rewards), None)?;
        let statistics = tree.statistics(&batch);
        let shape = Shape::new(&tree, &batch, tokens, rewards)?;
        Ok(Self { group, groups, statistics, shape })
    }

    /// A few lines of statistics about the group.
    fn head(&self) -> String {
        let TreeStatistics { branches, tokens, tree_tokens, depths, .. } = &self.statistics;
        let mut head = format!(
            "group {} of {}: {} responses, {tokens} tokens, {:.1} % of them shared, {tree_tokens} in the \
             tree, {branches} branches\n",
            self.group,
            self.groups,
            self.shape.rewards.len(),
            100.0 * self.statistics.shared_fraction()
        );
        let bins = depths.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bin, count)| match bin {
            0 => format!("0: {count}"),
            1 => format!("1: {count}"),
            _ => format!("{} to {}: {count}", 1u64 << (bin - 1), (1u64 << bin) - 1),
        });
        let bins: Vec<String> = bins.collect();
        if !bins.is_empty() {
            head += &format!("branches by depth: {}\n", bins.join(", "));
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(words: &[&[u32]], rewards: &[f32]) -> RolloutsBuf {
        let ends = words.iter().scan(0, |end, word| {
            *end += word.len() as u32;
            Some(*end)
        });
        RolloutsBuf {
            cu_seqlens: Some(std::iter::once(0).chain(ends).collect()),
            cu_groups: Some(vec![0, words.len() as u32]),
            rewards: Some(rewards.to_vec()),
            tokens: Some(words.concat()),
            ..RolloutsBuf::default()
        }
    }

    /// abc (1), abd (0), aef (0), ab (no reward), ghi (1), all after x.
    fn example() -> RolloutsBuf {
        let words = ["xabc", "xabd", "xaef", "xab", "xghi"];
        let words = words.map(|word| word.chars().map(|c| c as u32 - 96).collect::<Vec<u32>>());
        batch(&words.each_ref().map(|word| &word[..]), &[1.0, 0.0, 0.0, f32::NAN, 1.0])
    }

    #[test]
    fn the_text() {
        let drawn = Drawn::new(&example(), 0).unwrap();
        let want = "\
group 0 of 1: 5 responses, 19 tokens, 63.2 % of them shared, 10 in the tree, 3 branches
branches by depth: 1: 1, 2 to 3: 2
0..1  V 0.5000  n 5  [24]
├─ 1..2  V 0.3333  n 4  [1]
│  ├─ 2..3  V 0.5000  n 3  [2]  ends: #3 no reward
│  │  ├─ 3..4  V 1.0000  [3]  ends: #0 reward 1
│  │  └─ 3..4  V 0.0000  [4]  ends: #1 reward 0
│  └─ 2..4  V 0.0000  [5 6]  ends: #2 reward 0
└─ 1..4  V 1.0000  [7 8 9]  ends: #4 reward 1
";
        assert_eq!(drawn.head() + &text::draw(&drawn.shape), want);
    }

    #[test]
    fn the_page_holds_everything_and_fetches_nothing() {
        let page = page::html(&Drawn::new(&example(), 0).unwrap());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("<svg") && page.contains("V 0.3333") && page.contains("#4"));
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("NaN"));
    }

    #[test]
    fn errors() {
        let mut rollouts = example();
        let message = |rollouts: &RolloutsBuf, group| {
            format!("{:#}", Drawn::new(rollouts, group).map(drop).unwrap_err())
        };
        assert!(message(&rollouts, 1).contains("no group 1"));
        rollouts.tokens = None;
        assert!(message(&rollouts, 0).contains("no tokens"));
    }

    #[test]
    fn equal_and_single_responses() {
        let rollouts = |words: &[&[u32]]| batch(words, &vec![1.0; words.len()]);
        let draw = |words: &[&[u32]]| text::draw(&Drawn::new(&rollouts(words), 0).unwrap().shape);
        assert_eq!(draw(&[&[1, 2]]), "0..2  V 1.0000  [1 2]  ends: #0 reward 1\n");
        assert_eq!(draw(&[&[1, 2], &[1, 2]]), "0..2  V 1.0000  n 2  [1 2]  ends: #0 reward 1, #1 reward 1\n");
    }
}
