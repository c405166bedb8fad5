//! The lines of `metrics.jsonl`: one per step, independent of the clock and of the machine's load.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::bits::with_nan;
use super::engine::EngineRecord;
use super::sampler::SamplerRecord;
use crate::atomic;
use crate::routing::Mismatches;

/// The record of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum Record {
    /// A step of the warm start.
    Warm(WarmRecord),
    /// An RL step.
    Rl(Box<RlRecord>),
}

with_nan! {
    /// A step of the warm start.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct WarmRecord {
        /// The step's number, counted from 1.
        pub step: u64,
        /// Mean negative log-likelihood of the last update.
        pub loss: f64,
        /// Fraction of sampled training problems solved.
        pub training_pass: f64,
        /// Held-out pass@1, if this was the last step.
        pub held_out: Option<f64>,
        /// In a game the exploitability instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exploitability: Option<f64>,
    }
}

impl WarmRecord {
    /// How good the policy was, if this was measured.
    pub fn measured(&self) -> Option<f64> {
        self.held_out.or(self.exploitability)
    }
}

with_nan! {
    /// An RL step. Reward, constant groups and response length cover all rollouts; loss and ratio statistics
    /// cover those learnt from, with each token's log-probability in its own update.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct RlRecord {
        /// The step's number, counted from 1.
        pub step: u64,
        /// Held-out pass@1, if evaluated after this step.
        pub held_out: Option<f64>,
        /// In a game the exploitability instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exploitability: Option<f64>,
        /// Mean reward, as the recipe sees it.
        pub reward: f64,
        /// Mean reward before flips, if rewards are flipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub clean_reward: Option<f64>,
        /// Fraction of groups whose rewards are all equal; most recipes learn nothing from them.
        pub constant_groups: f64,
        /// Mean number of tokens per response, observations included.
        pub response_tokens: f64,
        /// Mean number of calls of a tool per response, failed ones included, if there is a tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub calls: Option<f64>,
        /// Learning rate.
        pub rate: f64,
        /// Mean gradient norm before clipping.
        pub grad_norm: f64,
        /// Loss.
        pub loss: f64,
        /// Estimated KL(old ‖ current).
        pub approx_kl: f64,
        /// KL(policy ‖ policy after the warm start), k1.
        pub drift_k1: f64,
        /// The same, k3: never negative, but a token to which the old policy gave more probability weighs
        /// e^difference.
        pub drift_k3: f64,
        /// Mean negative log-probability of the sampled tokens, an entropy estimate.
        pub entropy: f64,
        /// Smallest ratio.
        pub ratio_min: f64,
        /// Mean ratio.
        pub ratio_mean: f64,
        /// Largest ratio.
        pub ratio_max: f64,
        /// Standard deviation of the ratio.
        pub ratio_std: f64,
        /// Effective sample size, as a fraction.
        pub ess: f64,
        /// Mean gate weight.
        pub gate_mean: f64,
        /// Fraction of tokens at the upper clip.
        pub clip_high: f64,
        /// Fraction of tokens at the lower clip.
        pub clip_low: f64,
        /// Fraction of tokens at the dual clip.
        pub clip_dual: f64,
        /// Tokens whose log-ratio was outside the guard.
        pub guarded_tokens: u64,
        /// Fraction of tokens whose ratio lies in the recipe's band.
        pub in_band: f64,
        /// Training-inference mismatch, k1: mean log-probability in the engine minus in the trainer.
        pub mismatch_k1: f64,
        /// Training-inference mismatch, k3.
        pub mismatch_k3: f64,
        /// Smallest ratio of trainer to engine.
        pub mismatch_min: f64,
        /// Largest ratio of trainer to engine.
        pub mismatch_max: f64,
        /// Its standard deviation.
        pub mismatch_std: f64,
        /// How much of the blame for a wrong response its first wrong token has, if this is measured; 1 where
        /// all tokens have the same advantage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub blame: Option<f64>,
        /// Variance of an update's gradient over draws of its minibatch (the trace of the covariance, before
        /// clipping), if this is measured; the mean over the updates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub grad_variance: Option<f64>,
        /// Loss of the critic, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub value_loss: Option<f64>,
        /// Rollouts sampled, if prompts come from a pool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rollouts: Option<RolloutCount>,
        /// What it took to sample the rollouts, if they are not sampled each by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sampler: Option<SamplerRecord>,
        /// The engine beside the trainer, if the run has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub engine: Option<EngineRecord>,
        /// Routing differences, if routing is recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub routing: Option<Mismatches>,
    }
}

impl RlRecord {
    /// How good the policy was, if this was measured.
    pub fn measured(&self) -> Option<f64> {
        self.held_out.or(self.exploitability)
    }
}

/// Numbers of rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutCount {
    /// In this step.
    pub step: u64,
    /// In the RL phase so far.
    pub total: u64,
}

/// The files that records are appended to.
pub(super) struct Journal {
    metrics: Lines,
    timings: Lines,
}

/// A file of complete lines.
struct Lines {
    file: File,
    path: PathBuf,
    length: u64,
}

/// The metrics file of a run's folder.
pub const METRICS: &str = "metrics.jsonl";
/// The seconds each step took; kept out of the metrics because no two runs agree on them.
pub(super) const TIMINGS: &str = "timings.jsonl";
/// A line of the timings that a power cut took: only the metrics are flushed to the disk.
const UNKNOWN: &str = "{\"seconds\":null}";
/// The report of a finished run, or with `--report-live` of one that goes on.
pub(super) const REPORT: &str = "report.html";

