//! `gae`.

use super::prelude::*;
use crate::oracle::gae as oracle;
use lockstep_core::advantage::Gae as Kernel;
use lockstep_core::ragged::Mask as LossMask;

/// Arguments of `gae`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gae {
    /// Discount.
    pub gamma: f64,
    /// λ.
    pub lambda: f64,
    /// α of VAPO's λ.
    pub length_alpha: Option<f64>,
    /// Whether there are bootstrap values, some of which count.
    pub bootstrap: bool,
    /// Whether advantages are wanted.
    pub advantage: bool,
    /// Whether returns are wanted.
    pub returns: bool,
}

const SETTINGS: [(f64, f64); 6] = [(1.0, 0.95), (0.99, 0.95), (1.0, 1.0), (1.0, 0.0), (0.0, 0.5), (0.9, 0.7)];
const ONCE: &str = "binary64 inside, rounded to binary32 once: half an ULP is at most one unit";

/// Number of arrays: rewards and values.
const ARRAYS: u64 = 2;

impl OpTest for Gae {
    const OPS: &'static [&'static str] = &["gae"];
    const ALLOWED: &'static [Allowance] = &[
        Allowance { op: "gae", output: "advantage", units: 1.0, reason: ONCE },
        Allowance { op: "gae", output: "returns", units: 1.0, reason: ONCE },
    ];

    fn op(&self) -> &'static str {
        "gae"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let truncated: Vec<u8> = data.row[1].iter().map(|x| u8::from(*x != 0.0)).collect();
        let kernel = Kernel {
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
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut advantage, mut returns) = (Want::new("advantage"), Want::new("returns"));
        for r in 0..data.rows() {
            let span = data.span(r);
            let array = |k: usize| -> Vec<f64> {
                data.element[k][span.clone()].iter().map(|x| (*x).into()).collect()
            };
            let live: Vec<bool> = span.clone().map(|i| data.live(i)).collect();
            let length = live.iter().filter(|live| **live).count();
            let lambda = match self.length_alpha {
                Some(alpha) => oracle::length_adaptive_lambda(alpha, length),
                None => self.lambda,
            };
            let behind = if self.bootstrap && data.row[1][r] != 0.0 { data.row[0][r].into() } else { 0.0 };
            for credit in oracle::row(&array(0), &array(1), &live, behind, self.gamma, lambda) {
                // The binary64 maps before the single rounding add 1e-6 of a unit of the magnitudes.
                let magnitude = |x: f64| x.abs() + 1e-6 * credit.magnitude;
                advantage.push(credit.advantage, magnitude(credit.advantage));
                returns.push(credit.returns, magnitude(credit.returns));
            }
        }
        let wanted = [(self.advantage, advantage), (self.returns, returns)];
        wanted.into_iter().filter_map(|(wanted, want)| wanted.then_some(want)).collect()
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut shapes = small();
        shapes.push(large());
        for shape in &shapes {
            for (gamma, lambda) in SETTINGS {
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
                    cases.push(case(params, shape, Mask::ALL[(k + k / 6) % 6], source.fork(k as u64)));
                }
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
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(params, &shape, draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<(usize, &'static [f32])> {
        let bad: &[f32] = &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        vec![(0, bad), (1, bad)]
    }
}

fn case(params: Gae, shape: &Shape, mask: Mask, source: Source) -> Case {
    Case {
        label: format!("{} {mask:?} {params:?}", shape.name),
        catches: "a masked token that costs a step or whose value is the next one; the bootstrap of a \
                  terminated sequence; a value lost between blocks",
        params: params.into(),
        data: tokens(shape, mask, source, ARRAYS),
    }
}

/// Arrays of rewards and values, with garbage under the mask; per row a bootstrap value (NaN if it does not
/// count), and whether it counts.
pub(super) fn tokens(shape: &Shape, mask: Mask, source: Source, arrays: u64) -> Data {
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let n = offsets[offsets.len() - 1] as usize;
    let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
    let value =
        |k: u64, i: usize| if live(i) { values::advantage(source.fork(1 + k), i) } else { garbage(i) };
    let element = (0..arrays).map(|k| (0..n).map(|i| value(k, i)).collect()).collect();
    let truncated = |r: usize| source.fork(20).below(r, 2) == 1;
    let rows = shape.lengths.len();
    let bootstrap = |r| if truncated(r) { values::advantage(source.fork(21), r) } else { f32::NAN };
    let row = vec![(0..rows).map(bootstrap).collect(), (0..rows).map(|r| f32::from(truncated(r))).collect()];
    Data { offsets, mask: bytes, element, row, ..Data::default() }
}
