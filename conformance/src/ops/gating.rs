//! `gating_forward` and `gating_backward`: rows of router scores.

use super::prelude::*;
use crate::oracle::gating_forward::{Of, Rule};
use crate::oracle::{gating_backward, gating_forward};
use lockstep_core::ragged::{Mask, Out};
use lockstep_core::routing::{ChosenOut, GatingBackward, GatingForward, Replay, Router, RouterKind, Trace};

/// The most experts that a case chooses; each has an output of its own.
const MOST: usize = 8;
const EXPERTS: [&str; MOST] =
    ["expert_0", "expert_1", "expert_2", "expert_3", "expert_4", "expert_5", "expert_6", "expert_7"];
const GATES: [&str; MOST] = ["gate_0", "gate_1", "gate_2", "gate_3", "gate_4", "gate_5", "gate_6", "gate_7"];

/// Slots of [`Data::row`]: the record's entries, then the coefficients, then the mask.
const COEF: usize = MOST;
const LIVE: usize = 2 * MOST;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gating {
    /// Whether the op is the gradient; the forward pass then only provides its inputs.
    pub backward: bool,
    pub router: Router,
    /// Whether there is a trace; −1 in the first entry means absent.
    pub replay: bool,
    /// Whether experts are 16-bit numbers.
    pub wide: bool,
    pub bias: bool,
}

/// The bias of an expert: multiples of 1/8, some below −1, where a 0 in place of another group's experts
/// would win.
fn bias_of(e: usize) -> f32 {
    [0.0, 0.125, -0.25, 0.5, 0.0, -1.5, 0.25, -0.125][(e * 5 + e / 8) % 8]
}

const OF_GATES: &str = "the exponent rounds once (in the magnitude), exp or sigmoid within 1 ULP, a binary64 \
                        quotient, two roundings";

