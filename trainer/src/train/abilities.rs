//! What a recipe may require that this trainer cannot provide, checked before a run has cost anything.

use anyhow::{Result, ensure};
use lockstep::recipe::Duty;
use lockstep::{Column, Recipe};

use crate::config::Config;
use crate::task::Task;

/// Checks that the trainer can run a recipe.
///
/// Errors: the required columns and duties that it cannot provide, each with the reason.
pub(super) fn check(recipe: &Recipe, config: &Config, task: &Task) -> Result<()> {
    let mut lacking = Vec::new();
    for need in recipe.needs().iter().filter(|need| need.required) {
        let or = |column: Option<Column>| column.is_none_or(|column| missing(column, task).is_some());
        if let Some(why) = missing(need.column, task).filter(|_| or(need.or)) {
            lacking.push(format!("column `{}` (for {}): {why}", need.column.name(), need.stage));
        }
    }
    for duty in recipe.duties() {
        if let Some(why) = undone(duty, config) {
            lacking.push(format!("duty `{}`: {why}", duty.name()));
        }
    }
    lacking.dedup();
    ensure!(
        lacking.is_empty(),
        "the recipe {} asks for what this task cannot give: {}",
        recipe.name,
        lacking.join("; ")
    );
    Ok(())
}

/// Why a column is unavailable, if it is.
fn missing(column: Column, task: &Task) -> Option<&'static str> {
    match column {
        Column::log_ratio => Some("only the caller of the library knows a log-ratio made elsewhere"),
        Column::cu_turns | Column::turn_rewards | Column::turn_roles => {
            Some("the task has a single turn, and no other player")
        }
        Column::flawed
        | Column::cu_steps
        | Column::cu_step_tokens
        | Column::step_rewards
        | Column::step_matches
            if !task.has_one_working() =>
        {
            Some("nothing judges the working of a response to this task, only its answer")
        }
        _ => None,
    }
}

/// Why the loop cannot perform a duty, if it cannot.
fn undone(duty: Duty, config: &Config) -> Option<&'static str> {
    match duty {
        Duty::ReplaySuccesses | Duty::LatestPolicy if config.routing.is_some() => {
            Some("a stored response has no routing to replay: leave --routing out")
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
        _ => Some("this trainer does not know it"),
    }
}
