//! What the loop needs from a model: log-probabilities of responses with their gradients, and samples. Work
//! is split into a fixed number of shards, regardless of the number of threads, and the shards' results are
//! added in order, so the number of threads changes no bit.

mod sample;

use anyhow::{Result, anyhow, bail};
use candle_core::Tensor;
use lockstep::Device;
use lockstep::ops::logits::{Logits, Statistics, logits_gradient, logits_statistics};
use rayon::prelude::*;

pub(crate) use sample::pick;
pub use sample::{Environment, Sampled, greedy, sample, sample_up_to};

use crate::model::{Model, Routes, Shape, Weights};
use crate::routing::{Record, time_major};
use crate::vocab::END;

/// One prompt with one response, as tokens. The response ends with the end token unless it was cut off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// What the model reads.
    pub prompt: Vec<u32>,
    /// What it writes; never empty.
    pub response: Vec<u32>,
}

/// Number of shards that a batch is split into.
const SHARDS: usize = 4;

pub(crate) fn shards<T>(items: &[T]) -> Vec<&[T]> {
    items.chunks(items.len().div_ceil(SHARDS).max(1)).collect()
}

/// Log-probabilities of the response tokens, sequence after sequence, still attached to their graph.
pub struct Pass<'a> {
    model: &'a Model,
    parts: Vec<Part>,
    /// The log-probabilities of all shards, packed `[N]`.
    pub logp: Vec<f32>,
    /// The values before each of those tokens, `[N]`; empty if the model has no value head.
    pub values: Vec<f32>,
    /// The routing of every sequence, if the model records it.
    pub routed: Vec<Record>,
    /// Number of router rows that were replayed.
    pub replayed: usize,
    /// The logits behind `logp`, `[N, vocabulary]`, if requested.
    pub logits: Vec<f32>,
    /// The tokens of the responses, `[N]`.
    labels: Vec<u32>,
}

/// A shard after its forward pass.
struct Part {
    logp: Tensor,
    /// The logits behind `logp`.
    logits: Tensor,
    labels: Vec<u32>,
    /// Number of sequences.
    rows: usize,
    /// The values of the value head, if there is one.
    values: Option<Tensor>,
    /// Each layer's router scores, `[positions * rows, E]`, if the model records them.
    scores: Vec<Tensor>,
    /// Number of sequences with a record.
    routed: usize,
}

impl<'a> Pass<'a> {
    /// Runs the model over the sequences.
    pub fn new(model: &'a Model, sequences: &[Sequence]) -> Result<Self> {
        Self::run(model, sequences, None, false)
    }

    /// Runs the model over the sequences, replaying the experts of their records if given. Keeps the logits
    /// if `keep_logits`: see [`Self::statistics`].
    pub fn run(
        model: &'a Model,
        sequences: &[Sequence],
        records: Option<&[&Record]>,
        keep_logits: bool,
    ) -> Result<Self> {
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
        let mut pass = Self {
            model,
            parts: Vec::new(),
            logp: Vec::new(),
            values: Vec::new(),
            routed: Vec::new(),
            replayed: 0,
            logits: Vec::new(),
            labels: Vec::new(),
        };
        for (part, routed, replayed) in shards {
            if keep_logits {
                pass.logits.extend(part.logits.flatten_all()?.to_vec1::<f32>()?);
                pass.labels.extend(&part.labels);
            }
            pass.logp.extend(part.logp.to_vec1::<f32>()?);
            if let Some(values) = &part.values {
                pass.values.extend(values.to_vec1::<f32>()?);
            }
            pass.parts.push(part);
            pass.routed.extend(routed);
            pass.replayed += replayed;
        }
        Ok(pass)
    }

    /// The gradient of `sum(logp * coefficients)` with respect to every weight.
    pub fn gradients(&self, coefficients: &[f32]) -> Result<Vec<Vec<f32>>> {
        Ok(self.gradients_with(coefficients, &Further::default())?.sum)
    }

