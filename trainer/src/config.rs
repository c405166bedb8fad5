//! Everything that determines the numbers of a run. It is saved in every checkpoint, and a resumed run must
//! match it. The file exceeds 400 lines because every option has its bounds and its message here.

use anyhow::{Result, ensure};
use lockstep::Duty;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adamw::AdamConfig;
use crate::cli::ValueName;
use crate::model::{Manner, PrecisionFlow, Shape};
use crate::rl;
use crate::routing::Routing;
use crate::task::{Game, Task};
use crate::train::{Asynchronous, Pool, Sampling, Select};
use crate::vocab::Vocab;

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The seed of all randomness.
    pub seed: u64,
    /// The task's name.
    pub task: String,
    /// A fingerprint of the task's file, if it has one.
    pub task_fingerprint: String,
    /// The recipe's name or file, for display only.
    pub recipe: String,
    /// The recipe itself, in TOML.
    pub recipe_toml: String,
    /// The model.
    pub model: Shape,
    /// The optimiser.
    pub adam: AdamConfig,
    /// The supervised warm start.
    pub warm: Warm,
    /// The RL phase.
    pub rl: Rl,
    /// How often, and on how many problems, policies are evaluated.
    pub measure: Measure,
    /// How the rollouts of a group are sampled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sampling: Sampling,
    /// A fixed pool of training prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// An inference engine beside the trainer, on a simulated clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asynchronous: Option<Asynchronous>,
    /// Routing through Lockstep's router, recorded and optionally replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// The precision of both ends: sampling and training.
    #[serde(flatten)]
    pub precision: PrecisionFlow,
}

/// Whether there is nothing to write.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The supervised warm start. It ends after the first step at which the policy solves enough *training*
/// problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warm {
    /// Learning rate.
    pub rate: f32,
    /// Worked solutions per update.
    pub batch: usize,
    /// Updates per step.
    pub updates: u64,
    /// Fraction of training problems that must be solved, or of games played by the rules.
    pub target: f32,
    /// Maximum number of steps.
    pub max_steps: u64,
}

/// The RL phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rl {
    /// Base learning rate; after a short warm-up it decays linearly to three tenths of this.
    pub rate: f32,
    /// Number of steps; each samples a batch of rollouts and updates on it.
    pub steps: u64,
    /// Prompts per batch.
    pub prompts: usize,
    /// Maximum number of prompts per batch to learn from: the first ones whose responses have nonzero
    /// advantages.
    pub keep: usize,
    /// Rollouts per prompt.
    pub group: usize,
    /// Probability with which the verifier's judgement of a response is turned round.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flip_rewards: f32,
    /// Largest reward of a right response for being short.
    #[serde(default, skip_serializing_if = "is_default")]
    pub length_reward: f32,
    /// Points of a rubric whose sum is the reward: for the right answer, for right working, and for a
    /// response that is cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rubric: Option<[f32; 3]>,
    /// Updates per batch, each on its own share of the prompts.
    pub minibatches: usize,
}

/// How policies are evaluated: one sample per problem, at temperature 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Held-out problems.
    pub problems: usize,
    /// RL steps between two evaluations.
    pub every: u64,
    /// Whether to record where the blame for wrong responses falls.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blame: bool,
    /// Whether to record the variance of the gradients.
    #[serde(default, skip_serializing_if = "is_default")]
    pub variance: bool,
}

impl Config {
    /// The default configuration for a task by its name.
    pub fn new(task: &str, recipe: &str) -> Result<Self> {
        Self::with_choices(task, &Task::named(task)?, recipe, None)
    }

