//! What a recipe may require that this trainer cannot provide, checked before a run has cost anything, and
//! the tasks that suit a recipe.

use std::fmt::Write;

use anyhow::{Result, bail, ensure};
use lockstep::recipe::{AdvantageEstimator, Duty, ShapingChoice, TimeChoice, entries};
use lockstep::{Column, Recipe};

use crate::cli::ValueName;
use crate::config::Config;
use crate::task::{Kind, Task};

/// The recipe whose column `divergence` holds what [`crate::rl::Algorithm::divergence`] computes. Recipes do
/// not say which divergence they bound.
const BY_KL: &str = "dppo_topk_kl";

/// The kinds of tasks that suit a recipe; if there are none, what no task can give, with the reasons.
pub fn suits(recipe: &Recipe) -> Result<Vec<Kind>, String> {
    let kinds = [Kind::Arithmetic, Kind::Jsonl, Kind::Calculator, Kind::Game];
    let suits: Vec<Kind> =
        kinds.into_iter().filter(|kind| lacking(recipe, *kind, false).is_empty()).collect();
    if suits.is_empty() { Err(lacking(recipe, Kind::Arithmetic, false).join("; ")) } else { Ok(suits) }
}

/// The text above the table in docs/training.md.
const HEAD: &str = "\
# What trains on what

The table is what `lockstep list --tasks` prints; a test fails when it is out of date, another one \
trains every
recipe for three steps. *arithmetic*: `addition[:DIGITS]` and `multiplication[:DIGITS]`, whose working can \
be judged step
by step; *jsonl*: `jsonl:PATH`; *calculator*: `calculator[:DIGITS]`, whose responses call a tool (below); \
*games*: `kuhn`
and `tictactoe`, played by the policy in both roles; *any*: all of these.
Duties: what the loop does for the recipe beside the two calls (`lockstep explain NAME`).

| recipe | tasks | duties |
|---|---|---|
";

/// The table of docs/training.md.
pub fn tasks_markdown() -> Result<String> {
    let mut page = HEAD.to_owned();
    for entry in entries() {
        let recipe = Recipe::named(&entry.name)?;
        let name = |kind: &Kind| match kind {
            Kind::Arithmetic => "arithmetic",
            Kind::Jsonl => "jsonl",
            Kind::Calculator => "calculator",
            Kind::Game => "games",
        };
        let tasks = match suits(&recipe) {
            Ok(kinds) if kinds.len() == 4 => "any".to_owned(),
            Ok(kinds) => kinds.iter().map(name).collect::<Vec<_>>().join(", "),
            Err(lacking) => format!("none: {lacking}"),
        };
        let duties: Vec<&str> = recipe.duties().into_iter().map(Duty::name).collect();
        writeln!(page, "| `{}` | {tasks} | {} |", entry.name, duties.join(", "))?;
    }
    Ok(page)
}

/// Checks that the trainer can run a recipe.
///
/// Errors: the required columns and duties that it cannot provide, each with the reason.
pub(super) fn check(recipe: &Recipe, config: &Config, task: &Task) -> Result<()> {
    let lacking = lacking(recipe, task.kind(), config.routing.is_some());
    ensure!(
        lacking.is_empty(),
        "the recipe {} needs what this task does not provide: {}",
        recipe.name,
        lacking.join("; ")
    );
    for (option, given) in
        [("--measure-blame", config.measure.blame), ("--rubric", config.rl.rubric.is_some())]
    {
        ensure!(
            !given || task.kind() == Kind::Arithmetic,
            "{option} with --task {}: expected addition or multiplication, whose working can be judged",
            config.task
        );
    }
    let flips = config.rl.flip_rewards;
    let reads = |column| recipe.needs().iter().any(|need| need.column == column);
    ensure!(
        flips == 0.0 || FLIPPED.into_iter().any(reads),
        "--flip-rewards is {flips}, but the recipe {} reads no reward of a response",
        recipe.name
    );
    let (sampler, select) = (config.sampling.sampler, config.pool.unwrap_or_default().select);
    if let Some(why) = sampler.lacks(task.kind()) {
        bail!("--sampler {} with --task {}: {why}", sampler.name(), config.task);
    }
    for duty in recipe.duties() {
        for (option, value, why) in [
            ("--sampler", sampler.name(), sampler.excludes(duty)),
            ("--select", select.name(), select.excludes(duty)),
        ] {
            if let Some(why) = why {
                bail!("{option} {value} with {}: duty `{}`: {why}", recipe.name, duty.name());
            }
        }
    }
    let lengths = Some(config.rl.length_reward).filter(|most| *most > 0.0);
    let lengths = lengths.map(|most| format!("--length-reward is {most}"));
    let rubric = config.rl.rubric.map(|points| format!("--rubric is {points:?}"));
    let binary =
        matches!(recipe.reward.shaping, Some(ShapingChoice::Signs { .. } | ShapingChoice::Fapo { .. }))
            || matches!(recipe.advantage.over_time, Some(TimeChoice::SignedReturn { .. }));
    for option in [lengths, rubric].into_iter().flatten() {
        let name = &recipe.name;
        ensure!(reads(Column::rewards), "{option}, but the recipe {name} reads no reward of a response");
        ensure!(!binary, "{option}, but the recipe {name} expects the rewards 0 and 1");
        if let Some(duty) = recipe.duties().into_iter().find(|duty| JUDGED.contains(duty)) {
            bail!(
                "{option}, but the recipe {name} subtracts a baseline that the verifier judges, 0 to 1: \
                 expected a recipe without the duty `{}`",
                duty.name()
            );
        }
    }
    Ok(())
}

