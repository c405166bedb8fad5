//! `policy_loss_*`: the fused losses of every gate.

mod cases;
mod expect;
mod gates;

pub use gates::{AnyGate, Taus};

use super::prelude::*;
use crate::cases::params::{BAND, COUNTED, Partials, guards, kls, weights};
use crate::with_gate;
use lockstep_core::aggregate::Weight;
use lockstep_core::gate::{Gate, OWN_BOUND};
use lockstep_core::kl::Kl;
use lockstep_core::policy_loss::{KlTerm, LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_cpu::Compiled;

/// Names of the policy loss's statistics, in the order of [`sum`].
pub const POLICY_SUMS: [&str; sum::SUMS] = [
    "sum_loss",
    "sum_policy",
    "sum_kl_ref",
    "sum_k1",
    "sum_excess",
    "sum_excess_squared",
    "sum_gate",
    "sum_clip_high",
    "sum_clip_low",
    "sum_clip_dual",
    "sum_guarded",
    "sum_in_band",
    "sum_neg_logp",
];

/// Names of the largest and smallest ratio.
pub(crate) const MAXIMA: [&str; 2] = ["max_ratio", "max_neg_ratio"];

/// Scalar arguments of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    pub gate: AnyGate,
    pub level: RatioGranularity,
    pub guard: Guard,
    pub kl: Option<(Kl, f32)>,
    pub weight: Weight,
    /// If set, the weight's numbers are read from memory as this many [`Partials`].
    pub counted: Option<usize>,
    pub per_token: bool,
    /// Whether there are rollout-correction weights.
    pub weights: bool,
    /// Whether the loss per row is wanted; implied by the two below.
    pub loss: bool,
    pub token_loss: bool,
    pub metrics: bool,
}

impl Policy {
    /// Token-level ratios with the usual guard, coefficients alone.
    fn of(gate: AnyGate) -> Policy {
        Policy {
            gate,
            level: RatioGranularity::Token,
            guard: guards()[1],
            kl: None,
            weight: weights()[2],
            counted: None,
            per_token: false,
            weights: false,
            loss: false,
            token_loss: false,
            metrics: false,
        }
    }

    /// Weights and every output, or none of them.
    fn with(self, all: bool) -> Policy {
        Policy { weights: all, loss: all, token_loss: all, metrics: all, ..self }
    }

    /// Whether any loss is computed.
    pub fn wants_loss(&self) -> bool {
        self.loss || self.token_loss || self.metrics
    }

    fn launch<G: Gate>(
        &self,
        backend: &dyn Backend,
        gate: G,
        data: &Data,
        out: &mut Outputs<'_>,
    ) -> Result<(), String>
    where
        for<'a> PolicyLoss<'a, G>: Compiled,
    {
        let input = |k: usize| In::new(&data.element[k][..]);
        let partials = Partials::of(self.weight, self.counted);
        partials.from().check(&partials.weight).map_err(|e| e.to_string())?;
        backend.run(&PolicyLoss {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: input(slot::LOGP),
            logp_old: input(slot::LOGP_OLD),
            logp_second: G::SECOND.then(|| input(self.gate.second())),
            advantage: if self.per_token { input(slot::ADVANTAGE) } else { In::new(&data.row[0][..]) },
            advantage_per_token: self.per_token,
            weights: self.weights.then(|| input(slot::WEIGHTS)),
            level: self.level,
            guard: self.guard,
            gate,
            kl: self.kl.map(|(kl, coef)| KlTerm {
                logp_ref: input(slot::LOGP_REF),
                kl,
                coef,
                weighted: false,
            }),
            weight: partials.weight,
            weight_from: partials.from(),
            coef: out.element("coef"),
            loss: self.wants_loss().then(|| LossOut {
                token_loss: self.token_loss.then(|| out.element("token_loss")),
                row_loss: out.row("row_loss"),
            }),
            row_tokens: out.row("row_tokens"),
            row_alarm: out.alarm(),
            metrics: self.metrics.then(|| MetricsOut {
                row_sums: out.rows(&POLICY_SUMS),
                row_maxima: out.rows(&MAXIMA),
                band: BAND,
            }),
        })
    }
}