    /// The same for an open task, with other choices than the recipe's, in TOML.
    pub fn with_choices(task_name: &str, task: &Task, recipe: &str, choices: Option<&str>) -> Result<Self> {
        let trained = rl::to_train(rl::recipe(recipe)?, choices)?;
        let (vocab, context) = tokens(task);
        Ok(Self {
            seed: 1,
            task: task_name.to_owned(),
            task_fingerprint: task.fingerprint(),
            recipe: recipe.to_owned(),
            model: Shape {
                vocab,
                context,
                layers: 2,
                width: 64,
                heads: 4,
                experts: 8,
                top_k: 2,
                hidden: 64,
                critic: trained.duties().contains(&Duty::TrainCritic),
            },
            recipe_toml: trained.to_toml()?,
            adam: AdamConfig { beta1: 0.9, beta2: 0.98, eps: 1e-8, weight_decay: 0.01, max_norm: 1.0 },
            warm: Warm {
                rate: 3e-3,
                batch: 64,
                updates: 10,
                target: if task.game().is_some() { 0.98 } else { 0.35 },
                max_steps: 120,
            },
            rl: Rl {
                rate: 3e-4,
                steps: 320,
                prompts: 128,
                keep: 64,
                group: 8,
                flip_rewards: 0.0,
                length_reward: 0.0,
                rubric: None,
                minibatches: 4,
            },
            measure: Measure { problems: 512, every: 10, blame: false, variance: false },
            sampling: Sampling::default(),
            pool: None,
            asynchronous: None,
            routing: None,
            precision: PrecisionFlow::default(),
        })
    }

    /// The game, if the task is one.
    pub fn game(&self) -> Option<Game> {
        Game::named(&self.task)
    }

    /// How the trainer runs the model.
    pub fn trainer_manner(&self) -> Manner {
        Manner { lockstep_router: self.routing.is_some(), precision: self.precision.train }
    }

    /// How the model is run for sampling.
    pub fn engine_manner(&self) -> Manner {
        Manner { precision: self.precision.rollout, ..self.trainer_manner() }
    }

    /// Checks that the values are valid and consistent with each other.
    pub fn check(&self) -> Result<()> {
        let positive = [
            ("--layers", self.model.layers, 64),
            ("--width", self.model.width, 4096),
            // No options; only an edited checkpoint can have other values.
            ("model.heads", self.model.heads, 4096),
            ("warm.batch", self.warm.batch, 1 << 20),
            ("--experts", self.model.experts, 256),
            ("--top-k", self.model.top_k, 32),
            ("--prompts", self.rl.prompts, 1 << 20),
            ("--keep", self.rl.keep, 1 << 20),
            ("--group", self.rl.group, 1 << 20),
            ("--minibatches", self.rl.minibatches, 1 << 20),
            ("--measure", self.measure.problems, 1 << 20),
            ("--measure-every", self.measure.every as usize, 1 << 20),
            ("--warm-steps", self.warm.max_steps as usize, (1 << 20) - 1),
            ("--warm-updates", self.warm.updates as usize, 1 << 20),
        ];
        for (name, value, most) in positive {
            ensure!(value > 0, "{name} is 0: expected at least 1");
            ensure!(value <= most, "{name} is {value}: expected at most {most}");
        }
        let Shape { width, heads, experts, top_k, .. } = self.model;
        ensure!(
            width % heads == 0,
            "--width is {width}: expected a multiple of {heads}, the number of heads"
        );
        ensure!(
            experts >= top_k,
            "--experts is {experts}: expected at least {top_k}, the experts of each token (--top-k)"
        );
        if let Some(Routing { mode, balance }) = &self.routing {
            let mode = mode.name();
            ensure!(experts > 1, "--routing {mode} with --experts 1: expected at least 2 experts");
            ensure!(
                balance.is_finite() && *balance >= 0.0,
                "--balance is {balance}: expected a finite number of at least 0"
            );
        }
        if let Some(engine) = &self.asynchronous {
            engine.check()?;
        }
        let Rl { prompts, keep, group, minibatches, rate, flip_rewards, length_reward, .. } = self.rl;
        for (option, share) in [("--flip-rewards", flip_rewards), ("--length-reward", length_reward)] {
            ensure!(
                share == 0.0 || self.game().is_none(),
                "{option} with --task {}: expected a task whose rewards are 0 or 1",
                self.task
            );
            ensure!((0.0..=1.0).contains(&share), "{option} is {share}: expected 0 to 1");
        }
        if self.game().is_some() {
            ensure!(
                self.asynchronous.is_none(),
                "--async with --task {}: the engine samples a response in one piece, not in turns",
                self.task
            );
            ensure!(
                prompts.is_multiple_of(2),
                "--prompts is {prompts}: expected an even number, one for each role of a game"
            );
        }
        ensure!(
            minibatches <= prompts.min(keep),
            "--minibatches is {minibatches}: expected at most {}, the prompts that are trained on",
            prompts.min(keep)
        );
        ensure!(
            prompts * group < 1 << 28,
            "--prompts {prompts} times --group {group}: expected fewer than 2^28 responses in a batch"
        );
        ensure!(self.rl.steps < 1 << 28, "--steps is {}: expected less than 2^28", self.rl.steps);
        ensure!(rate.is_finite() && rate >= 0.0, "--rate is {rate}: expected a finite number of at least 0");
        if let Some(points) = self.rl.rubric {
            let good = points.iter().all(|p| p.is_finite()) && points.iter().any(|p| *p > 0.0);
            ensure!(good, "--rubric is {points:?}: expected finite points, one of them above 0");
            ensure!(
                length_reward == 0.0,
                "--length-reward with --rubric: expected one of them, the rubric replaces the reward"
            );
        }
        if let Some(pool) = &self.pool {
            pool.check(&self.rl)?;
            ensure!(
                self.game().is_none(),
                "--pool with --task {}: expected a task of many prompts to choose from",
                self.task
            );
            ensure!(
                flip_rewards == 0.0 || pool.select != Select::Dars,
                "--flip-rewards with --select dars: its first stage counts before rewards are flipped"
            );
            ensure!(
                self.asynchronous.is_none(),
                "--async with --pool: the engine starts groups before the outcomes that select from the pool \
                 are known"
            );
        }
        self.sampling.check(self)?;
        let target = self.warm.target;
        ensure!(target.is_finite(), "--warm-target is {target}: expected a finite number");
        Ok(())
    }