    /// Entropies, sums of squared probabilities and score norms of the distributions behind `logp`. The pass
    /// must have kept its logits.
    pub fn statistics(&self, device: &Device) -> Result<Statistics> {
        Ok(logits_statistics(device, &self.rows(), 1.0, true)?)
    }

    /// The gradient with respect to every logit, given that of the entropies.
    pub fn entropy_gradient(
        &self,
        device: &Device,
        statistics: &Statistics,
        of_entropy: &[f32],
    ) -> Result<Vec<f32>> {
        let of_logp = vec![0.0; of_entropy.len()];
        Ok(logits_gradient(device, &self.rows(), statistics, &of_logp, Some(of_entropy))?)
    }

    fn rows(&self) -> Logits<'_> {
        Logits { logits: &self.logits, labels: &self.labels, loss_mask: None }
    }

    /// Like [`Self::gradients`], plus the gradients of what else a loss depends on.
    pub fn gradients_with(&self, coefficients: &[f32], further: &Further<'_>) -> Result<Gradients> {
        let Further { scores: mut rest_of_scores, logits: mut rest_of_logits, values: mut rest_of_values } =
            *further;
        let mut rest = coefficients;
        let mut sequences = &self.routed[..];
        let mut jobs = Vec::new();
        for part in &self.parts {
            let head = take(&mut rest, part.logp.elem_count(), "log-probabilities")?;
            let mut others = Vec::new();
            if let Some(packed) = &mut rest_of_scores {
                let (own, later) = sequences.split_at(part.routed);
                let count = own.iter().map(|record| record.scores.len()).sum();
                sequences = later;
                others = spread(part, own, take(packed, count, "router scores")?);
            }
            let mut others: Vec<(&Tensor, Vec<f32>)> = part.scores.iter().zip(others).collect();
            if let Some(packed) = &mut rest_of_logits {
                others.push((&part.logits, take(packed, part.logits.elem_count(), "logits")?.to_vec()));
            }
            if let Some((packed, values)) = rest_of_values.as_mut().zip(part.values.as_ref()) {
                others.push((values, take(packed, values.elem_count(), "values")?.to_vec()));
            }
            jobs.push((part, head, others));
        }
        let grads: Vec<Vec<Vec<f32>>> = jobs
            .into_par_iter()
            .map(|(part, c, others)| self.model.gradients(&part.logp, c, &others))
            .collect::<Result<_>>()?;
        let shards = grads.len() as f64;
        let of_one = grads.iter().zip(&self.parts).map(|(g, part)| norm_squared(g) / part.rows as f64);
        let of_one: f64 = of_one.sum();
        let sum = grads.into_iter().reduce(add).ok_or_else(|| anyhow!("no sequences"))?;
        let n = self.parts.iter().map(|part| part.rows).sum::<usize>() as f64;
        let spread = n * of_one - norm_squared(&sum);
        Ok(Gradients { variance: (shards > 1.0).then(|| spread / (shards - 1.0)), sum })
    }
}

/// The gradient of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// With respect to every weight.
    pub sum: Vec<Vec<f32>>,
    /// The trace of its covariance over draws of the batch, estimated from the gradients g_j of its J shards,
    /// of n_j of the n sequences: n/(J − 1) · Σ n_j |g_j/n_j − g/n|². None with one shard. The sequences
    /// count as independent: unbiased where no shard cuts a group.
    pub variance: Option<f64>,
}

fn norm_squared(grads: &[Vec<f32>]) -> f64 {
    grads.iter().flatten().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Gradients of a loss with respect to what the model computes besides log-probabilities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Further<'a> {
    /// One coefficient per router score, packed like the records, `[tokens, layers, E]`.
    pub scores: Option<&'a [f32]>,
    /// One per logit, `[N, vocabulary]`.
    pub logits: Option<&'a [f32]>,
    /// One per value, `[N]`.
    pub values: Option<&'a [f32]>,
}

