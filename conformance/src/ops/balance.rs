//! `balance_loss`.

use super::prelude::*;
use crate::oracle::balance as oracle;
use lockstep_core::routing::BalanceLoss as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    pub weight: f64,
}

const REASON: &str =
    "the exponent rounds once (in the magnitude), exp within 1 ULP, three products, one difference";

/// The load of an expert.
fn load_of(e: usize) -> f32 {
    [0.25, 0.0, 1.0, 0.125, 0.01][e % 5]
}

impl OpTest for Balance {
    const OPS: &'static [&'static str] = &["balance_loss"];
    const ALLOWED: &'static [Allowance] = &[
        allow("balance_loss", &["gradient"], 5.0, REASON),
        allow("balance_loss", &["row_loss"], 4.0, REASON),
    ];
    const CATCHES: &'static str = "loads indexed by the row's position; a row's sum over the wrong span";
    const ROWS_ARE_EQUAL: bool = true;
    const FAULTS: &'static [Fault] = &[(0, NOT_FINITE)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let rows = data.rows();
        let experts = data.elements() / rows;
        let load: Vec<f32> = (0..experts).map(load_of).collect();
        backend.run(&Kernel {
            experts,
            rows,
            scores: In::new(&data.element[0]),
            load: In::new(&load),
            weight: self.weight,
            gradient: out.element("gradient"),
            row_loss: out.row("row_loss"),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut gradient, mut row_loss) = (Want::new("gradient"), Want::new("row_loss"));
        for r in 0..data.rows() {
            let scores = data.wide(0, r);
            let load: Vec<f64> = (0..scores.len()).map(|e| load_of(e).into()).collect();
            let largest = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
            // The rounding of the exponents, weighted by the terms they enter.
            let ones = vec![1.0; scores.len()];
            let shares = oracle::row(&scores, &ones, 1.0).1;
            let spread: f64 =
                shares.iter().zip(&scores).map(|((_, p), s)| p / 2.0 * (s - largest).abs()).sum();
            // A mean dominated by other experts carries the rounding of their exponents, even where the
            // expert's own p adds none.
            let carried: f64 = shares
                .iter()
                .zip(&load)
                .zip(&scores)
                .map(|(((_, p), f), s)| p / 2.0 * f.abs() * (s - largest).abs().min(100.0))
                .sum();
            let (loss, slopes) = oracle::row(&scores, &load, self.weight);
            row_loss.push(loss, self.weight.abs() * (1.0 + spread));
            for (((want, terms), s), (_, p)) in slopes.into_iter().zip(&scores).zip(&shares) {
                let mean = self.weight.abs() * terms.min(1.0);
                let own = (terms + mean) * (1.0 + spread + (s - largest).abs().min(100.0));
                gradient.push(want, own + self.weight.abs() * p / 2.0 * carried);
            }
        }
        vec![gradient, row_loss]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let sizes = [(24, 1), (24, 8), (16, 60), (24, 128), (8, 257), (6, 512)];
        numbered(sizes, source, |k, (rows, experts), source| {
            case(Balance { weight: [1.0, 0.001, -2.0][k % 3] }, rows, experts, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let weight = draw.pick(&[1.0, 0.01, -0.5, 128.0]);
        case(Balance { weight }, 1 + draw.below(20), 1 + draw.below(300), draw.source())
    }
}

/// Rows of every kind of score.
pub fn case(params: Balance, rows: usize, experts: usize, source: Source) -> Case {
    let score = |r: usize, e: usize| {
        let of_row = source.fork(r as u64);
        match r % 4 {
            0 => 3.0 * of_row.signed(e),
            1 => 0.5,
            2 => [1e4, -1e4, 9e3][of_row.below(e, 3)],
            _ => 20.0 * of_row.signed(e),
        }
    };
    let data = Data {
        offsets: (0..=rows).map(|r| (r * experts) as u32).collect(),
        element: vec![(0..rows * experts).map(|i| score(i / experts, i % experts)).collect()],
        ..Data::default()
    };
    Case::of(params, format!("{params:?} {rows} rows of {experts}"), data)
}
