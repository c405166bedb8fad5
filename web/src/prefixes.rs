//! A prefix tree of a few responses.

use crate::Error;
use lockstep::ops::tree::{Outcomes, prefix_tree};
use lockstep::{Batch, Device};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Their characters are tokens.
    responses: Vec<String>,
    rewards: Vec<f32>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// The change of V at each token of each response: TEMPO's correction before it is scaled.
    change: Vec<Vec<f32>>,
}

#[derive(Debug, Serialize)]
struct Node {
    text: String,
    value: f64,
    passing: usize,
    ends: Vec<usize>,
    children: Vec<usize>,
}

/// Builds the tree. Errors: the library's own about the batch and the rewards.
pub(crate) fn tree(device: &Device, request: &Request) -> Result<Tree, Error> {
    let responses: Vec<Vec<char>> = request.responses.iter().map(|text| text.chars().collect()).collect();
    let mut cu_seqlens = vec![0];
    for response in &responses {
        cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + response.len() as u32);
    }
    let tokens: Vec<u32> = responses.iter().flatten().map(|c| u32::from(*c)).collect();
    let cu_groups = [0, responses.len() as u32];
    let (batch, outcomes) = (Batch::new(&cu_seqlens, &cu_groups, None)?, Outcomes::new(&request.rewards));
    let tree = prefix_tree(device, &batch, tokens[..].into(), &outcomes, None)?;
    let node = |node: lockstep::ops::tree::Node| Node {
        text: responses[node.sequence][node.from..node.to].iter().collect(),
        value: node.value,
        passing: node.passing,
        ends: node.ends,
        children: node.children,
    };
    let nodes = tree.nodes(&batch, &outcomes, 0)?.into_iter().map(node).collect();
    let change = tree.advantages(device, &batch, &outcomes, None, None)?;
    let of = |pair: &[u32]| change[pair[0] as usize..pair[1] as usize].to_vec();
    Ok(Tree { nodes, change: cu_seqlens.windows(2).map(of).collect() })
}