/// Allowances of one gate: units of its coefficients and losses, and of the sum of its weights; the reasons
/// for a coefficient, a loss and that sum.
const fn of_gate(
    op: &'static str,
    units: f64,
    gate_units: f64,
    [coef, loss, gate]: [&'static str; 3],
) -> [Allowance; 8] {
    [
        allow(op, &["coef"], units, coef),
        allow(op, &["token_loss"], units, loss),
        allow(op, &["row_loss", "sum_loss", "sum_policy"], units, TERMS),
        allow(op, &["sum_gate"], gate_units, gate),
        allow(op, &["max_ratio", "max_neg_ratio"], 2.0, EXP),
        allow(op, &["sum_kl_ref", "sum_excess", "sum_excess_squared"], 2.0, TERMS),
        allow(op, &["sum_k1"], 1.0, TERMS),
        allow(op, &["sum_neg_logp"], 1e-7, SUM64),
    ]
}

const STEPS: &str = "each is 0 or 1";
const PPO: [&str; 3] = ["exp, then four products", "exp, then two products and a fused multiply-add", STEPS];
const SAPO: [&str; 3] = [
    "two exponentials, a reciprocal, eight products",
    "two exponentials, a reciprocal, four products",
    "two exponentials, a reciprocal, three products",
];
const SCORE: [&str; 3] =
    ["exp, a clip, three products", "exp, a clip, three products, and a fused multiply-add", TERMS];
const REINFORCE: [&str; 3] = ["three products", "three products, and a fused multiply-add", STEPS];
const SECOND: [&str; 3] = [
    "two exponentials, a clip, three products",
    "two exponentials, a clip, three products, and a fused multiply-add",
    TERMS,
];
const REMIX: [&str; 3] = [
    "two exponentials, then four products",
    "two exponentials, then four products, and a fused multiply-add",
    STEPS,
];

const ALLOWED: [[Allowance; 8]; 9] = [
    of_gate("policy_loss_ppo", 2.0, 0.0, PPO),
    of_gate("policy_loss_sapo", 4.0, 4.0, SAPO),
    of_gate("policy_loss_cispo", 2.0, 2.0, SCORE),
    of_gate("policy_loss_reinforce", 2.0, 0.0, REINFORCE),
    of_gate("policy_loss_dppo_tv", 2.0, 2.0, SCORE),
    of_gate("policy_loss_dppo_kl", 2.0, 2.0, SCORE),
    of_gate("policy_loss_mini_rl", 2.0, 2.0, SECOND),
    of_gate("policy_loss_trust_region", 2.0, 2.0, SECOND),
    of_gate("policy_loss_remix", 2.0, 0.0, REMIX),
];

impl OpTest for Policy {
    const OPS: &'static [&'static str] = &[
        "policy_loss_ppo",
        "policy_loss_sapo",
        "policy_loss_cispo",
        "policy_loss_reinforce",
        "policy_loss_dppo_tv",
        "policy_loss_dppo_kl",
        "policy_loss_mini_rl",
        "policy_loss_remix",
        "policy_loss_trust_region",
    ];
    const ALLOWED: &'static [Allowance] = ALLOWED.as_flattened();

    fn op(&self) -> &'static str {
        self.gate.op()
    }

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        with_gate!(self.gate, gate => self.launch(backend, gate, data, out))
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        expect::expect(self, data)
    }

    fn stream(root: Source) -> Source {
        root
    }

    fn corpus(source: Source) -> Vec<Case> {
        cases::corpus(source)
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let kl = if draw.yes() { Some((draw.pick(&kls()), 2.0 * draw.unit())) } else { None };
        // Half of all calls want coefficients only, the most common variant.
        let wants = if draw.yes() { 0 } else { draw.below(8) };
        let level = match draw.below(4) {
            0 => RatioGranularity::Sequence { log_max: draw.pick(&[10.0, 0.125, f32::INFINITY]) },
            _ => RatioGranularity::Token,
        };
        let params = Policy {
            gate: AnyGate::random(op, draw),
            level,
            guard: draw.pick(&guards()),
            kl,
            weight: draw.pick(&weights()),
            counted: draw.pick(&COUNTED),
            per_token: draw.yes(),
            weights: draw.yes(),
            loss: wants & 1 != 0,
            token_loss: wants & 2 != 0,
            metrics: wants & 4 != 0,
        };
        // One in eight is a usual call, which has loops of its own.
        let usual = Policy {
            level: RatioGranularity::Token,
            guard: Guard::clamp(OWN_BOUND),
            kl: None,
            per_token: false,
            weights: false,
            token_loss: false,
            ..params
        };
        let params = if draw.below(8) == 0 { usual } else { params };
        draw.tokens(params)
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let second = self.gate.second();
        let of_second = if second == slot::WEIGHTS { NO_WEIGHT } else { NO_LOGP };
        let optional = [
            (self.kl.is_some(), (slot::LOGP_REF, NO_LOGP)),
            (self.weights, (slot::WEIGHTS, NO_WEIGHT)),
            (self.per_token, (slot::ADVANTAGE, NOT_FINITE)),
            (self.gate.reads_second(), (second, of_second)),
        ];
        let given = optional.into_iter().filter_map(|(given, fault)| given.then_some(fault));
        [(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)].into_iter().chain(given).collect()
    }
}
