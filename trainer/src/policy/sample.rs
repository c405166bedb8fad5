//! Samples of a model.

use anyhow::Result;
use rayon::prelude::*;

use super::shards;
use crate::model::{Model, Routes};
use crate::random::Stream;
use crate::routing::Record;
use crate::vocab::END;

/// A sampled response, with each token's log-probability at the time of sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The tokens.
    pub response: Vec<u32>,
    /// One log-probability per token.
    pub logp: Vec<f32>,
    /// The routing of prompt and response, if the model records it.
    pub routed: Option<Record>,
}

/// The environment of responses: the next token after a prompt and a part of a response, if it is not the
/// policy's.
pub type Environment<'a> = dyn Fn(&[u32]) -> Option<u32> + Sync + 'a;

/// Samples one response of at most `limit` tokens per prompt, at temperature 1, each from its own random
/// stream, in no environment.
pub fn sample(
    model: &Model,
    prompts: &[Vec<u32>],
    limit: usize,
    stream: impl Fn(u64) -> Stream + Sync,
) -> Result<Vec<Sampled>> {
    sample_up_to(model, prompts, &vec![limit; prompts.len()], &|_| None, stream)
}

/// Like [`sample`], with a limit for each prompt, in an environment. What this says counts towards the limit,
/// and has log-probabilities too.
pub fn sample_up_to(
    model: &Model,
    prompts: &[Vec<u32>],
    limits: &[usize],
    environment: &Environment<'_>,
    stream: impl Fn(u64) -> Stream + Sync,
) -> Result<Vec<Sampled>> {
    let draw = |row| {
        let mut stream = stream(row);
        move |log_probs: &[f32]| pick(log_probs, stream.unit())
    };
    respond(model, prompts, limits, environment, draw)
}

/// Decodes greedily: the most probable token at every position for each prompt; ties go to the lowest token
/// id. See [`sample_up_to`].
pub fn greedy(
    model: &Model,
    prompts: &[Vec<u32>],
    limit: usize,
    environment: &Environment<'_>,
) -> Result<Vec<Sampled>> {
    respond(model, prompts, &vec![limit; prompts.len()], environment, |_| likeliest)
}

/// Generates one response per prompt; the row's `chooser` picks each token from the log-probabilities unless
/// the environment says it.
fn respond<C: FnMut(&[f32]) -> usize>(
    model: &Model,
    prompts: &[Vec<u32>],
    limits: &[usize],
    environment: &Environment<'_>,
    chooser: impl Fn(u64) -> C + Sync,
) -> Result<Vec<Sampled>> {
    let rows: Vec<(u64, &Vec<u32>)> = (0..).zip(prompts).collect();
    let next = |row: u64| {
        let (mut choose, mut read) = (chooser(row), prompts[row as usize].clone());
        move |log_probs: &[f32]| {
            // Chosen in any case, so that a random draw belongs to its position in the response.
            let chosen = choose(log_probs);
            let token = environment(&read).map_or(chosen, |token| token as usize);
            read.push(token as u32);
            token
        }
    };
    let parts: Vec<Vec<Sampled>> = shards(&rows)
        .into_par_iter()
        .map(|shard| respond_shard(model, shard, limits, &next))
        .collect::<Result<_>>()?;
    Ok(parts.concat())
}

/// All rows advance position by position; a row with a longer prompt still reads while others already write.
fn respond_shard<C: FnMut(&[f32]) -> usize>(
    model: &Model,
    shard: &[(u64, &Vec<u32>)],
    limits: &[usize],
    chooser: &(impl Fn(u64) -> C + Sync),
) -> Result<Vec<Sampled>> {
    let rows = shard.len();
    let mut choosers: Vec<C> = shard.iter().map(|&(row, _)| chooser(row)).collect();
    let mut sampled = vec![Sampled::default(); rows];
    let mut done = vec![false; rows];
    let mut cache = model.cache(rows)?;
    // The prompt tokens that all rows read before any of them writes.
    let mut seen = shard.iter().map(|(_, p)| p.len()).min().unwrap_or(1);
    let mut tokens: Vec<u32> = (0..seen).flat_map(|t| shard.iter().map(move |(_, p)| p[t])).collect();
    let mut routes = model.records().then(Routes::default);
    loop {
        let hidden = model.hidden(&tokens, rows, Some(&mut cache), routes.as_mut())?;
        let last = hidden.narrow(0, tokens.len() - rows, rows)?;
        let log_probs: Vec<Vec<f32>> = model.log_probs(&last)?.to_vec2()?;
        tokens.clear();
        for (row, &(index, prompt)) in shard.iter().enumerate() {
            let token = match prompt.get(seen) {
                Some(&token) => token,
                None if done[row] => END,
                None => {
                    let token = choosers[row](&log_probs[row]);
                    sampled[row].response.push(token as u32);
                    sampled[row].logp.push(log_probs[row][token]);
                    done[row] = token as u32 == END || sampled[row].response.len() == limits[index as usize];
                    token as u32
                }
            };
            tokens.push(token);
        }
        if done.iter().all(|&d| d) {
            break;
        }
        seen += 1;
    }
    if let Some(routes) = &routes {
        for (row, (_, prompt)) in shard.iter().enumerate() {
            let tokens = prompt.len() + sampled[row].response.len();
            sampled[row].routed = Some(Record::of(model.shape(), routes, rows, row, tokens)?);
        }
    }
    Ok(sampled)
}

/// The first token at which the cumulative probability exceeds `u`.
pub(crate) fn pick(log_probs: &[f32], u: f32) -> usize {
    let mut sum = 0.0;
    let passed = log_probs.iter().position(|&lp| {
        sum += lp.exp();
        sum > u
    });
    // Rounding may leave the sum slightly below 1: fall back to the most probable token.
    passed.unwrap_or_else(|| likeliest(log_probs))
}

/// The most probable token; ties go to the lowest id.
fn likeliest(log_probs: &[f32]) -> usize {
    (0..log_probs.len()).rev().max_by(|&a, &b| log_probs[a].total_cmp(&log_probs[b])).unwrap_or(0)
}
