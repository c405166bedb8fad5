//! `gae`.

use super::prelude::*;
use crate::oracle::gae as oracle;
use lockstep_core::advantage::Gae as Kernel;
use lockstep_core::ragged::Mask as LossMask;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gae {
    pub gamma: f64,
    pub lambda: f64,
    /// α of VAPO's λ.
    pub length_alpha: Option<f64>,
    /// Whether there are bootstrap values, some of which count.
    pub bootstrap: bool,
    pub advantage: bool,
    pub returns: bool,
}

const SETTINGS: [(f64, f64); 6] = [(1.0, 0.95), (0.99, 0.95), (1.0, 1.0), (1.0, 0.0), (0.0, 0.5), (0.9, 0.7)];

/// Number of arrays: rewards and values.
const ARRAYS: u64 = 2;

impl OpTest for Gae {
    const OPS: &'static [&'static str] = &["gae"];
    const ALLOWED: &'static [Allowance] = &[allow("gae", &["advantage", "returns"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "a masked token that costs a step or whose value is the next one; the \
                                   bootstrap of a terminated sequence; a value lost between blocks";
    const FAULTS: &'static [Fault] = &[(0, NOT_FINITE), (1, NOT_FINITE)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let truncated: Vec<u8> = data.row[1].iter().map(|x| u8::from(*x != 0.0)).collect();
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            rewards: In::new(&data.element[0]),
            values: In::new(&data.element[1]),
            bootstrap: self.bootstrap.then(|| In::new(&data.row[0])),
            truncated: LossMask::new(Some(&truncated)),
            gamma: self.gamma,
            lambda: self.lambda,
            length_alpha: self.length_alpha,
            advantage: self.advantage.then(|| out.element("advantage")),
            returns: self.returns.then(|| out.element("returns")),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut advantage, mut returns) = (Vec::new(), Vec::new());
        for r in 0..data.rows() {
            let live = data.lives(r);
            let length = live.iter().filter(|live| **live).count();
            let lambda = match self.length_alpha {
                Some(alpha) => oracle::length_adaptive_lambda(alpha, length),
                None => self.lambda,
            };
            let behind = if self.bootstrap && data.row[1][r] != 0.0 { data.row[0][r].into() } else { 0.0 };
            for credit in oracle::row(&data.wide(0, r), &data.wide(1, r), &live, behind, self.gamma, lambda) {
                advantage.push((credit.advantage, credit.magnitude));
                returns.push((credit.returns, credit.magnitude));
            }
        }
        vec![Want::rounded("advantage", advantage), Want::rounded("returns", returns)]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for (shape, (gamma, lambda)) in pairs(shapes::all(), SETTINGS) {
            let k = cases.len();
            let params = Gae {
                gamma,
                lambda,
                length_alpha: [None, None, Some(0.05)][k % 3],
                bootstrap: k % 4 != 1,
                advantage: k % 7 != 3,
                returns: k % 7 != 5,
            };
            if shape.name != "large" || k % 3 == 0 {
                cases.push(case(params, &shape, Mask::ALL[(k + k / 6) % 6], source.fork(k as u64)));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (gamma, lambda) = draw.pick(&SETTINGS);
        let wants = draw.below(4);
        let params = Gae {
            gamma: if draw.yes() { gamma } else { f64::from(draw.unit()) },
            lambda,
            length_alpha: draw.yes().then(|| 0.001 + f64::from(draw.unit())),
            bootstrap: draw.yes(),
            advantage: wants != 1,
            returns: wants != 2,
        };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(params: Gae, shape: &Shape, mask: Mask, source: Source) -> Case {
    Case::of(params, format!("{} {mask:?} {params:?}", shape.name), tokens(shape, mask, source, ARRAYS))
}

/// Arrays of rewards and values, with garbage under the mask; per row a bootstrap value (NaN if it does not
/// count), and whether it counts.
pub(super) fn tokens(shape: &Shape, mask: Mask, source: Source, arrays: u64) -> Data {
    let mut data = Data::new(shape, mask, source.fork(0));
    data.element = (0..arrays).map(|k| data.array(|i| values::advantage(source.fork(1 + k), i))).collect();
    let truncated = |r: usize| source.fork(20).below(r, 2) == 1;
    let bootstrap = |r| if truncated(r) { values::advantage(source.fork(21), r) } else { f32::NAN };
    data.row = vec![data.per_row(bootstrap), data.per_row(|r| f32::from(truncated(r)))];
    data
}
