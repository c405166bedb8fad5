//! Rollouts as a packed batch (DESIGN §4), in memory and as a safetensors file.
//!
//! | tensor | shape | type |
//! |---|---|---|
//! | `cu_seqlens`, `cu_groups` | `[S+1]`, `[G+1]` | u32, i32, u64, i64 |
//! | `loss_mask` (optional) | `[N]` | u8, bool |
//! | `rewards` | `[S]` | any float; NaN = no reward |
//! | `logp`, `logp_old` | `[N]` | any float |
//! | `logp_ref`, `logp_rollout` (optional) | `[N]` | any float |
//! | `tokens` (optional): token ids, for prefix trees | `[N]` | u32, i32, u64, i64 |

use std::path::Path;

use anyhow::{Context, Result, ensure};
use lockstep::Batch;

use crate::atomic;
use crate::tensors::{Tensors, Writer};

/// A packed batch of responses with what was measured on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollouts {
    /// Where sequences begin and end in the tokens.
    pub cu_seqlens: Vec<u32>,
    /// Where groups (the responses to one prompt) begin and end in the sequences.
    pub cu_groups: Vec<u32>,
    /// 0 = the token takes no part.
    pub loss_mask: Option<Vec<u8>>,
    /// One reward a sequence.
    pub rewards: Vec<f32>,
    /// Log-probabilities under the policy that is trained.
    pub logp: Vec<f32>,
    /// Log-probabilities under the policy at the start of the update.
    pub logp_old: Vec<f32>,
    /// Log-probabilities under a reference policy.
    pub logp_ref: Option<Vec<f32>>,
    /// Log-probabilities as the engine that sampled reported them.
    pub logp_rollout: Option<Vec<f32>>,
    /// Token ids.
    pub tokens: Option<Vec<u32>>,
}

