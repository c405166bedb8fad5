//! What the loop asks of a model: log-probabilities of responses with their gradient, and samples. Work is split into a
//! fixed number of shards, whatever the number of threads, and their results are added in order: threads change no bit.

use anyhow::{Result, anyhow, bail};
use candle_core::Tensor;
use rayon::prelude::*;

use crate::model::{Model, Routes, Shape, Weights};
use crate::random::Stream;
use crate::routing::{Record, time_major};
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
    parts: Vec<Part>,
    /// The values of all parts, packed `[N]`.
    pub logp: Vec<f32>,
    /// The routing of every sequence, if the model records it.
    pub routed: Vec<Record>,
    /// Router rows that were replayed.
    pub replayed: usize,
}

/// A shard that was run.
struct Part {
    logp: Tensor,
    /// Each layer's router scores, `[positions * rows, E]`, if the model records.
    scores: Vec<Tensor>,
    /// How many sequences have a record.
    routed: usize,
}

impl<'a> Pass<'a> {
    /// Runs the model over the sequences.
    pub fn new(model: &'a Model, sequences: &[Sequence]) -> Result<Self> {
        Self::replaying(model, sequences, None)
    }

    /// Runs the model over the sequences with the experts of their records, if there are any.
    pub fn replaying(model: &'a Model, sequences: &[Sequence], records: Option<&[&Record]>) -> Result<Self> {
        let replays: Vec<Option<&[&Record]>> = match records {
            Some(records) if records.len() != sequences.len() => {
                bail!("{} records for {} sequences", records.len(), sequences.len())
            }
            Some(records) => shards(records).into_iter().map(Some).collect(),
            None => vec![None; SHARDS],
        };
        let shards: Vec<(Part, Vec<Record>, usize)> = shards(sequences)
            .into_par_iter()
            .zip(replays)
            .map(|(shard, records)| run_shard(model, shard, records))
            .collect::<Result<_>>()?;
        let mut pass = Self { model, parts: Vec::new(), logp: Vec::new(), routed: Vec::new(), replayed: 0 };
        for (part, routed, replayed) in shards {
            pass.logp.extend(part.logp.to_vec1::<f32>()?);
            pass.parts.push(part);
            pass.routed.extend(routed);
            pass.replayed += replayed;
        }
        Ok(pass)
    }

    /// The gradient of `sum(logp * coefficients)` for every weight.
    pub fn gradients(&self, coefficients: &[f32]) -> Result<Vec<Vec<f32>>> {
        self.gradients_with(coefficients, None)
    }

    /// The same, plus that of `sum(scores * scores' coefficients)`, whose coefficients are packed like the records, `[tokens, layers, E]`.
    pub fn gradients_with(&self, coefficients: &[f32], scores: Option<&[f32]>) -> Result<Vec<Vec<f32>>> {
        let (mut rest, mut rest_of_scores) = (coefficients, scores);
        let mut sequences = &self.routed[..];
        let mut jobs = Vec::new();
        for part in &self.parts {
            let (head, tail) = rest
                .split_at_checked(part.logp.elem_count())
                .ok_or_else(|| anyhow!("too few coefficients"))?;
            rest = tail;
            let mut others = Vec::new();
            if let Some(packed) = rest_of_scores {
                let (own, later) = sequences.split_at(part.routed);
                let count = own.iter().map(|record| record.scores.len()).sum();
                let (head, tail) = packed
                    .split_at_checked(count)
                    .ok_or_else(|| anyhow!("too few coefficients of scores"))?;
                (sequences, rest_of_scores) = (later, Some(tail));
                others = spread(part, own, head);
            }
            jobs.push((part, head, others));
        }
        let grads: Vec<Vec<Vec<f32>>> = jobs
            .into_par_iter()
            .map(|(part, c, others)| {
                let others: Vec<_> = part.scores.iter().zip(others).collect();
                self.model.gradients(&part.logp, c, &others)
            })
            .collect::<Result<_>>()?;
        grads.into_iter().reduce(add).ok_or_else(|| anyhow!("no sequences"))
    }
}

/// Coefficients packed like the records of a part as those of its layers' scores; padding has 0.
fn spread(part: &Part, records: &[Record], packed: &[f32]) -> Vec<Vec<f32>> {
    let (layers, rows) = (part.scores.len(), records.len());
    let mut spread: Vec<Vec<f32>> = part.scores.iter().map(|scores| vec![0.0; scores.elem_count()]).collect();
    let mut first = 0;
    for (row, record) in records.iter().enumerate() {
        let (tokens, experts) = (record.trace.tokens(), record.trace.experts());
        // The last token was not read.
        for t in 0..tokens - 1 {
            for (index, layer) in spread.iter_mut().enumerate() {
                let from = ((first + t) * layers + index) * experts;
                let to = (t * rows + row) * experts;
                layer[to..to + experts].copy_from_slice(&packed[from..from + experts]);
            }
        }
        first += tokens;
    }
    spread
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

/// A shard, its records, and how many router rows were replayed.
fn run_shard(
    model: &Model,
    sequences: &[Sequence],
    records: Option<&[&Record]>,
) -> Result<(Part, Vec<Record>, usize)> {
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
    let replay = records.map(|records| time_major(model.shape(), records, longest - 1)).transpose()?;
    let mut routes = (model.records() || replay.is_some()).then(|| Routes::new(replay));
    let hidden = model.hidden(&tokens, rows, None, routes.as_mut())?;
    let device = hidden.device();
    let picked = hidden.index_select(&Tensor::from_vec(at, n, device)?, 0)?;
    let logp = model.log_probs(&picked)?.gather(&Tensor::from_vec(target, (n, 1), device)?, 1)?.squeeze(1)?;
    let Some(mut routes) = routes else {
        return Ok((Part { logp, scores: Vec::new(), routed: 0 }, Vec::new(), 0));
    };
    let scores = routes.layers.iter_mut().filter_map(|layer| layer.attached.take()).collect();
    let of = |(row, s): (usize, &Sequence)| {
        Record::of(model.shape(), &routes, rows, row, s.prompt.len() + s.response.len())
    };
    let routed: Vec<Record> = sequences.iter().enumerate().map(of).collect::<Result<_>>()?;
    Ok((Part { logp, scores, routed: routed.len() }, routed, routes.replayed))
}

/// A sampled response and the log-probability of each of its tokens at the moment of sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The tokens.
    pub response: Vec<u32>,
    /// One log-probability a token.
    pub logp: Vec<f32>,
    /// The routing of prompt and response, if the model records it.
    pub routed: Option<Record>,
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
    let mut routes = model.records().then(Routes::default);
    loop {
        let hidden = model.hidden(&tokens, rows, Some(&mut cache), routes.as_mut())?;
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
