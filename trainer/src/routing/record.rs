//! The routing of one sequence.

use anyhow::{Context, Result, ensure};
use lockstep::routing::RoutingTrace;
use serde::{Deserialize, Serialize};

use crate::model::{Routes, Shape};
use crate::train::bits;

/// What the routers did with every token of a prompt and its response. The last token is predicted but never
/// fed to the model, so it has no record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Record {
    /// Experts, `[tokens, layers, K]`.
    pub trace: RoutingTrace,
    /// Their gates, in the same shape; 0 where there is no record.
    pub gates: Vec<f32>,
    /// Scores of all experts, `[tokens, layers, E]`; 0 where there is no record.
    pub scores: Vec<f32>,
}

impl Record {
    /// The record of sequence `row`, `tokens` long, among `rows` sequences run together.
    pub fn of(shape: &Shape, routes: &Routes, rows: usize, row: usize, tokens: usize) -> Result<Self> {
        let (k, experts) = (shape.top_k, shape.experts);
        let mut ids: Vec<i64> = Vec::with_capacity(tokens * shape.layers * k);
        let (mut gates, mut scores) = (Vec::with_capacity(ids.capacity()), Vec::new());
        for at in (0..tokens - 1).map(|t| t * rows + row) {
            for layer in &routes.layers {
                let part = at * k..(at + 1) * k;
                let chosen = layer.chosen.get(part.clone()).context("a token that was never routed")?;
                ids.extend(chosen.iter().map(|id| i64::from(*id)));
                gates.extend(&layer.gates[part]);
                scores.extend(&layer.scores[at * experts..(at + 1) * experts]);
            }
        }
        let mut trace = RoutingTrace::from_ids(&ids, tokens - 1, experts, shape.layers, k)?;
        trace.append_absent(1);
        gates.resize(tokens * shape.layers * k, 0.0);
        scores.resize(tokens * shape.layers * experts, 0.0);
        Ok(Self { trace, gates, scores })
    }

    /// The first `tokens` of this record, then the rest of another one of the same sequence.
    pub fn stitch(&self, tokens: usize, rest: &Self) -> Result<Self> {
        let (layers, k, experts) = (rest.trace.layers(), rest.trace.top_k(), rest.trace.experts());
        let mut trace = RoutingTrace::new(experts, layers, k)?;
        trace.stitch(&self.trace, 0..tokens)?;
        trace.stitch(&rest.trace, tokens..rest.trace.tokens())?;
        let joined = |a: &[f32], b: &[f32], row: usize| {
            let parts = a.get(..tokens * row).zip(b.get(tokens * row..));
            parts.map(|(a, b)| [a, b].concat()).context("a record shorter than its tokens")
        };
        let gates = joined(&self.gates, &rest.gates, layers * k)?;
        Ok(Self { trace, gates, scores: joined(&self.scores, &rest.scores, layers * experts)? })
    }

    /// Concatenates the records of several sequences.
    pub fn concat<'a>(shape: &Shape, records: impl IntoIterator<Item = &'a Record>) -> Result<Self> {
        let trace = RoutingTrace::new(shape.experts, shape.layers, shape.top_k)?;
        let mut all = Self { trace, gates: Vec::new(), scores: Vec::new() };
        for record in records {
            all.trace.stitch(&record.trace, 0..record.trace.tokens())?;
            all.gates.extend(&record.gates);
            all.scores.extend(&record.scores);
        }
        Ok(all)
    }
}

/// A record in a checkpoint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    experts: usize,
    layers: usize,
    top_k: usize,
    tokens: usize,
    /// `[tokens, layers, K]`; −1 where there is no record.
    ids: Vec<i64>,
    #[serde(with = "bits::floats")]
    gates: Vec<f32>,
    #[serde(with = "bits::floats")]
    scores: Vec<f32>,
}

impl From<Record> for Written {
    fn from(Record { trace, gates, scores }: Record) -> Self {
        let (view, k) = (trace.view(), trace.top_k());
        let id = |row, j| if view.is_absent(row) { -1 } else { i64::from(view.at(view.position(row) + j)) };
        let ids = (0..view.rows()).flat_map(|row| (0..k).map(move |j| id(row, j))).collect();
        let (experts, layers, tokens) = (trace.experts(), trace.layers(), trace.tokens());
        Self { experts, layers, top_k: k, tokens, ids, gates, scores }
    }
}

impl TryFrom<Written> for Record {
    type Error = anyhow::Error;

    fn try_from(own: Written) -> Result<Self> {
        let [gates, scores] = [own.top_k, own.experts].map(|each| own.tokens * own.layers * each);
        ensure!(
            (own.gates.len(), own.scores.len()) == (gates, scores),
            "a routing record has {} gates and {} scores: expected {gates} and {scores}",
            own.gates.len(),
            own.scores.len()
        );
        let trace = RoutingTrace::from_ids(&own.ids, own.tokens, own.experts, own.layers, own.top_k)?;
        Ok(Self { trace, gates: own.gates, scores: own.scores })
    }
}

/// The traces of sequences run together as the model's rows, `[positions * rows, layers, K]`; padding has no
/// record.
pub(crate) fn time_major(shape: &Shape, records: &[&Record], positions: usize) -> Result<RoutingTrace> {
    let (rows, k) = (records.len(), shape.top_k);
    let mut ids = vec![-1_i64; positions * rows * shape.layers * k];
    for (row, record) in records.iter().enumerate() {
        let view = record.trace.view();
        for from in (0..view.rows()).filter(|from| !view.is_absent(*from)) {
            let (t, layer) = (from / shape.layers, from % shape.layers);
            let to = ((t * rows + row) * shape.layers + layer) * k;
            for j in 0..k {
                *ids.get_mut(to + j).context("a trace longer than its sequence")? =
                    i64::from(view.at(view.position(from) + j));
            }
        }
    }
    Ok(RoutingTrace::from_ids(&ids, positions * rows, shape.experts, shape.layers, k)?)
}