impl OpTest for Gating {
    names! {
        Gating { backward: false, .. } => "gating_forward",
        Gating { backward: true, .. } => "gating_backward",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("gating_forward", &GATES, 4.0, OF_GATES),
        allow(
            "gating_forward",
            &["group_sum"],
            4.0,
            "two sigmoids within 1 ULP, two biases, one sum: rounded each",
        ),
        allow(
            "gating_backward",
            &["gradient"],
            6.0,
            "gates as above, rounded to binary32 before; the rest in binary64",
        ),
    ];
    const CATCHES: &'static str = "ties to another index; gates of the selection instead of the record; a \
                                   gradient lost where the two differ";
    const ROWS_ARE_EQUAL: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (rows, k, router) = (data.rows(), self.router.top_k, self.router);
        let entry = |r: usize, j: usize| if data.row[0][r] < 0.0 { u16::MAX } else { data.row[j][r] as u16 };
        let each = || (0..rows).flat_map(|r| (0..k).map(move |j| (r, j)));
        let wide: Vec<u16> = each().map(|(r, j)| entry(r, j)).collect();
        let narrow: Vec<u8> = wide.iter().map(|e| *e as u8).collect();
        let view =
            if self.wide { Trace::wide(In::new(&wide), 1, k) } else { Trace::narrow(In::new(&narrow), 1, k) };
        let live: Vec<u8> = data.row[LIVE].iter().map(|x| *x as u8).collect();
        let bias: Vec<f32> = (0..router.experts).map(bias_of).collect();
        let (mut narrow, mut wide) = (vec![u8::POISON; rows * k], vec![u16::POISON; rows * k]);
        let (mut gates, mut sums) = (vec![f32::POISON; rows * k], vec![f32::POISON; rows * router.groups]);
        let [mut replayed, mut alarm] = [(); 2].map(|()| vec![u32::POISON; rows]);
        let forward = GatingForward {
            router,
            rows,
            scores: In::new(&data.element[0]),
            bias: self.bias.then(|| In::new(&bias[..])),
            replay: self.replay.then(|| Replay { trace: view, mask: Mask::new(Some(&live)) }),
            chosen: if self.wide {
                ChosenOut::wide(Out::new(&mut wide))
            } else {
                ChosenOut::narrow(Out::new(&mut narrow))
            },
            gates: Out::new(&mut gates),
            group_scores: (router.groups > 1).then(|| Out::new(&mut sums)),
            row_replayed: Out::new(&mut replayed),
            row_alarm: Out::new(&mut alarm),
        };
        if self.backward {
            // The gradient's inputs are the same whichever backend it runs on.
            crate::levels::reference().run(&forward).map_err(|e| e.to_string())?;
            let chosen = if self.wide {
                Trace::wide(In::new(&wide), 1, k)
            } else {
                Trace::narrow(In::new(&narrow), 1, k)
            };
            let coef: Vec<f32> = each().map(|(r, j)| data.row[COEF + j][r]).collect();
            return backend.run(&GatingBackward {
                router,
                rows,
                scores: In::new(&data.element[0]),
                chosen,
                gates: In::new(&gates),
                coef: In::new(&coef),
                gradient: out.element("gradient"),
                row_alarm: out.alarm(),
            });
        }
        backend.run(&forward)?;
        for j in 0..k {
            let column = || (0..rows).map(|r| r * k + j);
            let ids = match self.wide {
                true => Captured::values(column().map(|i| wide[i]).collect()),
                false => Captured::values(column().map(|i| narrow[i]).collect()),
            };
            let gates = Values::F32(column().map(|i| gates[i]).collect());
            out.add(vec![row(EXPERTS[j], ids), row(GATES[j], gates)]);
        }
        if router.groups > 1 {
            // The last group stands for all groups.
            let last = sums.chunks(router.groups).map(|sums| sums[router.groups - 1]).collect();
            out.add(vec![row("group_sum", Values::F32(last))]);
        }
        out.add(vec![row("replayed", Values::U32(replayed)), raised(alarm)]);
        Ok(())
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let k = self.router.top_k;
        let [mut experts, mut gates] = [EXPERTS, GATES].map(|names| names.map(Want::new));
        let [mut replayed, mut gradient, mut group] = ["replayed", "gradient", "group_sum"].map(Want::new);
        let rule = self.rule();
        for r in 0..data.rows() {
            let scores = data.wide(0, r);
            let bias: Vec<f64> =
                (0..scores.len()).map(|e| if self.bias { bias_of(e).into() } else { 0.0 }).collect();
            let replay = self.replay && data.row[LIVE][r] != 0.0 && data.row[0][r] >= 0.0;
            let (chosen, gap) = match replay {
                true => ((0..k).map(|j| data.row[j][r] as usize).collect(), f64::INFINITY),
                false => gating_forward::natural(&scores, &bias, &rule),
            };
            // Candidates closer than binary32 can distinguish: any of them is right.
            let doubt = if gap < 2e-6 { f64::INFINITY } else { 0.0 };
            let size = self.rounding(&scores, &chosen);
            for (j, want) in gating_forward::gates(&scores, &chosen, &rule).into_iter().enumerate() {
                experts[j].push(chosen[j] as f64, doubt);
                gates[j].push(want, doubt + want * size(chosen[j]));
            }
            replayed.exact(replay);
            let sums = gating_forward::group_scores(&scores, &bias, &rule);
            let last = if replay { 0.0 } else { sums[rule.groups - 1] };
            group.push(last, if replay { 0.0 } else { 4.0 });
            let coef: Vec<f64> = (0..k).map(|j| data.row[COEF + j][r].into()).collect();
            let slopes = gating_backward::row(&scores, &chosen, &coef, &rule).into_iter().enumerate();
            slopes.for_each(|(e, (want, terms))| gradient.push(want, doubt + terms * size(e)));
        }
        if self.backward {
            return vec![gradient];
        }
        [replayed, group].into_iter().chain(experts).chain(gates).collect()
    }

    fn corpus(source: Source) -> Vec<Case> {
        let new = Router::new;
        let grouped = |experts, top_k, groups, top_groups| Router {
            groups,
            top_groups,
            scale: 2.5,
            ..new(RouterKind::SigmoidNormalized, experts, top_k)
        };
        let routers = [
            (Router::QWEN3, 24),
            (Router::MIXTRAL, 24),
            (new(RouterKind::SoftmaxChosen, 1, 1), 8),
            (Router { scale: 1.5, ..new(RouterKind::SoftmaxAll, 60, 4) }, 24),
            (new(RouterKind::SoftmaxAll, 257, 8), 16),
            (Router::DEEPSEEK_V3, 16),
            (grouped(12, 3, 3, 2), 24),
            (grouped(8, 2, 8, 5), 24),
            (new(RouterKind::SigmoidNormalized, 128, 8), 16),
            (Router { scale: 0.5, ..new(RouterKind::Sigmoid, 130, 1) }, 16),
            (new(RouterKind::SoftmaxChosen, 512, 8), 8),
            // The routers from here on all have a bias.
            (new(RouterKind::SqrtSoftplus, 64, 6), 24),
            (Router { scale: 2.5, ..new(RouterKind::SqrtSoftplus, 128, 8) }, 16),
            (new(RouterKind::SoftmaxChosen, 64, 6), 24),
            (new(RouterKind::SoftmaxAll, 128, 8), 16),
            (Router { groups: 8, top_groups: 3, scale: 16.0, ..new(RouterKind::SoftmaxAll, 160, 6) }, 16),
        ];
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        numbered(pairs(routers, flags), source, |k, ((router, rows), (backward, replay)), source| {
            let bias = k >= 44 || router.kind.sigmoid() && (k / 4).is_multiple_of(2);
            let wide = router.experts > 255 || k % 3 == 0;
            case(Gating { backward, router, replay, wide, bias }, rows, source).numbered(k)
        })
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        use RouterKind::{Sigmoid, SigmoidNormalized, SoftmaxAll, SoftmaxChosen, SqrtSoftplus};
        let kind = draw.pick(&[SoftmaxChosen, SoftmaxAll, SigmoidNormalized, Sigmoid, SqrtSoftplus]);
        let groups = if draw.yes() { 1 + draw.below(8) } else { 1 };
        let experts = groups * (1 + draw.below(if groups > 1 { 16 } else { 200 }));
        let top_groups = 1 + draw.below(groups);
        let most = MOST.min(top_groups * (experts / groups));
        let scale = draw.pick(&[1.0, 2.5, 0.1]);
        let router = Router { scale, groups, top_groups, ..Router::new(kind, experts, 1 + draw.below(most)) };
        let params = Gating {
            backward: op == "gating_backward",
            router,
            replay: draw.yes(),
            wide: draw.yes(),
            bias: draw.yes(),
        };
        case(params, 1 + draw.below(20), draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        // The gradient of a softmax over the chosen experts does not read the scores; the forward pass does.
        if self.backward { Vec::new() } else { vec![(0, NOT_FINITE)] }
    }
}

