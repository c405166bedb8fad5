//! `vtrace`.

use super::gae::tokens;
use super::prelude::*;
use crate::cases::values::Range;
use crate::oracle::vtrace::{self as oracle, Constants};
use lockstep_core::advantage::VTrace as Kernel;
use lockstep_core::ragged::Mask as LossMask;

/// Arguments of `vtrace`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VTrace {
    /// Discount, λ and bounds.
    pub constants: Constants,
    /// Whether there are bootstrap values, some of which count.
    pub bootstrap: bool,
}

const fn constants(gamma: f64, lambda: f64, rho_bar: f64, rho_pg: f64, c_bar: f64) -> Constants {
    Constants { gamma, lambda, rho_bar, rho_pg, c_bar }
}
const SETTINGS: [Constants; 4] = [
    constants(1.0, 1.0, 1.0, 1.0, 1.0),
    constants(0.99, 0.95, 1.0, 1.0, 1.0),
    constants(0.9, 0.5, 2.0, 1.5, 0.5),
    constants(0.5, 0.0, f64::INFINITY, f64::INFINITY, 1.0),
];
const EXP: &str = "exp is within 1 ULP (two units); the rounding of logp - logp_rollout is in the magnitude; \
                   one rounding of the result";

impl OpTest for VTrace {
    const OPS: &'static [&'static str] = &["vtrace"];
    const ALLOWED: &'static [Allowance] = &[
        Allowance { op: "vtrace", output: "vs", units: 3.0, reason: EXP },
        Allowance { op: "vtrace", output: "advantage", units: 3.0, reason: EXP },
    ];

    fn op(&self) -> &'static str {
        "vtrace"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let truncated: Vec<u8> = data.row[1].iter().map(|x| u8::from(*x != 0.0)).collect();
        let Constants { gamma, lambda, rho_bar, rho_pg, c_bar } = self.constants;
        let kernel = Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: In::new(&data.element[2]),
            logp_rollout: In::new(&data.element[3]),
            rewards: In::new(&data.element[0]),
            values: In::new(&data.element[1]),
            bootstrap: self.bootstrap.then(|| In::new(&data.row[0])),
            truncated: LossMask::new(Some(&truncated)),
            gamma,
            lambda,
            rho_bar,
            rho_pg,
            c_bar,
            vs: out.element("vs"),
            advantage: out.element("advantage"),
            row_alarm: out.alarm(),
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut vs, mut advantage) = (Want::new("vs"), Want::new("advantage"));
        for r in 0..data.rows() {
            let span = data.span(r);
            let array = |k: usize| -> Vec<f64> {
                data.element[k][span.clone()].iter().map(|x| (*x).into()).collect()
            };
            let live: Vec<bool> = span.clone().map(|i| data.live(i)).collect();
            let log_ratio: Vec<f64> = array(2).iter().zip(array(3)).map(|(p, q)| p - q).collect();
            let behind = if self.bootstrap && data.row[1][r] != 0.0 { data.row[0][r].into() } else { 0.0 };
            for traced in oracle::row(&log_ratio, &array(0), &array(1), &live, behind, &self.constants) {
                vs.push(traced.vs, traced.vs_magnitude);
                advantage.push(traced.advantage, traced.advantage_magnitude);
            }
        }
        vec![vs, advantage]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for shape in &small() {
            for (j, constants) in SETTINGS.into_iter().enumerate() {
                let k = cases.len();
                let params = VTrace { constants, bootstrap: k % 4 != 1 };
                let (mask, range) = (Mask::ALL[(k + k / 6) % 6], ranges(j)[k / 4 % 2]);
                cases.push(case(params, shape, mask, range, source.fork(k as u64)));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let j = draw.below(SETTINGS.len());
        let params = VTrace { constants: SETTINGS[j], bootstrap: draw.yes() };
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        let (mask, range) = (draw.pick(&Mask::ALL), draw.pick(&ranges(j)));
        case(params, &shape, mask, range, draw.source())
    }

    fn fault_slots(&self) -> Vec<(usize, &'static [f32])> {
        let (bad, logp): (&[f32], &[f32]) =
            (&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN], &[0.5, f32::NAN, f32::NEG_INFINITY]);
        vec![(0, bad), (1, bad), (2, logp), (3, logp)]
    }
}

/// Log-ratios beyond ±30 need truncating bounds: without them the results exceed f32.
fn ranges(setting: usize) -> [Range; 2] {
    if setting == 3 { [Range::Realistic, Range::Tiny] } else { [Range::Realistic, Range::Wide] }
}

fn case(params: VTrace, shape: &Shape, mask: Mask, range: Range, source: Source) -> Case {
    let mut data = tokens(shape, mask, source, 2);
    let base = |i: usize| range.base(source.fork(30), i);
    let other = |i: usize| range.other(source.fork(31), i, base(i));
    let live = |i: usize| data.live(i);
    let rollout: Vec<f32> =
        (0..data.elements()).map(|i| if live(i) { base(i) } else { garbage(i) }).collect();
    let logp = (0..data.elements()).map(|i| if live(i) { other(i) } else { garbage(i + 1) }).collect();
    data.element.extend([logp, rollout]);
    Case {
        label: format!("{} {mask:?} {range:?} {params:?}", shape.name),
        catches: "lambda on the TD error's weight; the value target of a masked token as the next one; \
                  weights in the wrong direction",
        params: params.into(),
        data,
    }
}
