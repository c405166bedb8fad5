//! What the loop asks of a model: log-probabilities of responses with their gradient, and samples. Work is split into a
//! fixed number of shards, whatever the number of threads, and their results are added in order: threads change no bit.

use anyhow::{Result, anyhow};
use candle_core::Tensor;
use rayon::prelude::*;

use crate::model::{Model, Shape, Weights};
use crate::random::Stream;
use crate::vocab::END;

/// One prompt with one response (which ends with the end token unless it was cut off), as tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// What the model reads.
    pub prompt: Vec<u32>,
    /// What it says; never empty.
    pub response: Vec<u32>,
}

/// Into how many parts a batch is cut.
const SHARDS: usize = 4;

fn shards<T>(items: &[T]) -> Vec<&[T]> {
    items.chunks(items.len().div_ceil(SHARDS).max(1)).collect()
}

/// Log-probabilities of the response tokens, sequence after sequence, still attached to their graph.
pub struct Pass<'a> {
    model: &'a Model,
    parts: Vec<Tensor>,
    /// The values of all parts, packed `[N]`.
    pub logp: Vec<f32>,
}

impl<'a> Pass<'a> {
    /// Runs the model over the sequences.
    pub fn new(model: &'a Model, sequences: &[Sequence]) -> Result<Self> {
        let parts: Vec<Tensor> = shards(sequences)
            .into_par_iter()
            .map(|shard| response_logp(model, shard))
            .collect::<Result<_>>()?;
        let mut logp = Vec::new();
        for part in &parts {
            logp.extend(part.to_vec1::<f32>()?);
        }
        Ok(Self { model, parts, logp })
    }

    /// The gradient of `sum(logp * coefficients)` for every weight.
    pub fn gradients(&self, coefficients: &[f32]) -> Result<Vec<Vec<f32>>> {
        let mut rest = coefficients;
        let mut jobs = Vec::new();
        for part in &self.parts {
            let (head, tail) =
                rest.split_at_checked(part.elem_count()).ok_or_else(|| anyhow!("too few coefficients"))?;
            jobs.push((part, head));
            rest = tail;
        }
        let grads: Vec<Vec<Vec<f32>>> =
            jobs.into_par_iter().map(|(part, c)| self.model.gradients(part, c)).collect::<Result<_>>()?;
        grads.into_iter().reduce(add).ok_or_else(|| anyhow!("no sequences"))
    }
}

fn add(mut a: Vec<Vec<f32>>, b: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    for (a, b) in a.iter_mut().flatten().zip(b.iter().flatten()) {
        *a += b;
    }
    a
}

/// Log-probabilities of the response tokens under given weights, packed `[N]`; no gradient.
pub fn log_probs(shape: &Shape, weights: &Weights, sequences: &[Sequence]) -> Result<Vec<f32>> {
    Ok(Pass::new(&Model::frozen(shape, weights)?, sequences)?.logp)
}

fn response_logp(model: &Model, sequences: &[Sequence]) -> Result<Tensor> {
    let rows = sequences.len();
    let longest = sequences.iter().map(|s| s.prompt.len() + s.response.len()).max().unwrap_or(1);
    // The last token of a sequence is predicted, never read.
    let mut tokens = vec![END; (longest - 1) * rows];
    let (mut at, mut target) = (Vec::new(), Vec::new());
    for (row, s) in sequences.iter().enumerate() {
        for (t, &token) in s.prompt.iter().chain(&s.response).take(longest - 1).enumerate() {
            tokens[t * rows + row] = token;
        }
        for (i, &token) in s.response.iter().enumerate() {
            at.push(((s.prompt.len() - 1 + i) * rows + row) as u32);
            target.push(token);
        }
    }
    let n = at.len();
    let hidden = model.hidden(&tokens, rows, None)?;
    let device = hidden.device();
    let rows = hidden.index_select(&Tensor::from_vec(at, n, device)?, 0)?;
    Ok(model.log_probs(&rows)?.gather(&Tensor::from_vec(target, (n, 1), device)?, 1)?.squeeze(1)?)
}

/// A sampled response and the log-probability of each of its tokens at the moment of sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The tokens.
    pub response: Vec<u32>,
    /// One log-probability a token.
    pub logp: Vec<f32>,
}

/// Samples one response of at most `limit` tokens for each prompt, at temperature 1, each from its own random stream.
pub fn sample(
    model: &Model,
    prompts: &[Vec<u32>],
    limit: usize,
    stream: impl Fn(u64) -> Stream + Sync,
) -> Result<Vec<Sampled>> {
    let rows: Vec<(u64, &Vec<u32>)> = (0..).zip(prompts).collect();
    let parts: Vec<Vec<Sampled>> = shards(&rows)
        .into_par_iter()
        .map(|shard| sample_shard(model, shard, limit, &stream))
        .collect::<Result<_>>()?;
    Ok(parts.concat())
}

/// All rows advance position by position; a row whose prompt is longer than the others' reads it while they already write.
fn sample_shard(
    model: &Model,
    shard: &[(u64, &Vec<u32>)],
    limit: usize,
    stream: &(impl Fn(u64) -> Stream + Sync),
) -> Result<Vec<Sampled>> {
    let rows = shard.len();
    let mut streams: Vec<Stream> = shard.iter().map(|&(row, _)| stream(row)).collect();
    let mut sampled = vec![Sampled::default(); rows];
    let mut done = vec![false; rows];
    let mut cache = model.cache(rows)?;
    // What all rows read before the first of them writes.
    let mut seen = shard.iter().map(|(_, p)| p.len()).min().unwrap_or(1);
    let mut tokens: Vec<u32> = (0..seen).flat_map(|t| shard.iter().map(move |(_, p)| p[t])).collect();
    loop {
        let hidden = model.hidden(&tokens, rows, Some(&mut cache))?;
        let last = hidden.narrow(0, tokens.len() - rows, rows)?;
        let log_probs: Vec<Vec<f32>> = model.log_probs(&last)?.to_vec2()?;
        tokens.clear();
        for (row, (_, prompt)) in shard.iter().enumerate() {
            let token = match prompt.get(seen) {
                Some(&token) => token,
                None if done[row] => END,
                None => {
                    let token = pick(&log_probs[row], streams[row].unit());
                    sampled[row].response.push(token as u32);
                    sampled[row].logp.push(log_probs[row][token]);
                    done[row] = token as u32 == END || sampled[row].response.len() == limit;
                    token as u32
                }
            };
            tokens.push(token);
        }
        if done.iter().all(|&d| d) {
            return Ok(sampled);
        }
        seen += 1;
    }
}

/// The first token at which the cumulated probability passes `u`.
fn pick(log_probs: &[f32], u: f32) -> usize {
    let mut sum = 0.0;
    let passed = log_probs.iter().position(|&lp| {
        sum += lp.exp();
        sum > u
    });
    // Rounding may leave the sum a little below 1: then the likeliest token.
    passed.unwrap_or_else(|| {
        (0..log_probs.len()).rev().max_by(|&a, &b| log_probs[a].total_cmp(&log_probs[b])).unwrap_or(0)
    })
}
