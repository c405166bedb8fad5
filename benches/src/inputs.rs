//! A batch as a trainer would provide it: sequences of equal length, groups of eight, a tenth of the tokens
//! masked, log-ratios within ±0.3.

use lockstep::{Batch, Error, Rollouts};
use lockstep_conformance::cases::hash::Source;

/// Inputs of every op.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// `[S+1]`.
    pub cu_seqlens: Vec<u32>,
    /// `[G+1]`.
    pub cu_groups: Vec<u32>,
    /// `[N]`.
    pub loss_mask: Vec<u8>,
    /// `[N]`.
    pub logp: Vec<f32>,
    /// `[N]`.
    pub logp_old: Vec<f32>,
    /// `[N]`.
    pub logp_ref: Vec<f32>,
    /// `[S]`.
    pub rewards: Vec<f32>,
    /// `[S]`.
    pub advantage: Vec<f32>,
}

impl Inputs {
    /// Generates about `tokens` tokens in sequences of `length`.
    pub fn new(tokens: usize, length: usize) -> Inputs {
        let groups = (tokens / length / 8).max(1);
        let (sequences, n) = (groups * 8, groups * 8 * length);
        let (source, mut drawn) = (Source::new(20_261_121), 0);
        let mut draw = |low: f32, high: f32| {
            drawn += 1;
            low + (high - low) * source.unit(drawn)
        };
        let logp_old: Vec<f32> = (0..n).map(|_| draw(-3.0, 0.0)).collect();
        let near = |x: &f32, by: f32| (x + by).min(0.0);
        Inputs {
            cu_seqlens: (0..=sequences).map(|s| (s * length) as u32).collect(),
            cu_groups: (0..=groups).map(|g| (g * 8) as u32).collect(),
            loss_mask: (0..n).map(|_| u8::from(draw(0.0, 1.0) > 0.1)).collect(),
            logp: logp_old.iter().map(|x| near(x, draw(-0.3, 0.3))).collect(),
            logp_ref: logp_old.iter().map(|x| near(x, draw(-0.3, 0.3))).collect(),
            logp_old,
            rewards: (0..sequences).map(|_| draw(0.0, 1.0).round()).collect(),
            advantage: (0..sequences).map(|_| draw(-1.0, 1.0)).collect(),
        }
    }

    /// The same inputs with another mask: a tenth of the tokens again, but 64 in a row after 576 others, as
    /// after the turns of a conversation.
    #[must_use]
    pub fn with_turns(mut self) -> Inputs {
        self.loss_mask = (0..self.tokens()).map(|i| u8::from(i % 640 < 576)).collect();
        self
    }

    /// The inputs as a batch.
    pub fn batch(&self) -> Result<Batch<'_>, Error> {
        Batch::new(&self.cu_seqlens, &self.cu_groups, Some(&self.loss_mask))
    }

    /// The inputs as columns.
    pub fn rollouts(&self) -> Rollouts<'_> {
        Rollouts {
            loss_mask: Some(&self.loss_mask),
            logp: Some(&self.logp),
            logp_old: Some(&self.logp_old),
            rewards: Some(&self.rewards),
            ..Rollouts::new(&self.cu_seqlens, &self.cu_groups)
        }
    }

    /// Number of whole rows of logits that N numbers fill (at least one), and the row length: Qwen's
    /// vocabulary, or N if that is smaller.
    pub(crate) fn logit_rows(&self) -> (usize, usize) {
        let vocab = 151_936.min(self.tokens());
        (self.tokens() / vocab, vocab)
    }

    /// N.
    pub fn tokens(&self) -> usize {
        self.logp.len()
    }

    /// The number of units that the catalogue's costs are given per.
    pub fn count(&self, per: &str) -> usize {
        match per {
            "logit" => {
                let (rows, vocab) = self.logit_rows();
                rows * vocab
            }
            "sequence" => self.rewards.len(),
            "turn" | "step" => crate::functions::turns(self),
            _ => self.tokens(),
        }
    }
}