/// The columns that hold the verifier's rewards.
const FLIPPED: [Column; 3] = [Column::rewards, Column::token_rewards, Column::reward_components];

/// Duties whose baseline is what the verifier says of a greedy response, or said of earlier ones.
const JUDGED: [Duty; 3] = [Duty::GreedyResponse, Duty::TrackedValue, Duty::PriorValue];

/// What a run lacks for a recipe, on a kind of task, with or without routing.
fn lacking(recipe: &Recipe, kind: Kind, routing: bool) -> Vec<String> {
    let mut lacking = Vec::new();
    let missing = |column| missing(recipe, column, kind);
    for need in recipe.needs().iter().filter(|need| need.required) {
        let or = |column: Option<Column>| column.is_none_or(|column| missing(column).is_some());
        if let Some(why) = missing(need.column).filter(|_| or(need.or)) {
            lacking.push(format!("column `{}` (for {}): {why}", need.column.name(), need.stage));
        }
    }
    for duty in recipe.duties() {
        if let Some(why) = undone(duty, kind, routing) {
            lacking.push(format!("duty `{}`: {why}", duty.name()));
        }
    }
    if kind == Kind::Game {
        lacking.extend(unfit(recipe).map(str::to_owned));
    }
    lacking.dedup();
    lacking
}

/// Why there are no steps, and in a task without turns of its own no turns.
const UNJUDGED: &str = "this task judges only the answer of a response, not its working";

/// Why a column is unavailable, if it is.
fn missing(recipe: &Recipe, column: Column, kind: Kind) -> Option<&'static str> {
    match column {
        Column::log_ratio => Some("only a caller of the library has log-ratios computed elsewhere"),
        Column::divergence if recipe.name != BY_KL => {
            Some("the trainer has only the KL over the whole vocabulary, which is what dppo_topk_kl bounds")
        }
        Column::divergence if recipe.duties().iter().any(|duty| STORES.contains(duty)) => {
            Some("a stored response has no logits of its old policy")
        }
        Column::flawed
        | Column::cu_steps
        | Column::cu_step_tokens
        | Column::step_rewards
        | Column::step_matches
            if kind != Kind::Arithmetic =>
        {
            let game = kind == Kind::Game;
            Some(if game { "only the result of a game is judged, not its moves" } else { UNJUDGED })
        }
        Column::reward_components if kind == Kind::Game => Some("a game has one reward, its result"),
        Column::answer_class if kind == Kind::Game => Some("a game has no answers to vote on"),
        Column::cu_turns | Column::turn_rewards | Column::turn_roles if kind == Kind::Jsonl => Some(UNJUDGED),
        _ => None,
    }
}

/// What a recipe takes for granted about rewards that does not hold for those of a game.
fn unfit(recipe: &Recipe) -> Option<&'static str> {
    if recipe.advantage.estimator == AdvantageEstimator::MaxRl {
        return Some(
            "estimator `max_rl`: the mean reward of a group, its divisor, may be 0 or less in a game",
        );
    }
    let signs = matches!(recipe.reward.shaping, Some(ShapingChoice::Signs { .. }));
    signs.then_some("shaping `signs`: it replaces the rewards 0 and 1, but a game has other rewards")
}

/// Duties for which responses of earlier steps are stored.
const STORES: [Duty; 2] = [Duty::ReplaySuccesses, Duty::LatestPolicy];

/// Why the loop cannot perform a duty, if it cannot.
fn undone(duty: Duty, kind: Kind, routing: bool) -> Option<&'static str> {
    match duty {
        duty if routing && STORES.contains(&duty) => {
            Some("a stored response has no routing to replay: leave --routing out")
        }
        Duty::PruneSolved | Duty::ReplaySuccesses if kind == Kind::Game => {
            Some("a game that was won is not solved: its result depends on the deal and on the other player")
        }
        Duty::TrackedValue | Duty::PriorValue if kind == Kind::Game => {
            Some("the trainer tracks success rates, and the result of a game is not one")
        }
        Duty::DynamicSampling
        | Duty::PruneSolved
        | Duty::ReplaySuccesses
        | Duty::GreedyResponse
        | Duty::PivotResponse
        | Duty::TrackedValue
        | Duty::PriorValue
        | Duty::CarryRoleValues
        | Duty::TrainCritic
        | Duty::ScaleLearningRate
        | Duty::LatestPolicy
        | Duty::PreviousPolicy
        | Duty::ResetReference
        | Duty::MicroBatchMean => None,
        _ => Some("this trainer does not support it"),
    }
}
