//! `shape_rewards`.

use super::prelude::*;
use crate::oracle::shape as oracle;
use lockstep_core::reward::{ShapeRewards as Kernel, Shaping};

/// Arguments of `shape_rewards`. Lengths are [`Data::index`]; a positive value in the second array is a flag;
/// the array per row chooses the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub shaping: Shaping,
    /// Rewards above this are correct.
    pub threshold: f32,
}

const KINDS: [Shaping; 8] = [
    Shaping::Overlong { max_length: 200, buffer: 100, factor: 1.0, saturate: false },
    Shaping::Overlong { max_length: 200, buffer: 100, factor: 0.7, saturate: true },
    Shaping::Signs { correct: 1.0, wrong: 0.0 },
    Shaping::Signs { correct: 0.1, wrong: -1.0 },
    Shaping::Flawed { lambda: 1.0 },
    Shaping::Flawed { lambda: 0.3 },
    Shaping::Brevity { limit: 190 },
    Shaping::Preferred,
];

impl OpTest for Shape {
    const OPS: &'static [&'static str] = &["shape_rewards"];
    const ALLOWED: &'static [Allowance] = &[allow("shape_rewards", &["shaped"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "a penalty that starts one token late; a NaN that is wrong and not \
                                   excluded; one wrong member overlooked";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let flags: Vec<u8> = data.element[1].iter().map(|x| u8::from(*x > 0.0)).collect();
        let reference: Vec<u32> = data.row[0].iter().map(|x| *x as u32).collect();
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            shaping: self.shaping,
            threshold: self.threshold,
            lengths: Some(In::new(&data.index)),
            flags: Some(In::new(&flags)),
            reference: Some(In::new(&reference)),
            shaped: out.scores("shaped"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("shaped");
        for r in 0..data.rows() {
            let span = data.span(r);
            let x = data.wide(0, r);
            let lengths: Vec<f64> = span.clone().map(|i| data.index[i].into()).collect();
            let counted: Vec<bool> = span.clone().map(|i| data.scored(i)).collect();
            let threshold = f64::from(self.threshold);
            for (k, i) in span.enumerate() {
                if !counted[k] {
                    want.push(NO_SCORE.into(), 0.0);
                    continue;
                }
                let correct = x[k] > threshold;
                let sized = |y: f64| (y, y.abs());
                let (shaped, magnitude) = match self.shaping {
                    Shaping::Overlong { max_length, buffer, factor, saturate } => {
                        let (max, buffer) = (f64::from(max_length), f64::from(buffer));
                        let added = oracle::overlong(lengths[k], max, buffer, factor, saturate);
                        (x[k] + added, x[k].abs() + added.abs())
                    }
                    Shaping::Signs { correct, wrong } => sized(oracle::signs(x[k], correct, wrong)),
                    Shaping::Flawed { lambda } => {
                        (oracle::flawed(correct, data.element[1][i] > 0.0, lambda), 1.0)
                    }
                    Shaping::Brevity { limit } => {
                        sized(oracle::brevity(&x, &lengths, &counted, threshold, limit.into())[k])
                    }
                    Shaping::Preferred if k == data.row[0][r] as usize => (0.0, 0.0),
                    Shaping::Preferred => (if correct { 1.0 } else { -1.0 }, 0.0),
                };
                want.push(shaped, magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(KINDS, [false, true]), source, |_, (shaping, valid), source| {
            case(Shape { shaping, threshold: 0.5 }, &rewards::sizes(), valid, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = Shape { shaping: draw.pick(&KINDS), threshold: draw.pick(&[0.5, 0.0, -2.0]) };
        case(params, &draw.lengths(), draw.yes(), draw.source())
    }
}

fn case(params: Shape, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    let n = data.elements();
    // Lengths at the corners: the start of the buffer, the limit, beyond it.
    let length = |i: usize| [0, 99, 100, 101, 150, 199, 200, 201, 1000][source.fork(2).below(i, 9)];
    data.index = (0..n).map(length).collect();
    data.element.push((0..n).map(|i| source.fork(3).signed(i)).collect());
    data.row = vec![data.per_row(|r| source.fork(4).below(r, 4) as f32)];
    Case::of_groups(params, valid, data)
}
