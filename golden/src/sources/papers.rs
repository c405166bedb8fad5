//! Small releases of papers: RLVR-Decomposed (PSR, NSR), GDPO, GMPO, MC-GRPO.

use crate::inputs::Inputs;
use crate::numbers::{Got, loss, widen};
use crate::outcome::{Calls, Exception, Setup};
use crate::settings::{Config, Overlay};
use crate::sources::{OUTCOME, Plan, Request};

/// The preset's `mad_floor`.
const MAD_FLOOR: f64 = 1e-3;
const POLICY: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "seq_advantages"];

/// The ops of RLVR-Decomposed.
pub(crate) const PSR_NSR: &[&str] = &["advantage_psr_nsr"];

/// The ops of GDPO.
pub(crate) const GDPO: &[&str] = &["advantage_gdpo", "advantage_gdpo_trl"];

/// The ops of GMPO.
#[rustfmt::skip]
pub(crate) const GMPO: &[&str] = &[
    "advantage_gmpo", "policy_loss_gmpo", "policy_loss_gmpo_noclip", "policy_loss_gmpo_seqclip",
    "policy_loss_gmpo_without_norm", "policy_loss_hmpo",
];

/// The ops of MC-GRPO.
pub(crate) const MCGRPO: &[&str] = &["advantage_mc_grpo_gsm", "advantage_mc_grpo_math"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    match op {
        "advantage_psr_nsr" => signs(config, inputs),
        "advantage_gdpo" => {
            // The name of the estimator.
            config.ignore(&["adv_estimator"]);
            let mut to = advantages("gdpo", &["cu_seqlens", "cu_groups", "loss_mask"]);
            to.recipe.copy(config, &[("epsilon", "advantage.eps")])?;
            to.recipe.word("advantage.singleton", "raw_reward");
            let groups: Vec<u32> = inputs.whole("cu_groups")?;
            let same = |name: &str| -> Result<bool, String> {
                let rewards = inputs.numbers(name)?;
                let same = |group: &[u32]| {
                    let members = rewards.get(group[0] as usize..group[1] as usize).unwrap_or_default();
                    members.windows(2).all(|pair| pair[0] == pair[1])
                };
                Ok(groups.windows(2).all(same))
            };
            if same("rewards_0")? && same("rewards_1")? {
                let why = "equal rewards: exactly 0, where the code leaves what rounding left of their mean";
                to.exception = Some(Exception::Differs(why));
            }
            to.prepare = Some(Box::new(|inputs, columns, _| {
                let rewards = [inputs.floats("rewards_0")?, inputs.floats("rewards_1")?];
                columns.reward_components = Some(rewards.concat());
                columns.reward_weights = Some(vec![1.0, 1.0]);
                Ok(())
            }));
            Ok(Plan::recipe(to))
        }
        "advantage_gdpo_trl" => {
            config.ignore(&["num_generations"]);
            let mut to = advantages("trl_gdpo", &["cu_groups", "rewards_per_func"]);
            to.recipe.copy(config, &[("eps", "advantage.eps")])?;
            to.reward_weights = inputs.numbers("reward_weights")?;
            to.recipe.word("advantage.nan_reward", "zero");
            Ok(Plan::recipe(to))
        }
        "advantage_mc_grpo_math" | "advantage_mc_grpo_gsm" => {
            config.ignore(&["mc", "num_generations", "trainer", "scale_rewards"]);
            let gsm = op == "advantage_mc_grpo_gsm";
            let preset = if gsm { "mc_grpo_gsm" } else { "mc_grpo" };
            let mut to = advantages(preset, &["cu_groups", "rewards"]);
            to.expects.push("pivot_in_group");
            to.skips.push(("pivot_in_group", "of equal members torch.median's choice; all of them get 0"));
            // The floor is part of the code's divisor, and is the recipe's own constant.
            to.own("mad_plus_eps", |o| {
                Ok(Got::All(widen(&o.credit.groups.std).into_iter().map(|mad| mad + MAD_FLOOR).collect()))
            });
            Ok(Plan::recipe(to))
        }
        "advantage_gmpo" => {
            config.ignore(&["num_samples"]);
            let mut to = advantages("grpo", &["cu_groups", "rewards"]);
            to.recipe.number("advantage.eps", 1e-8);
            to.recipe.set("advantage.norm_by_std", config.text("critic_type")? == Some("grpo"));
            Ok(Plan::recipe(to))
        }
        "policy_loss_gmpo"
        | "policy_loss_gmpo_noclip"
        | "policy_loss_gmpo_seqclip"
        | "policy_loss_gmpo_without_norm"
        | "policy_loss_hmpo" => {
            config.ignore(&["critic_type_modify", "train_batch_size_per_device"]);
            let preset = match op {
                "policy_loss_gmpo_seqclip" => "gmpo_seqclip",
                "policy_loss_gmpo_without_norm" => "gmpo_without_norm",
                "policy_loss_hmpo" => "hmpo",
                _ => "gmpo",
            };
            let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &["loss", "dloss_dlogp"]);
            let clip = config.number("cliprange")?;
            to.recipe.number("gate.clip_log_low", clip);
            to.recipe.number("gate.clip_log_high", clip);
            to.recipe.word("ratio.guard", "none");
            to.own("sequence_losses", |o| {
                let rows = &loss(o)?.row_loss;
                Ok(Got::All(rows.iter().map(|l| l * rows.len() as f64).collect()))
            });
            Ok(Plan::recipe(to))
        }
        _ => Err(format!("op {op} is in no table of a paper")),
    }
}

fn advantages(preset: &'static str, inputs: &'static [&'static str]) -> Setup {
    Setup::new(Overlay::new(preset), Calls::Advantages, inputs, &["advantages"])
}

/// Samples of the other sign are dropped outside this function.
fn signs(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let weight = config.number("positive_advantage_weight")?;
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    // A label from the generator.
    config.ignore(&["mask_has_holes"]);
    let graded = inputs.numbers("rewards")?.iter().any(|reward| ![0.0, 1.0].contains(reward));
    let holes = inputs.shape()?.live.contains(&false);
    let mut to = match config.text("advantage")? {
        Some("positive") => advantages("psr", OUTCOME),
        Some("negative") => advantages("nsr", OUTCOME),
        Some("weighted") => {
            let mut to = advantages("w_reinforce", OUTCOME);
            to.recipe.number("reward.shaping.correct", weight);
            to
        }
        other => return Err(format!("config `advantage` is {other:?}")),
    };
    if to.recipe.preset() != "w_reinforce" {
        to.recipe.word("reward.filter", "none");
    }
    to.expects.push("returns");
    if gamma != 1.0 || graded || holes {
        let [correct, wrong, offset] = match to.recipe.preset() {
            "psr" => [1.0, 0.0, 0.0],
            "nsr" => [1.0, 0.0, -1.0],
            _ => [weight.unwrap_or(1.0), -1.0, 0.0],
        };
        to.recipe = Overlay::new(to.recipe.preset());
        to.recipe.word("advantage.estimator", "grpo");
        to.recipe.word("reward.filter", "none");
        to.recipe.word("reward.shaping", "none");
        let numbers =
            format!("gamma = {gamma:?}, correct = {correct:?}, wrong = {wrong:?}, offset = {offset:?}");
        let table = format!("{{ kind = \"signed_return\", {numbers}, stop_at_mask = true }}");
        to.recipe.set("advantage.over_time", table);
        return Ok(Plan::recipe(to));
    }
    to.skips.push(("returns", "the reward as it came: no estimator of outcomes returns it"));
    Ok(Plan::recipe(to))
}
