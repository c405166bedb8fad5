//! Golden cases of GAE: returns, and advantages whitened over the batch.

use super::compare::Compared;
use super::config::Config;
use super::expected::Expected;
use super::format::Case;
use super::run::{floats, text, widen};
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae};
use lockstep::ops::whiten::{WhitenParams, whiten};
use lockstep::{Advantage, Batch, Device};

pub(super) fn run(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lam")?.unwrap_or(1.0);
    let whitened = config.boolean("whiten")?.unwrap_or(true);
    config.finish()?;
    let rewards = floats("token_rewards", &case.inputs.token_rewards)?;
    let values = floats("values", &case.inputs.values)?;
    let input = GaeInput { rewards: &rewards, values: &values, ends: Ends::Terminated };
    let params = GaeParams { gamma, lambda: Lambda::Fixed(lambda), lambda_critic: None };
    let mut out = GaeOutput::default();
    gae(device, batch, &input, &params, &mut out).map_err(text)?;
    if whitened {
        let raw = Advantage::PerToken(&out.advantage);
        out.advantage = whiten(device, batch, raw, &WhitenParams::VERL).map_err(text)?;
    }
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("advantages", &widen(&out.advantage))?;
    expected.array("returns", &widen(&out.returns))?;
    expected.finish(&["advantages", "returns"])
}
