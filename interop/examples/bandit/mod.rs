//! The environment that both examples share: four prompts, each of which wants one of eight words, three
//! times. The policy is a table of logits, `[PROMPTS, WORDS]`; a response is three words drawn from its
//! prompt's row.

use lockstep::RolloutsBuf;
use lockstep::schedules::random::{Purpose, Stream};

/// Number of prompts.
pub(crate) const PROMPTS: usize = 4;
/// Number of words in the vocabulary.
pub(crate) const WORDS: usize = 8;
/// Responses per prompt, and words per response.
const GROUP: usize = 16;
const LENGTH: usize = 3;

/// A batch: its columns except `logp`, and where in the table each token's log-probability is.
pub(crate) struct Batch {
    /// The columns, without `logp`.
    pub(crate) rollouts: RolloutsBuf,
    /// `prompt·WORDS + word` of each token.
    pub(crate) places: Vec<u32>,
    /// Mean reward: the fraction of words that are wanted.
    pub(crate) reward: f32,
}

/// Samples responses of a policy whose log-probabilities are `table`, `[PROMPTS·WORDS]`.
pub(crate) fn sample(table: &[f32], step: u32) -> Result<Batch, lockstep_interop::Error> {
    let mut stream = Stream::new(1, Purpose(256), step, 0);
    let (mut places, mut rewards) = (Vec::new(), Vec::new());
    for prompt in 0..PROMPTS {
        for _ in 0..GROUP {
            let row = &table[prompt * WORDS..(prompt + 1) * WORDS];
            let words = [0; LENGTH].map(|_: usize| draw(row, stream.uniform32()));
            let wanted = words.iter().filter(|word| **word == 2 * prompt).count();
            rewards.push(wanted as f32 / LENGTH as f32);
            places.extend(words.map(|word| (prompt * WORDS + word) as u32));
        }
    }
    let logp_old = places.iter().map(|place| table[*place as usize]).collect();
    let reward = rewards.iter().sum::<f32>() / rewards.len() as f32;
    let rollouts = RolloutsBuf {
        cu_seqlens: Some(lockstep_interop::padded(PROMPTS * GROUP, LENGTH)?),
        cu_groups: Some((0..=PROMPTS).map(|prompt| (prompt * GROUP) as u32).collect()),
        rewards: Some(rewards),
        logp_old: Some(logp_old),
        ..RolloutsBuf::default()
    };
    Ok(Batch { rollouts, places, reward })
}

/// Returns the word that a number in 0..1 selects.
fn draw(row: &[f32], number: f32) -> usize {
    let mut left = number;
    for (word, logp) in row.iter().enumerate() {
        left -= logp.exp();
        if left < 0.0 {
            return word;
        }
    }
    row.len() - 1
}