impl Journal {
    /// Opens the files of a run's folder, truncated to their first `lines` lines: a run killed between
    /// writing a line and the checkpoint that covers it will write that line again, and its last line may be
    /// incomplete.
    pub(super) fn open(folder: &Path, lines: u64) -> Result<Self> {
        let metrics = Lines::open(folder.join(METRICS), lines, None)?;
        let timings = Lines::open(folder.join(TIMINGS), lines, Some(UNKNOWN))?;
        Ok(Self { metrics, timings })
    }

    /// Appends a step. Its line reaches the disk before the checkpoint that counts it.
    pub(super) fn append(&mut self, record: &Record, seconds: f64) -> Result<()> {
        self.metrics.append(&serde_json::to_string(record)?)?;
        self.metrics
            .file
            .sync_data()
            .with_context(|| format!("cannot append to {}", self.metrics.path.display()))?;
        self.timings.append(&serde_json::json!({ "seconds": seconds }).to_string())
    }
}

impl Lines {
    /// Opens a file and keeps its first `least` lines; it must have that many, or `lost` stands for the rest.
    fn open(path: PathBuf, least: u64, lost: Option<&str>) -> Result<Self> {
        atomic::check(&path)?;
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
        let found = ends.len() as u64;
        ensure!(
            found >= least || lost.is_some(),
            "{} has {found} lines, but the checkpoint was written after {least}",
            path.display()
        );
        let keep = least.min(found) as usize;
        let length = keep.checked_sub(1).map_or(0, |last| ends[last]) as u64;
        let open = || -> std::io::Result<File> {
            let file = OpenOptions::new().append(true).create(true).open(&path)?;
            file.set_len(length)?;
            Ok(file)
        };
        let file = open().with_context(|| format!("cannot open {}", path.display()))?;
        let mut lines = Self { file, path, length };
        (found..least).try_for_each(|_| lines.append(lost.unwrap_or_default()))?;
        Ok(lines)
    }

    /// Appends a line, or leaves the file unchanged.
    fn append(&mut self, line: &str) -> Result<()> {
        let line = format!("{line}\n");
        if let Err(error) = (&self.file).write_all(line.as_bytes()) {
            // If this fails too, a resumed run cuts off the incomplete line.
            let _ = self.file.set_len(self.length);
            return Err(error).with_context(|| format!("cannot append to {}", self.path.display()));
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Reads the records of a run's folder.
pub fn read(folder: &Path) -> Result<Vec<Record>> {
    let path = folder.join(METRICS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), i + 1))
    };
    text.lines().enumerate().map(parse).collect()
}

/// The recorded seconds of each step; 0 where they are lost.
pub fn read_seconds(folder: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(folder.join(TIMINGS)).unwrap_or_default();
    let seconds = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("seconds")?.as_f64();
    text.lines().map(|line| seconds(line).unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_not_written() {
        let text = serde_json::to_string(&RlRecord::default()).unwrap();
        for absent in ["calls", "value_loss", "rollouts", "sampler", "engine", "routing"] {
            assert!(!text.contains(absent), "{text}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_read_as_nan() {
        let folder = tempfile::tempdir().unwrap();
        let routing = Mismatches { gate_kl_layers: vec![0.5, f64::INFINITY], ..Mismatches::default() };
        let (ratio_max, loss) = (f64::INFINITY, f64::NAN);
        let rl = RlRecord { ess: 0.25, ratio_max, loss, routing: Some(routing), ..RlRecord::default() };
        let warm = WarmRecord { loss, ..WarmRecord::default() };
        let mut journal = Journal::open(folder.path(), 0).unwrap();
        journal.append(&Record::Warm(warm), 0.5).unwrap();
        journal.append(&Record::Rl(Box::new(rl)), 0.5).unwrap();
        let records = read(folder.path()).unwrap();
        let [Record::Warm(warm), Record::Rl(rl)] = &records[..] else { panic!("{records:?}") };
        assert!(warm.loss.is_nan() && rl.ratio_max.is_nan() && rl.loss.is_nan());
        assert_eq!((rl.ess, rl.held_out), (0.25, None));
        let layers = &rl.routing.as_ref().unwrap().gate_kl_layers;
        assert!(layers[0] == 0.5 && layers[1].is_nan());
    }

    #[test]
    fn torn_and_uncovered_lines_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let record = |step| Record::Warm(WarmRecord { step, ..WarmRecord::default() });
        let mut journal = Journal::open(folder.path(), 0).unwrap();
        for step in 1..=3 {
            journal.append(&record(step), 0.5).unwrap();
        }
        (&journal.metrics.file).write_all(b"{\"phase\":\"wa").unwrap();
        let mut journal = Journal::open(folder.path(), 2).unwrap();
        journal.append(&record(3), 0.5).unwrap();
        assert_eq!(read(folder.path()).unwrap(), [record(1), record(2), record(3)]);
        assert_eq!(read_seconds(folder.path()), [0.5; 3]);
        assert!(Journal::open(folder.path(), 4).is_err());
        // The seconds that a later step takes stay its own.
        std::fs::write(folder.path().join(TIMINGS), "{\"seconds\":0.5}\n{\"sec").unwrap();
        Journal::open(folder.path(), 3).unwrap().append(&record(4), 2.0).unwrap();
        assert_eq!(read_seconds(folder.path()), [0.5, 0.0, 0.0, 2.0]);
    }
}
