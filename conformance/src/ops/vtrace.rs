//! `vtrace`.

use super::gae::tokens;
use super::prelude::*;
use crate::oracle::vtrace::{self as oracle, Constants};
use lockstep_core::advantage::VTrace as Kernel;
use lockstep_core::ragged::Mask as LossMask;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VTrace {
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
const REASON: &str = "exp is within 1 ULP (two units); the rounding of logp - logp_rollout is in the \
                      magnitude; one rounding of the result";

impl OpTest for VTrace {
    const OPS: &'static [&'static str] = &["vtrace"];
    const ALLOWED: &'static [Allowance] = &[allow("vtrace", &["vs", "advantage"], 3.0, REASON)];
    const CATCHES: &'static str = "lambda on the TD error's weight; the value target of a masked token as \
                                   the next one; weights in the wrong direction";
    const FAULTS: &'static [Fault] = &[(0, NOT_FINITE), (1, NOT_FINITE), (2, NO_LOGP), (3, NO_LOGP)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let truncated: Vec<u8> = data.row[1].iter().map(|x| u8::from(*x != 0.0)).collect();
        let Constants { gamma, lambda, rho_bar, rho_pg, c_bar } = self.constants;
        backend.run(&Kernel {
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
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut vs, mut advantage) = (Want::new("vs"), Want::new("advantage"));
        for r in 0..data.rows() {
            let [rewards, values, logp, rollout] = [0, 1, 2, 3].map(|k| data.wide(k, r));
            let log_ratio: Vec<f64> = logp.iter().zip(rollout).map(|(p, q)| p - q).collect();
            let behind = if self.bootstrap && data.row[1][r] != 0.0 { data.row[0][r].into() } else { 0.0 };
            for traced in oracle::row(&log_ratio, &rewards, &values, &data.lives(r), behind, &self.constants)
            {
                vs.push(traced.vs, traced.vs_magnitude);
                advantage.push(traced.advantage, traced.advantage_magnitude);
            }
        }
        vec![vs, advantage]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(small(), SETTINGS), source, |k, (shape, constants), source| {
            let params = VTrace { constants, bootstrap: k % 4 != 1 };
            case(params, &shape, Mask::ALL[(k + k / 6) % 6], ranges(k % 4)[k / 4 % 2], source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let j = draw.below(SETTINGS.len());
        let params = VTrace { constants: SETTINGS[j], bootstrap: draw.yes() };
        let shape = draw.shape();
        let (mask, range) = (draw.pick(&Mask::ALL), draw.pick(&ranges(j)));
        case(params, &shape, mask, range, draw.source())
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
    let (logp, rollout) = (data.array_with(1, other), data.array(base));
    data.element.extend([logp, rollout]);
    Case::of(params, format!("{} {mask:?} {range:?} {params:?}", shape.name), data)
}
