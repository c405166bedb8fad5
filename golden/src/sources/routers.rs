//! The routers of transformers, natural and replayed, with gradients, and its load-balancing loss.

use crate::inputs::{Inputs, floats};
use crate::numbers::{Got, widen};
use crate::outcome::{Exception, text};
use crate::sources::{Plan, Request};
use lockstep::Device;
use lockstep::core::ragged::Mask;
use lockstep::core::routing::{Replay, Router, RouterKind};
use lockstep::ops::{balance_loss, gating_backward, gating_forward};
use lockstep::routing::{Ids, LoadSum, RoutingTrace, load};
use serde_json::{Value, json};
use std::collections::BTreeSet;

type Numbers = Vec<(&'static str, Got)>;

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "load_balancing_loss", "router_deepseek_v2", "router_deepseek_v3", "router_deepseek_v4",
    "router_ernie4_5_moe", "router_glm4_moe", "router_gpt_oss", "router_llama4", "router_minimax_m2",
    "router_mixtral", "router_qwen3_moe",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    let (experts, top_k) = (config.required("num_experts")? as usize, config.required("top_k")? as usize);
    if op == "load_balancing_loss" {
        // Input shapes.
        config.ignore(&["layers", "batch", "length"]);
        return balance(inputs, device, experts, top_k);
    }
    // DeepSeek-V4's, the only scoring function of its router.
    config.ignore(&["scoring_func"]);
    let replays = match config.text("mode")? {
        Some("natural") => false,
        Some("replay") => true,
        other => return Err(format!("config `mode` is {other:?}: expected natural or replay")),
    };
    let norm = config.boolean("norm_topk_prob")?.unwrap_or(true);
    let sigmoid = if norm { RouterKind::SigmoidNormalized } else { RouterKind::Sigmoid };
    let kind = match op {
        "router_mixtral" | "router_gpt_oss" | "router_ernie4_5_moe" => RouterKind::SoftmaxChosen,
        "router_qwen3_moe" if norm => RouterKind::SoftmaxChosen,
        // The port of DeepSeek-V2 does not read `norm_topk_prob`.
        "router_qwen3_moe" | "router_deepseek_v2" => RouterKind::SoftmaxAll,
        "router_deepseek_v3" | "router_glm4_moe" => sigmoid,
        "router_minimax_m2" => RouterKind::SigmoidNormalized,
        "router_llama4" => RouterKind::Sigmoid,
        "router_deepseek_v4" => RouterKind::SqrtSoftplus,
        _ => return Err(format!("op {op} is not in the table of routers")),
    };
    // ERNIE's minimum for the sum of the chosen experts' probabilities, which a bias or a replay can choose
    // however small they are.
    let least = config.number("moe_norm_min")?;
    if least.is_some_and(|least| least > 1e-12) {
        return Ok(Plan::Missing("a least sum of the chosen above 1e-12 (ERNIE 4.5)"));
    }
    let mut router = Router::new(kind, experts, top_k);
    router.scale = config.number("routed_scaling_factor")?.unwrap_or(1.0) as f32;
    let groups = config.number("n_group")?.unwrap_or(1.0) as usize;
    let top_groups = config.number("topk_group")?.unwrap_or(1.0) as usize;
    let limited = config.text("topk_method")?.is_none_or(|method| method == "group_limited_greedy");
    // Groups and bias are part of the selection, which a replay does not make.
    let among_groups = limited && groups > 1 && !replays;
    let bias = inputs.optional("e_score_correction_bias", Inputs::floats)?;
    let bias = bias.filter(|bias| !replays && bias.iter().any(|b| *b != 0.0));
    if among_groups {
        (router.groups, router.top_groups) = (groups, top_groups);
    }

    let scores = flat(inputs, "scores")?;
    let record = match replays {
        false => None,
        true => Some(ids(&numbers(inputs, "recorded_experts")?)),
    };
    let upstream = flat(inputs, "upstream")?;
    let case = Case { router, scores, bias, upstream, dense: op == "router_llama4", least };
    if record.is_some() || case.dense {
        return case.plan(device, record.as_deref());
    }
    // `topk` without `sorted`: a row lists its experts, and their weights, in any order.
    Ok(Plan::Ordered(Box::new(move |expected, device| {
        let (own, got) = case.run(device, None)?;
        let listed = expected.get("experts").and_then(of_numbers).ok_or("`experts` is not of numbers")?;
        let listed = ids(&listed);
        let set = |ids: &[usize]| ids.iter().copied().collect::<BTreeSet<_>>();
        let mut rows = own.chunks(top_k).zip(listed.chunks(top_k));
        if own.len() == listed.len() && rows.all(|(a, b)| set(a) == set(b)) {
            return case.plan(device, Some(&listed));
        }
        let below_zero = case.below_zero(device, &own)?;
        Ok(Plan::Numbers(NAME, got, below_zero.then_some(Exception::Differs(ZEROS))))
    })))
}

