//! The state of a run, and its checkpoint: one safetensors file with the weights, the optimiser's moments,
//! the reference policy, the state that the recipe carries from step to step, the progress and the
//! configuration.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::engine::Engine;
use super::memory::Memory;
use crate::adamw::AdamW;
use crate::atomic;
use crate::config::{Config, is_default};
use crate::model::{Start, Weight, Weights};
use crate::tensors::{Tensors, Writer};

/// The checkpoint's name in a run's folder.
pub const FILE: &str = "checkpoint.safetensors";

/// A run's progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Completed warm-start steps.
    pub warm_steps: u64,
    /// Whether the warm start has ended.
    pub warm_done: bool,
    /// Completed RL steps.
    pub rl_steps: u64,
}

impl Progress {
    /// Lines of `metrics.jsonl` covered by this state: one per step.
    pub fn lines(&self) -> u64 {
        self.warm_steps + self.rl_steps
    }
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Progress so far.
    pub progress: Progress,
    /// The policy.
    pub weights: Weights,
    /// The optimiser's state.
    pub adam: AdamW,
    /// The policy after the warm start, once that has ended.
    pub reference: Option<Weights>,
    /// The policy before the last step, if the recipe asks for it and there was one.
    pub previous: Option<Weights>,
    /// Other state that the recipe carries from step to step.
    pub memory: Memory,
    /// The engine beside the trainer, if the run has one.
    pub engine: Engine,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    format: u32,
    config: Config,
    progress: Progress,
    updates: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    memory: Memory,
    #[serde(default, skip_serializing_if = "is_default")]
    engine: Engine,
}

const FORMAT: u32 = 1;

impl State {
    /// The state before the first step.
    pub fn new(config: &Config) -> Self {
        let weights = config.model.init(config.seed);
        Self {
            progress: Progress::default(),
            adam: AdamW::new(&weights),
            weights,
            reference: None,
            previous: None,
            memory: Memory::default(),
            engine: Engine::default(),
        }
    }

    /// The state of a run that begins its RL phase after the warm start of another one. That may lack the
    /// value head, which the warm start does not train.
    pub fn after_warm_start(config: &Config, warm: &Self) -> Result<Self> {
        let mut state = Self::new(config);
        for (own, warm) in state.weights.iter_mut().zip(&warm.weights) {
            let same = own.name == warm.name && own.dims == warm.dims;
            ensure!(
                same,
                "the warm start has {} {:?}: expected {} {:?}",
                warm.name,
                warm.dims,
                own.name,
                own.dims
            );
            own.values.clone_from(&warm.values);
        }
        state.reference = Some(state.weights.clone());
        state.progress = warm.progress.clone();
        Ok(state)
    }

    /// The bytes of the checkpoint.
    pub fn to_bytes(&self, config: &Config) -> Result<Vec<u8>> {
        let mut writer = Writer::default();
        for (i, w) in self.weights.iter().enumerate() {
            writer.floats(format!("weights.{}", w.name), &w.dims, &w.values);
            writer.floats(format!("adam.first.{}", w.name), &w.dims, &self.adam.first[i]);
            writer.floats(format!("adam.second.{}", w.name), &w.dims, &self.adam.second[i]);
        }
        for (kind, policy) in [("reference", &self.reference), ("previous", &self.previous)] {
            for w in policy.iter().flatten() {
                writer.floats(format!("{kind}.{}", w.name), &w.dims, &w.values);
            }
        }
        let (config, progress) = (config.clone(), self.progress.clone());
        writer.finish(serde_json::to_string(&Note {
            format: FORMAT,
            config,
            progress,
            updates: self.adam.updates,
            memory: self.memory.clone(),
            engine: self.engine.clone(),
        })?)
    }

    /// Writes the checkpoint into a run's folder.
    pub fn save(&self, config: &Config, folder: &Path) -> Result<()> {
        atomic::write(&folder.join(FILE), &self.to_bytes(config)?)
    }

    /// Checks that a folder has a checkpoint; the error says where it was expected.
    pub(super) fn exists(folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let found = std::fs::metadata(&path)
            .with_context(|| format!("cannot resume: no checkpoint {}", path.display()))?;
        ensure!(found.is_file(), "cannot resume: {} is not a regular file", path.display());
        Ok(())
    }

    /// Reads the checkpoint from a run's folder.
    pub fn load(folder: &Path) -> Result<(Config, Self)> {
        let path = folder.join(FILE);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot resume from {}", path.display()))?;
        Self::from_bytes(&bytes).with_context(|| format!("cannot resume from {}", path.display()))
    }

    /// Parses the bytes of a checkpoint.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Config, Self)> {
        let file = Tensors::parse(bytes)?;
        let note: Note = serde_json::from_str(file.note().context("not a checkpoint of this program")?)
            .context("the checkpoint's configuration")?;
        ensure!(note.format == FORMAT, "the checkpoint has format {}: expected {FORMAT}", note.format);
        note.config.check()?;
        let tensors = note.config.model.tensors();
        let read = |kind: &str| -> Result<Weights> {
            let one = |(name, dims, _): &(String, Vec<usize>, Start)| {
                let values = file.shaped(&format!("{kind}.{name}"), dims)?;
                Ok(Weight { name: name.clone(), dims: dims.clone(), values })
            };
            tensors.iter().map(one).collect()
        };
        let values = |weights: Weights| weights.into_iter().map(|w| w.values).collect();
        let adam = AdamW {
            first: values(read("adam.first")?),
            second: values(read("adam.second")?),
            updates: note.updates,
        };
        let reference = if note.progress.warm_done { Some(read("reference")?) } else { None };
        let has_previous = tensors.iter().any(|(name, ..)| file.has(&format!("previous.{name}")));
        let previous = has_previous.then(|| read("previous")).transpose()?;
        let (progress, memory, engine) = (note.progress, note.memory, note.engine);
        let weights = read("weights")?;
        Ok((note.config, Self { progress, weights, adam, reference, previous, memory, engine }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_holds_every_bit() {
        let mut config = Config::new("addition:1", "grpo").unwrap();
        (config.model.width, config.model.hidden) = (8, 4);
        let mut state = State::new(&config);
        state.reference = Some(state.weights.clone());
        state.previous = Some(state.weights.clone());
        state.memory.role_values = vec![0.1, -1e-300];
        state.progress = Progress { warm_steps: 3, warm_done: true, rl_steps: 2 };
        state.adam.updates = 9;
        state.adam.first[2][1] = f32::MIN_POSITIVE / 2.0;
        state.weights[3].values[0] = -0.0;
        let bytes = state.to_bytes(&config).unwrap();
        let (config2, state2) = State::from_bytes(&bytes).unwrap();
        assert_eq!((&config2, &state2), (&config, &state));
        assert_eq!(state2.to_bytes(&config2).unwrap(), bytes);
        for cut in (0..bytes.len()).step_by(97) {
            assert!(State::from_bytes(&bytes[..cut]).is_err());
        }
    }
}
