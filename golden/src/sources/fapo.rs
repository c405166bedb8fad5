//! FAPO's rewards for the policy, and for the model that looks for its first wrong step.

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::{Plan, Request};
use lockstep::core::reward::Shaping;
use lockstep::ops::reward::ShapeParams;
use lockstep::ops::shape_rewards;
use lockstep::schedules::judge::{Verdict, step_reward};
use lockstep::{Batch, Device};
use serde_json::Value;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["reward_fapo", "reward_fapo_genrm"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    match op {
        "reward_fapo" => policy(config, inputs, device),
        "reward_fapo_genrm" => judge(inputs),
        _ => Err(format!("op {op} is not in the table of FAPO")),
    }
}

/// −1: no step is wrong. Anything that is not a step is unreadable.
fn verdict(said: &Value, steps: Option<u32>) -> Verdict {
    match said.as_i64().map(|step| (step, u32::try_from(step))) {
        Some((-1, _)) => Verdict::Clean,
        Some((_, Ok(step))) if steps.is_none_or(|steps| step < steps) => Verdict::FlawedAt(step),
        _ => Verdict::Unreadable,
    }
}

fn policy(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let lambda = config.number("FLAWED_REWARD_PENALTY")?.unwrap_or(1.0);
    // The detector is used only in training.
    let asked = match config.text("split")? {
        Some("train") => true,
        Some("test") => false,
        other => return Err(format!("config `split` is {other:?}: expected train or test")),
    };
    let correct = inputs.value("correct")?.as_bool().ok_or("`correct` is not true or false")?;
    let flawed = matches!(verdict(inputs.value("detector_step")?, None), Verdict::FlawedAt(_)) && asked;
    let batch = Batch::new(&[0, 1], &[0, 1], None).map_err(text)?;
    let rewards = [if correct { 1.0 } else { 0.0 }];
    let score = |flawed: bool| {
        let flags = [u8::from(flawed)];
        let params = ShapeParams { flags: Some(&flags), ..ShapeParams::new(Shaping::Flawed { lambda }) };
        shape_rewards(device, &batch, &rewards, None, &params).map_err(text)
    };
    let (own, sound) = (score(flawed)?[0], score(false)?[0]);
    // Whether the flag costs anything.
    let costs = f64::from(u8::from(own != sound));
    let got = vec![("score", Got::Number(own.into(), 0.0)), ("is_flawed_positive", Got::Number(costs, 0.0))];
    Ok(Plan::Numbers("ops::shape_rewards", got, None))
}

fn judge(inputs: &Inputs<'_>) -> Result<Plan, String> {
    let steps = inputs.number("total_steps")? as u32;
    let first = u32::try_from(inputs.number("first_error_step")? as i64).ok();
    let score = step_reward(verdict(inputs.value("predicted_step")?, Some(steps)), first, steps);
    // Whether it recognised that there is an error, or that there is none; otherwise, and only then, the
    // score is −1.
    let right = f64::from(u8::from(score > -1.0));
    let got = vec![("score", Got::Number(score, 0.0)), ("acc", Got::Number(right, 0.0))];
    Ok(Plan::Numbers("schedules::judge", got, None))
}