/// Cuts off and returns the first `count` of the coefficients that are left.
fn take<'a>(rest: &mut &'a [f32], count: usize, of: &str) -> Result<&'a [f32]> {
    let (head, tail) = rest.split_at_checked(count).ok_or_else(|| anyhow!("too few coefficients of {of}"))?;
    *rest = tail;
    Ok(head)
}

/// Redistributes coefficients packed like a shard's records to its layers' scores; padding gets 0.
fn spread(part: &Part, records: &[Record], packed: &[f32]) -> Vec<Vec<f32>> {
    let (layers, rows) = (part.scores.len(), records.len());
    let mut spread: Vec<Vec<f32>> = part.scores.iter().map(|scores| vec![0.0; scores.elem_count()]).collect();
    let mut first = 0;
    for (row, record) in records.iter().enumerate() {
        let (tokens, experts) = (record.trace.tokens(), record.trace.experts());
        // The last token is never fed to the model.
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

/// Log-probabilities of the response tokens under given weights, packed `[N]`, without gradients.
pub fn log_probs(shape: &Shape, weights: &Weights, sequences: &[Sequence]) -> Result<Vec<f32>> {
    Ok(Pass::new(&Model::frozen(shape, weights)?, sequences)?.logp)
}

/// Runs a shard. Returns it, its records, and the number of replayed router rows.
fn run_shard(
    model: &Model,
    sequences: &[Sequence],
    records: Option<&[&Record]>,
) -> Result<(Part, Vec<Record>, usize)> {
    let rows = sequences.len();
    let longest = sequences.iter().map(|s| s.prompt.len() + s.response.len()).max().unwrap_or(1);
    // The last token of a sequence is predicted but never fed to the model.
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
    let (n, labels) = (at.len(), target.clone());
    let replay = records.map(|records| time_major(model.shape(), records, longest - 1)).transpose()?;
    let mut routes = (model.records() || replay.is_some()).then(|| Routes::new(replay));
    let hidden = model.hidden(&tokens, rows, None, routes.as_mut())?;
    let device = hidden.device();
    let picked = hidden.index_select(&Tensor::from_vec(at, n, device)?, 0)?;
    let (logits, values) = (model.logits(&picked)?, model.values(&picked)?);
    let target = Tensor::from_vec(target, (n, 1), device)?;
    let logp = Model::normalized(&logits)?.gather(&target, 1)?.squeeze(1)?;
    let mut part = Part { logp, logits, labels, rows, values, scores: Vec::new(), routed: 0 };
    let Some(mut routes) = routes else { return Ok((part, Vec::new(), 0)) };
    part.scores = routes.layers.iter_mut().filter_map(|layer| layer.attached.take()).collect();
    let of = |(row, s): (usize, &Sequence)| {
        Record::of(model.shape(), &routes, rows, row, s.prompt.len() + s.response.len())
    };
    let routed: Vec<Record> = sequences.iter().enumerate().map(of).collect::<Result<_>>()?;
    part.routed = routed.len();
    Ok((part, routed, routes.replayed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five sequences are shards of 2, 2 and 1.
    #[test]
    fn unequal_shards_of_like_sequences_have_no_variance() {
        let shape = Shape {
            vocab: 7,
            context: 16,
            layers: 1,
            width: 8,
            heads: 2,
            experts: 2,
            top_k: 2,
            hidden: 4,
            critic: false,
        };
        let model = Model::trainable(&shape, &shape.init(3)).unwrap();
        let one = Sequence { prompt: vec![1, 2], response: vec![3] };
        let pass = Pass::new(&model, &vec![one; 5]).unwrap();
        let found = pass.gradients_with(&[0.5; 5], &Further::default()).unwrap();
        let size = norm_squared(&found.sum);
        assert!(size > 1e-3 && found.variance.unwrap().abs() < 1e-6 * size, "{:?} of {size}", found.variance);
    }
}