const NAME: &str = "ops::gating_forward";
/// The difference that arises where the chosen experts have almost no probability.
const SMALL_SUM: &str =
    "probabilities of the chosen that sum to less than ERNIE's 1e-12, by which it then divides";
/// The difference that arises where groups are left out.
const ZEROS: &str =
    "to the port, scores of the groups left out are 0: above a σ + b below 0 of the groups taken";

/// A router and its inputs.
struct Case {
    router: Router,
    scores: Vec<f32>,
    bias: Option<Vec<f32>>,
    upstream: Vec<f32>,
    /// Whether weights and upstream gradients have an entry for every expert.
    dense: bool,
    /// The smallest sum of chosen probabilities that the code divides by.
    least: Option<f64>,
}

impl Case {
    /// The file's numbers, with these experts if there is a record.
    fn plan(&self, device: &Device, record: Option<&[usize]>) -> Result<Plan, String> {
        let (chosen, got) = self.run(device, record)?;
        let small = match self.least {
            Some(least) => self.least_sum(device, &chosen)? < least,
            None => false,
        };
        Ok(Plan::Numbers(NAME, got, small.then_some(Exception::Differs(SMALL_SUM))))
    }

    /// The experts that ran (those of the record, if there is one), and the file's numbers.
    fn run(&self, device: &Device, record: Option<&[usize]>) -> Result<(Vec<usize>, Numbers), String> {
        let (experts, top_k) = (self.router.experts, self.router.top_k);
        let trace = record.map(|ids| self.trace(ids)).transpose()?;
        let replay = trace.as_ref().map(|trace| Replay { trace: trace.view(), mask: Mask::all() });
        let bias = self.bias.as_deref().filter(|_| replay.is_none());
        let gating = gating_forward(device, &self.router, &self.scores, bias, replay).map_err(text)?;
        let chosen: Vec<usize> = match &gating.chosen {
            Ids::U8(ids) => ids.iter().map(|id| usize::from(*id)).collect(),
            Ids::U16(ids) => ids.iter().map(|id| usize::from(*id)).collect(),
        };
        let at = |entry: usize| entry / top_k * experts + chosen[entry];
        let coef: Vec<f32> = match self.dense {
            true => (0..chosen.len()).map(|entry| self.upstream[at(entry)]).collect(),
            false => self.upstream.clone(),
        };
        let gradient = gating_backward(device, &self.router, &self.scores, &gating, &coef).map_err(text)?;
        let terms = coef.iter().zip(&gating.gates).map(|(c, g)| f64::from((c * g).abs())).fold(0.0, f64::max);
        let dscores = Got::Cancelling(Box::new(table(&widen(&gradient), experts)), terms);
        if self.dense {
            let mut weights = vec![0.0; self.scores.len()];
            (0..chosen.len()).for_each(|entry| weights[at(entry)] = f64::from(gating.gates[entry]));
            return Ok((chosen, vec![("dense_weights", table(&weights, experts)), ("dscores", dscores)]));
        }
        let ids: Vec<f64> = chosen.iter().map(|id| *id as f64).collect();
        let weights = table(&widen(&gating.gates), top_k);
        Ok((chosen, vec![("experts", table(&ids, top_k)), ("weights", weights), ("dscores", dscores)]))
    }

    fn trace(&self, ids: &[usize]) -> Result<RoutingTrace, String> {
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        let rows = self.scores.len() / self.router.experts;
        RoutingTrace::from_ids(&ids, rows, self.router.experts, 1, self.router.top_k).map_err(text)
    }