    /// Checks that the model has the task's vocabulary, and room for its longest response.
    pub fn fits(&self, task: &Task) -> Result<()> {
        let (vocab, context) = tokens(task);
        let model = &self.model;
        ensure!(
            (model.vocab, model.context) == (vocab, context),
            "the model has {} tokens and sequences of {}, but the task '{}' needs {vocab} and {context}: \
             expected the task that the model was made for",
            model.vocab,
            model.context,
            self.task
        );
        Ok(())
    }

    /// The learning rate of an RL step: a short warm-up, since the moments start at zero, then a linear decay
    /// to three tenths.
    pub fn rl_rate(&self, step: u64) -> f32 {
        let done = step as f32 / self.rl.steps.max(1) as f32;
        self.rl.rate * (1.0 - 0.7 * done) * ((step + 1) as f32 / 5.0).min(1.0)
    }

    /// The learning rate of a warm-start update.
    pub fn warm_rate(&self, update: u64) -> f32 {
        self.warm.rate * ((update + 1) as f32 / 20.0).min(1.0)
    }

    /// The fields in which two configurations differ, each with both values.
    pub fn differences(&self, other: &Self) -> Result<Vec<String>> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        flatten("", &serde_json::to_value(self)?, &mut a);
        flatten("", &serde_json::to_value(other)?, &mut b);
        // A field may be present in only one of them.
        let of = |fields: &[(String, Value)], name: &str| {
            fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        let shown = |value: Option<Value>| value.map_or("not set".to_owned(), |value| text(&value));
        let mut names: Vec<&String> = a.iter().map(|(name, _)| name).collect();
        names.extend(b.iter().map(|(name, _)| name).filter(|name| a.iter().all(|(other, _)| other != *name)));
        Ok(names
            .into_iter()
            .map(|name| (name, of(&a, name), of(&b, name)))
            .filter(|(_, a, b)| a != b)
            .map(|(name, a, b)| format!("{name}: {} / {}", shown(a), shown(b)))
            .collect())
    }
}