impl Gating {
    fn rule(&self) -> Rule {
        let Router { top_k, kind, scale, groups, top_groups, .. } = self.router;
        let over_chosen = !matches!(kind, RouterKind::SoftmaxAll | RouterKind::Sigmoid);
        let of = match kind {
            RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll => Of::Softmax,
            RouterKind::SigmoidNormalized | RouterKind::Sigmoid => Of::Sigmoid,
            RouterKind::SqrtSoftplus => Of::SqrtSoftplus,
        };
        let by_activation = self.bias || groups > 1;
        Rule { of, by_activation, over_chosen, scale: scale.into(), top_k, groups, top_groups }
    }

    /// Relative rounding of an expert's gate: its exponent and those of the denominator each round once.
    fn rounding(&self, scores: &[f64], chosen: &[usize]) -> impl Fn(usize) -> f64 {
        let rule = self.rule();
        let all: Vec<usize> = (0..scores.len()).collect();
        let over = if rule.over_chosen { chosen.to_vec() } else { all };
        let largest = over.iter().fold(f64::NEG_INFINITY, |m, e| m.max(scores[*e]));
        let shares = gating_forward::gates(scores, &over, &Rule { scale: 1.0, ..rule });
        let spread: f64 = over.iter().zip(shares).map(|(e, p)| p * (scores[*e] - largest).abs()).sum();
        let distance: Vec<f64> = scores.iter().map(|s| (s - largest).abs()).collect();
        move |e| if rule.of != Of::Softmax { 1.0 } else { 1.0 + spread + distance[e].min(100.0) }
    }
}

/// One score, by the row's kind.
fn score(kind: usize, sigmoid: bool, by_score: bool, source: Source, e: usize) -> f32 {
    let bell = source.signed(e) + source.fork(1).signed(e) + source.fork(2).signed(e);
    match kind {
        // Multiples of 1/64: exact ties, and sigmoids that binary32 distinguishes.
        0 => (bell * 128.0) as i32 as f32 / 64.0,
        // Uniform: everything ties.
        1 => 0.75,
        // Zeros of both signs compare equal.
        2 => [0.0, -0.0][source.below(e, 2)],
        // Saturated: the sigmoids are 0 and 1. Where scores are compared, 1e4 goes before 20.
        3 if by_score => [20.0, -1e4, 1e4][source.below(e, 3)],
        3 => [1e4, -1e4, 1e4][source.below(e, 3)],
        _ if sigmoid => (bell * 64.0) as i32 as f32 / 16.0,
        // The cut at −87 and around it, and the spread of a trained router.
        4 => -87.0 * [0.0, 1.0, 0.999_999_9, 1.000_000_1, 0.5, 1.2][source.below(e, 6)],
        _ => 2.0 * bell,
    }
}

/// Rows of every kind of score, with a record and coefficients.
pub fn case(params: Gating, rows: usize, source: Source) -> Case {
    let (experts, k) = (params.router.experts, params.router.top_k);
    let sigmoid = !matches!(params.router.kind, RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll);
    let by_score = sigmoid && !params.bias && params.router.groups == 1;
    let mut scores = Vec::with_capacity(rows * experts);
    let mut row = vec![vec![0.0; rows]; LIVE + 1];
    for r in 0..rows {
        let of_row = source.fork(100 + r as u64);
        scores.extend((0..experts).map(|e| score(r % 7, sigmoid, by_score, of_row, e)));
        // Distinct experts: an odd stride from a random start or, for half the rows, the natural choice in a
        // different order.
        let start = source.fork(1).below(r, experts);
        let stride = (1..experts.max(2)).find(|s| gcd(*s, experts) == 1 && *s * 3 > experts).unwrap_or(1);
        let absent = source.fork(2).below(r, 5) == 0 && (k > 1 || params.wide);
        for j in 0..k {
            row[j][r] = if absent { -1.0 } else { ((start + j * stride) % experts) as f32 };
            row[COEF + j][r] =
                [0.0, -0.5, 1.0, source.fork(3 + j as u64).signed(r)][source.fork(4).below(r + j, 4)];
        }
        row[LIVE][r] = if source.fork(5).below(r, 4) == 0 { 0.0 } else { 1.0 };
    }
    let data = Data {
        offsets: (0..=rows).map(|r| (r * experts) as u32).collect(),
        element: vec![scores],
        row,
        ..Data::default()
    };
    Case::of(params, format!("{params:?} {rows} rows"), data)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