impl Rollouts {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read rollouts {}", path.display()))?;
        Self::from_bytes(&bytes).with_context(|| path.display().to_string())
    }

    /// Reads the bytes of a file and checks offsets and lengths; the ops check the values.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = Tensors::parse(bytes)?;
        let rollouts = Self {
            cu_seqlens: file.offsets("cu_seqlens")?,
            cu_groups: file.offsets("cu_groups")?,
            loss_mask: file.optional_mask("loss_mask")?,
            rewards: file.floats("rewards")?,
            logp: file.floats("logp")?,
            logp_old: file.floats("logp_old")?,
            logp_ref: file.optional_floats("logp_ref")?,
            logp_rollout: file.optional_floats("logp_rollout")?,
            tokens: file.optional_ids("tokens")?,
        };
        let batch = rollouts.batch()?;
        let (tokens, sequences) = (batch.tokens(), batch.sequences());
        ensure!(sequences > 0, "cu_seqlens: an empty batch");
        let lengths = [
            ("logp", Some(rollouts.logp.len())),
            ("logp_old", Some(rollouts.logp_old.len())),
            ("logp_ref", rollouts.logp_ref.as_ref().map(Vec::len)),
            ("logp_rollout", rollouts.logp_rollout.as_ref().map(Vec::len)),
            ("tokens", rollouts.tokens.as_ref().map(Vec::len)),
        ];
        for (name, length) in lengths {
            let length = length.unwrap_or(tokens);
            ensure!(
                length == tokens,
                "tensor '{name}' has {length} entries, but cu_seqlens has {tokens} tokens"
            );
        }
        let length = rollouts.rewards.len();
        ensure!(
            length == sequences,
            "tensor 'rewards' has {length} entries, but there are {sequences} sequences"
        );
        Ok(rollouts)
    }

    /// The view that the ops take.
    pub fn batch(&self) -> Result<Batch<'_>> {
        Ok(Batch::new(&self.cu_seqlens, &self.cu_groups, self.loss_mask.as_deref())?)
    }

    /// Writes a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        atomic::write(path, &self.to_bytes()?)
    }

    /// The bytes of a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::default();
        writer.offsets("cu_seqlens", &self.cu_seqlens);
        writer.offsets("cu_groups", &self.cu_groups);
        if let Some(mask) = &self.loss_mask {
            writer.mask("loss_mask", mask);
        }
        let floats = [
            ("rewards", Some(&self.rewards)),
            ("logp", Some(&self.logp)),
            ("logp_old", Some(&self.logp_old)),
            ("logp_ref", self.logp_ref.as_ref()),
            ("logp_rollout", self.logp_rollout.as_ref()),
        ];
        for (name, values) in floats {
            if let Some(values) = values {
                writer.floats(name, &[values.len()], values);
            }
        }
        if let Some(tokens) = &self.tokens {
            writer.offsets("tokens", tokens);
        }
        writer.finish("rollouts".to_owned())
    }

    /// The whole groups `groups` as a batch of their own, in the order given, and the tokens' old places.
    pub fn select(&self, groups: &[usize]) -> (Self, Vec<usize>) {
        let mut part = Self { cu_seqlens: vec![0], cu_groups: vec![0], ..Self::default() };
        let mut places = Vec::new();
        for &group in groups {
            for sequence in self.cu_groups[group] as usize..self.cu_groups[group + 1] as usize {
                places.extend(self.cu_seqlens[sequence] as usize..self.cu_seqlens[sequence + 1] as usize);
                part.cu_seqlens.push(places.len() as u32);
                part.rewards.push(self.rewards[sequence]);
            }
            part.cu_groups.push(part.rewards.len() as u32);
        }
        let take = |values: &Vec<f32>| -> Vec<f32> {
            places.iter().filter_map(|&i| values.get(i).copied()).collect()
        };
        part.logp = take(&self.logp);
        part.logp_old = take(&self.logp_old);
        part.logp_ref = self.logp_ref.as_ref().map(take);
        part.logp_rollout = self.logp_rollout.as_ref().map(take);
        part.tokens = self.tokens.as_ref().map(|ids| places.iter().map(|&i| ids[i]).collect());
        part.loss_mask = self.loss_mask.as_ref().map(|mask| places.iter().map(|&i| mask[i]).collect());
        (part, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Rollouts {
        Rollouts {
            cu_seqlens: vec![0, 2, 3, 5, 6],
            cu_groups: vec![0, 2, 4],
            loss_mask: Some(vec![1, 1, 1, 0, 1, 1]),
            rewards: vec![1.0, 0.0, f32::INFINITY, 1.0],
            logp: vec![-1.0, -2.0, -3.0, -4.0, -5.0, -6.0],
            logp_old: vec![-1.5; 6],
            logp_ref: None,
            logp_rollout: Some(vec![-0.5; 6]),
            tokens: Some(vec![10, 11, 10, 12, 13, u32::MAX]),
        }
    }

    #[test]
    fn round_trip() {
        let bytes = example().to_bytes().unwrap();
        assert_eq!(Rollouts::from_bytes(&bytes).unwrap(), example());
        assert_eq!(bytes, example().to_bytes().unwrap());
        for cut in 0..bytes.len() {
            assert!(Rollouts::from_bytes(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn groups_are_selected_whole() {
        let (part, places) = example().select(&[1, 0]);
        assert_eq!(places, [3, 4, 5, 0, 1, 2]);
        assert_eq!(part.cu_seqlens, [0, 2, 3, 5, 6]);
        assert_eq!(part.cu_groups, [0, 2, 4]);
        assert_eq!(part.rewards, [f32::INFINITY, 1.0, 1.0, 0.0]);
        assert_eq!(part.logp, [-4.0, -5.0, -6.0, -1.0, -2.0, -3.0]);
        assert_eq!(part.loss_mask, Some(vec![0, 1, 1, 1, 1, 1]));
        assert_eq!(part.tokens, Some(vec![12, 13, u32::MAX, 10, 11, 10]));
        let (part, _) = example().select(&[1]);
        assert_eq!((part.cu_seqlens, part.cu_groups), (vec![0, 2, 3], vec![0, 2]));
    }

    #[test]
    fn other_number_types_are_read() {
        use half::{bf16, f16};
        use safetensors::{Dtype, tensor::TensorView};
        let le = |v: Vec<Vec<u8>>| v.concat();
        let data = [
            (
                "cu_seqlens",
                Dtype::I64,
                3,
                le([0_i64, 1, 2].iter().map(|x| x.to_le_bytes().to_vec()).collect()),
            ),
            ("cu_groups", Dtype::I32, 2, le([0_i32, 2].iter().map(|x| x.to_le_bytes().to_vec()).collect())),
            ("rewards", Dtype::F64, 2, le([1_f64, 0.0].iter().map(|x| x.to_le_bytes().to_vec()).collect())),
            (
                "logp",
                Dtype::BF16,
                2,
                le([-1.0, -2.0].iter().map(|&x| bf16::from_f32(x).to_le_bytes().to_vec()).collect()),
            ),
            (
                "logp_old",
                Dtype::F16,
                2,
                le([-1.5, -2.5].iter().map(|&x| f16::from_f32(x).to_le_bytes().to_vec()).collect()),
            ),
            ("loss_mask", Dtype::BOOL, 2, vec![1, 0]),
        ];
        let views: Vec<_> =
            data.iter().map(|(n, t, len, b)| (*n, TensorView::new(*t, vec![*len], b).unwrap())).collect();
        let rollouts = Rollouts::from_bytes(&safetensors::serialize(views, None).unwrap()).unwrap();
        assert_eq!(rollouts.cu_seqlens, [0, 1, 2]);
        assert_eq!(rollouts.logp, [-1.0, -2.0]);
        assert_eq!(rollouts.logp_old, [-1.5, -2.5]);
        assert_eq!(rollouts.loss_mask, Some(vec![1, 0]));
    }

    #[test]
    fn errors_name_the_tensor() {
        let broken = |change: fn(&mut Rollouts)| {
            let mut rollouts = example();
            change(&mut rollouts);
            Rollouts::from_bytes(&rollouts.to_bytes().unwrap()).map_err(|e| format!("{e:#}")).unwrap_err()
        };
        assert!(broken(|r| r.rewards.truncate(3)).contains("'rewards' has 3 entries"));
        assert!(broken(|r| r.logp_old.truncate(3)).contains("'logp_old' has 3 entries"));
        assert!(broken(|r| r.tokens = Some(vec![1; 5])).contains("'tokens' has 5 entries"));
        assert!(broken(|r| r.cu_seqlens[1] = 4).contains("cu_seqlens"));
        assert!(broken(|r| r.cu_groups[1] = 9).contains("cu_groups"));
        assert!(broken(|r| r.loss_mask = Some(vec![1, 1, 1, 1, 2, 1])).contains("'loss_mask'[4] is 2"));
        assert!(broken(|r| r.cu_seqlens.clear()).contains("cu_seqlens"));
    }
}