/// Size of a task's vocabulary, and the most tokens of a prompt with its response.
fn tokens(task: &Task) -> (usize, usize) {
    let (prompt, solution) = task.longest();
    // Plus one position for the end token.
    (Vocab::new(task.alphabet()).size(), prompt + solution + 1)
}

fn flatten(path: &str, value: &Value, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value, out);
            }
        }
        other => out.push((path.to_owned(), other.clone())),
    }
}

/// A value as text. Most fractions are f32; shown as f32, 0.9 is 0.9.
fn text(value: &Value) -> String {
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(x) if f64::from(x as f32) == x => (x as f32).to_string(),
        _ => value.to_string(),
    }
}

/// The configuration's fields, flattened, for a table.
pub fn rows(config: &Config) -> Result<Vec<(String, String)>> {
    let mut out = Vec::new();
    flatten("", &serde_json::to_value(config)?, &mut out);
    Ok(out.into_iter().map(|(name, value)| (name, text(&value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::routing::Mode;
    use crate::train::Schedule;

    /// Checkpoints of runs without replay are byte for byte those written before replay existed, and old ones
    /// still load.
    #[test]
    fn what_is_not_asked_for_is_not_written() {
        let config = Config::new("addition:1", "grpo").unwrap();
        let text = serde_json::to_string(&config).unwrap();
        for absent in [
            "routing",
            "precision",
            "pool",
            "sampl",
            "flip_rewards",
            "length_reward",
            "rubric",
            "blame",
            "variance",
        ] {
            assert!(!text.contains(absent), "{text}");
        }
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        assert_eq!(config.trainer_manner(), Manner::default());
        assert_eq!(config.engine_manner().precision, Precision::Bf16Weights);
        let mut asked = config.clone();
        asked.routing = Some(Routing { mode: Mode::R3, balance: 0.5 });
        asked.precision = PrecisionFlow { rollout: Precision::Bf16, train: Precision::Fp8 };
        asked.rl.flip_rewards = 0.4;
        asked.pool = Some(Pool { size: 64, select: Select::Vade });
        let differences = config.differences(&asked).unwrap();
        assert_eq!(differences.len(), 7);
        for one in [
            "pool.select: not set / \"vade\"",
            "pool.size: not set / 64",
            "rollout_precision: not set / \"bf16\"",
            "train_precision: not set / \"fp8\"",
            "routing.balance: not set / 0.5",
            "routing.mode: not set / \"r3\"",
            "rl.flip_rewards: not set / 0.4",
        ] {
            assert!(differences.iter().any(|found| found == one), "{differences:?}");
        }
        assert_eq!(asked.differences(&config).unwrap().len(), 7);
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), asked);
        // The names in files are those that they had before both ends were one value.
        assert!(text.ends_with(r#""rollout_precision":"bf16","train_precision":"fp8"}"#), "{text}");
        let other = text.replace("train_precision", "training_precision");
        let error = serde_json::from_str::<Config>(&other).unwrap_err().to_string();
        assert!(error.contains("training_precision"), "{error}");
    }

    /// 0.3 and its neighbour are the same f32.
    #[test]
    fn doubles_differ_in_their_last_bit() {
        let mut config = Config::new("addition:1", "grpo").unwrap();
        let mut engine = Asynchronous::new(Schedule::Areal);
        engine.tail = 0.3;
        config.asynchronous = Some(engine);
        let mut other = config.clone();
        assert_eq!(config.differences(&other).unwrap(), [""; 0]);
        engine.tail = 0.3_f64.next_up();
        other.asynchronous = Some(engine);
        assert_eq!(config.differences(&other).unwrap(), ["asynchronous.tail: 0.3 / 0.30000000000000004"]);
    }
}
