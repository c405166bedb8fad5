//! TEMPO, docs/maths/trees.md: an explicit trie, walked token by token.

use std::collections::BTreeMap;

/// A node: a prefix of tokens.
#[derive(Debug, Default)]
struct Trie {
    children: BTreeMap<u32, Trie>,
    /// Reward of the last response through this node.
    reward: Option<f64>,
    weighted: f64,
    magnitude: f64,
    weight: f64,
    responses: usize,
}

impl Trie {
    fn insert(&mut self, tokens: &[u32], reward: f64, weight: f64) {
        self.responses += 1;
        if !reward.is_nan() {
            self.reward = Some(reward);
            self.weighted += weight * reward;
            self.magnitude += (weight * reward).abs();
            self.weight += weight;
        }
        if let Some((token, rest)) = tokens.split_first() {
            self.children.entry(*token).or_default().insert(rest, reward, weight);
        }
    }

    /// V with the magnitude of its terms. A node that only one response passes is worth that response's
    /// reward, whatever its weight: the weighted mean of a single value.
    fn value(&self) -> Option<(f64, f64)> {
        if self.responses == 1 {
            return self.reward.map(|reward| (reward, reward.abs()));
        }
        (self.weight > 0.0).then(|| (self.weighted / self.weight, self.magnitude / self.weight))
    }
}

/// V(s_{t+1}) − V(s_t) for every token of every response of a group, with the magnitude of the two values; 0
/// where either is missing.
///
/// A NaN reward enters no value. With `pad`, responses continue as that token to the length of the longest.
pub fn corrections(
    responses: &[Vec<u32>],
    rewards: &[f64],
    weights: &[f64],
    pad: Option<u32>,
) -> Vec<Vec<(f64, f64)>> {
    let longest = responses.iter().map(Vec::len).max().unwrap_or(0);
    let mut root = Trie::default();
    for (k, response) in responses.iter().enumerate() {
        let mut path = response.clone();
        if let Some(pad) = pad {
            path.resize(longest, pad);
        }
        root.insert(&path, rewards[k], weights[k]);
    }
    let walk = |response: &Vec<u32>| {
        let (mut node, mut out) = (Some(&root), Vec::new());
        for token in response {
            let next = node.and_then(|node| node.children.get(token));
            let values = (node.and_then(Trie::value), next.and_then(Trie::value));
            out.push(match values {
                (Some(before), Some(after)) => (after.0 - before.0, after.1 + before.1),
                _ => (0.0, 0.0),
            });
            node = next;
        }
        out
    };
    responses.iter().map(walk).collect()
}