    /// The weights that another kind of router gives these experts.
    fn gates(&self, device: &Device, kind: RouterKind, chosen: &[usize]) -> Result<Vec<f32>, String> {
        let plain = Router::new(kind, self.router.experts, self.router.top_k);
        let trace = self.trace(chosen)?;
        let replay = Replay { trace: trace.view(), mask: Mask::all() };
        Ok(gating_forward(device, &plain, &self.scores, None, Some(replay)).map_err(text)?.gates)
    }

    /// The smallest sum of a row's probabilities of these experts.
    fn least_sum(&self, device: &Device, chosen: &[usize]) -> Result<f64, String> {
        let gates = widen(&self.gates(device, RouterKind::SoftmaxAll, chosen)?);
        Ok(gates.chunks(self.router.top_k).map(|row| row.iter().sum()).fold(f64::INFINITY, f64::min))
    }

    /// Whether a router with groups chose an expert with σ + b below 0.
    fn below_zero(&self, device: &Device, chosen: &[usize]) -> Result<bool, String> {
        let sigmoids = self.gates(device, RouterKind::Sigmoid, chosen)?;
        let bias = self.bias.as_deref().unwrap_or_default();
        let below =
            chosen.iter().zip(&sigmoids).any(|(id, s)| s + bias.get(*id).copied().unwrap_or(0.0) < 0.0);
        Ok(self.router.groups > self.router.top_groups && below)
    }
}

/// The load of the natural choice sums to K, as in transformers; all layers form one pool. Padding has no
/// rows.
fn balance(inputs: &Inputs<'_>, device: &Device, experts: usize, top_k: usize) -> Result<Plan, String> {
    let scores = flat(inputs, "router_logits")?;
    let mask = inputs.optional("attention_mask", numbers)?;
    let tokens = mask.as_ref().map_or(1, Vec::len);
    let live: Vec<bool> = (0..scores.len() / experts)
        .map(|row| mask.as_ref().is_none_or(|mask| mask[row % tokens] != 0.0))
        .collect();
    let rows = || scores.chunks_exact(experts).zip(&live);
    let kept: Vec<f32> = rows().filter(|(_, live)| **live).flat_map(|(row, _)| row).copied().collect();
    let router = Router::new(RouterKind::SoftmaxChosen, experts, top_k);
    let record = RoutingTrace::live(device, &router, 1, &kept, None).map_err(text)?;
    let load = load(&record.view(), experts, LoadSum::TopK).map_err(text)?;
    let out = balance_loss(device, &kept, &load, 1.0).map_err(text)?;
    let mut of_kept = out.gradient.chunks_exact(experts);
    let none = vec![0.0; experts];
    let gradient: Vec<f64> = live
        .iter()
        .flat_map(|live| if *live { of_kept.next().map_or_else(Vec::new, widen) } else { none.clone() })
        .collect();
    let layers = inputs.value("router_logits")?.as_array().map_or(1, Vec::len);
    let of_layer = gradient.chunks_exact(gradient.len() / layers);
    let gradient = of_layer.map(|layer| values(layer, experts)).collect();
    // For one row: w·f·p of an expert is at most the sum over all of them.
    let terms = out.loss * experts as f64 / kept.len() as f64;
    let dlogits = Got::Cancelling(Box::new(Got::Nested(gradient)), terms);
    let got = vec![("loss", Got::Number(out.loss, 0.0)), ("dlogits", dlogits)];
    Ok(Plan::Numbers("ops::balance_loss", got, None))
}

/// Numbers in row order, however deeply the lists are nested.
fn of_numbers(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Array(list) => Some(list.iter().map(of_numbers).collect::<Option<Vec<_>>>()?.concat()),
        _ => Some(vec![value.as_f64()?]),
    }
}

fn numbers(inputs: &Inputs<'_>, name: &str) -> Result<Vec<f64>, String> {
    of_numbers(inputs.value(name)?).ok_or_else(|| format!("`{name}` is not of numbers"))
}

fn flat(inputs: &Inputs<'_>, name: &str) -> Result<Vec<f32>, String> {
    floats(name, numbers(inputs, name)?)
}

fn ids(of: &[f64]) -> Vec<usize> {
    of.iter().map(|id| *id as usize).collect()
}

fn values(of: &[f64], width: usize) -> Value {
    of.chunks_exact(width).map(|row| json!(row)).collect()
}

fn table(of: &[f64], width: usize) -> Got {
    Got::Nested(values(of, width))
}
