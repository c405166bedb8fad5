//! The responses sampled for a prompt.

use lockstep::schedule::rapo;
use serde::{Deserialize, Serialize};

use super::bits;
use crate::policy::Sampled;
use crate::routing::Record;
use crate::task::Problem;

/// A prompt with its responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The prompt's index in its step.
    pub row: u64,
    /// The prompt.
    pub problem: Problem,
    /// Its responses.
    pub responses: Vec<Response>,
    /// The baseline of its rewards, if the recipe asks for one.
    #[serde(with = "bits::float")]
    pub baseline: f32,
}

/// A response, its reward, and the policy that produced it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their log-probabilities in the engine.
    #[serde(with = "bits::floats")]
    pub logp: Vec<f32>,
    /// Its reward.
    #[serde(with = "bits::float")]
    pub reward: f32,
    /// Log-probabilities under the policy that generated it, if that is an earlier one; otherwise empty.
    #[serde(with = "bits::floats")]
    pub old: Vec<f32>,
    /// The policy version that sampled each token, if an engine beside the trainer did; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<u64>,
    /// Its routing in the engine, if recorded. Stored responses have none.
    #[serde(skip)]
    pub routed: Option<Record>,
}

impl Response {
    /// Wraps a newly sampled response.
    pub fn new(sampled: Sampled, reward: f32) -> Self {
        let Sampled { response, logp, routed } = sampled;
        Self { tokens: response, logp, reward, old: Vec::new(), versions: Vec::new(), routed }
    }
}

impl Group {
    /// The rewards of its responses.
    pub fn rewards(&self) -> Vec<f32> {
        self.responses.iter().map(|response| response.reward).collect()
    }

    /// Whether each response is right.
    pub fn passes(&self) -> impl Iterator<Item = bool> {
        self.responses.iter().map(|response| response.reward > rapo::SUCCESS)
    }

    /// Number of right responses.
    pub fn right(&self) -> usize {
        self.passes().filter(|passed| *passed).count()
    }

    /// Whether all responses have the same reward.
    pub fn is_constant(&self) -> bool {
        self.responses.iter().all(|response| response.reward == self.responses[0].reward)
    }
}
