//! `logits_statistics`, `logits_gradient` and `otr_exact`: rows of logits.

use super::prelude::*;
use crate::outputs::{Captured, Space};
use lockstep_core::logits::statistics::{LogitsMoments, STATE};
use lockstep_core::logits::{LogitRows, LogitsGradient, LogitsStatistics, OtrExact};
use lockstep_core::ragged::{Mask, Out};

/// Which op, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    /// `logits_statistics`.
    Statistics {
        /// Whether to return entropies and sums of squares.
        moments: bool,
    },
    /// `logits_gradient`.
    Gradient {
        /// Whether there is a coefficient of the entropy.
        entropy: bool,
    },
    /// `otr_exact`.
    Otr {
        /// β.
        beta: f32,
        /// Whether the gradient is wanted.
        gradient: bool,
    },
}

/// Arguments of an op on logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits {
    /// Which op.
    pub which: Which,
    /// T, or κ.
    pub temperature: f32,
    /// Whether some rows are masked.
    pub masked: bool,
}

/// Slots of [`Data::row`].
pub(crate) const LABEL: usize = 0;
pub(crate) const LIVE: usize = 1;
pub(crate) const COEF: usize = 2;
pub(crate) const COEF_ENTROPY: usize = 3;

const REASON: &str =
    "the exponent rounds three times (in the magnitude), exp and log1p within 1 ULP, two more products";

impl OpTest for Logits {
    const OPS: &'static [&'static str] = &["logits_statistics", "logits_gradient", "otr_exact"];
    const ALLOWED: &'static [Allowance] = &[
        allow("logits_statistics", &["logp", "lse", "entropy", "collision", "score_norm"], 4.0, REASON),
        allow("logits_gradient", &["gradient"], 6.0, REASON),
        allow("otr_exact", &["loss", "gradient"], 6.0, REASON),
    ];

    fn op(&self) -> &'static str {
        match self.which {
            Which::Statistics { .. } => "logits_statistics",
            Which::Gradient { .. } => "logits_gradient",
            Which::Otr { .. } => "otr_exact",
        }
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let labels: Vec<u32> = data.row[LABEL].iter().map(|a| *a as u32).collect();
        let live: Vec<u8> = data.row[LIVE].iter().map(|x| *x as u8).collect();
        let vocab = data.elements() / data.rows();
        let live = self.masked.then_some(&live[..]);
        let rows =
            LogitRows { logits: In::new(&data.element[0]), rows: data.rows(), vocab, live: Mask::new(live) };
        match self.which {
            Which::Statistics { moments } => {
                self.statistics(backend, rows, &labels, moments, out).map(|_| ())
            }
            Which::Gradient { entropy } => {
                let space = Space::new();
                let state =
                    self.statistics(backend, rows, &labels, entropy, &mut Outputs::of(data, &space))?;
                backend.run(&checked!(LogitsGradient {
                    rows,
                    labels: In::new(&labels),
                    temperature: self.temperature,
                    state: In::new(&state),
                    coef: In::new(&data.row[COEF]),
                    coef_entropy: entropy.then(|| In::new(&data.row[COEF_ENTROPY][..])),
                    gradient: out.element("gradient"),
                    row_alarm: out.alarm(),
                }))
            }
            Which::Otr { beta, gradient: wanted } => backend.run(&checked!(OtrExact {
                rows,
                labels: In::new(&labels),
                kappa: self.temperature,
                beta,
                coef: In::new(&data.row[COEF]),
                loss: out.row("loss"),
                row_alarm: out.alarm(),
                gradient: wanted.then(|| out.element("gradient")),
            })),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        self.wants(data)
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let whichs = [
            Which::Statistics { moments: true },
            Which::Statistics { moments: false },
            Which::Gradient { entropy: true },
            Which::Gradient { entropy: false },
            Which::Otr { beta: 0.0, gradient: true },
            Which::Otr { beta: -0.1, gradient: true },
            Which::Otr { beta: 1.0, gradient: false },
        ];
        for (rows, vocab) in [(24, 1), (24, 2), (25, 33), (8, 129), (8, 2049), (8, 257), (1, 151_936)] {
            for (j, which) in whichs.into_iter().enumerate() {
                // The longest row is slow, so each op runs it once.
                if vocab > 100_000 && j % 2 == 1 {
                    continue;
                }
                let k = cases.len();
                let otr = matches!(which, Which::Otr { .. });
                let temperature = if otr { [1.3, 1.0, 2.0][k % 3] } else { [1.0, 0.7, 1.0, 2.5][k % 4] };
                let params = Logits { which, temperature, masked: k % 2 == 1 && rows > 1 };
                let case = case(params, rows, vocab, source.fork(k as u64));
                cases.push(Case { label: format!("{k}: {}", case.label), ..case });
            }
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let which = match op {
            "logits_statistics" => Which::Statistics { moments: draw.yes() },
            "logits_gradient" => Which::Gradient { entropy: draw.yes() },
            _ => Which::Otr { beta: draw.pick(&[0.0, -0.1, 0.5, 1.0, -3.0]), gradient: draw.yes() },
        };
        let temperature = if draw.yes() { 1.0 } else { 0.25 + 2.0 * draw.unit() };
        let vocab = match draw.below(4) {
            0 => 1 + draw.below(40),
            1 => 100 + draw.below(200),
            _ => 1 + draw.below(5000),
        };
        case(Logits { which, temperature, masked: draw.yes() }, 1 + draw.below(12), vocab, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        if self.masked { Vec::new() } else { vec![(0, &NOT_FINITE[..2])] }
    }

    fn rows_are_equal(&self) -> bool {
        true
    }
}

impl Logits {
    fn statistics<B: Backend>(
        &self,
        backend: &B,
        rows: LogitRows<'_>,
        labels: &[u32],
        moments: bool,
        out: &mut Outputs<'_>,
    ) -> Result<Vec<f64>, String> {
        let mut state = vec![f64::POISON; STATE * rows.rows];
        backend.run(&checked!(LogitsStatistics {
            rows,
            labels: In::new(labels),
            temperature: self.temperature,
            logp: out.row("logp"),
            lse: out.row("lse"),
            top: out.row("top"),
            row_alarm: out.alarm(),
            moments: moments.then(|| LogitsMoments {
                entropy: out.row("entropy"),
                collision: out.row("collision"),
                score_norm: out.row("score_norm"),
            }),
            state: Out::new(&mut state),
        }))?;
        Ok(state)
    }
}

/// One logit of a row, by the row's kind.
fn logit(kind: usize, source: Source, v: usize) -> f32 {
    let bell = source.signed(v) + source.fork(1).signed(v) + source.fork(2).signed(v);
    match kind {
        // Like a language model's: a broad floor and a few candidates.
        0 => 3.0 * bell + if source.fork(3).below(v, 40) == 0 { 12.0 } else { 0.0 },
        // Uniform: everything ties.
        1 => 2.5,
        // Nearly certain.
        2 => bell - if v == 7 { 0.0 } else { 18.0 },
        // A third of the tokens is forbidden.
        3 if source.fork(4).below(v, 3) == 0 => f32::NEG_INFINITY,
        3 => 4.0 * bell,
        // Only one token is possible.
        4 => {
            if v == 3 {
                -1e30
            } else {
                f32::NEG_INFINITY
            }
        }
        // Saturated: ±1e4, with ties for the largest.
        5 => [1e4, -1e4, 9.99e3, 1e4][source.below(v, 4)],
        // Differences below the resolution of e^y, and zeros of both signs.
        6 => [0.0, -0.0, 1e-7, -1e-42, -1e-3][source.below(v, 5)],
        // The cut at −87 and around it.
        _ => -87.0 * [0.0, 1.0, 0.999_999_9, 1.000_000_1, 0.5, 1.2][source.below(v, 6)],
    }
}

fn case(params: Logits, rows: usize, vocab: usize, source: Source) -> Case {
    Case {
        label: format!("{params:?} {rows} rows of {vocab}"),
        catches: "0·∞ at a forbidden token; a label's entry written twice or not at all; 1 − p near 1; ties \
                  of the largest",
        params: params.into(),
        data: batch(params.masked, rows, vocab, source),
    }
}

/// Rows of every kind, with possible labels and with coefficients; see the slots above.
pub(crate) fn batch(masked: bool, rows: usize, vocab: usize, source: Source) -> Data {
    let mut logits = Vec::with_capacity(rows * vocab);
    let mut row = vec![Vec::new(); 4];
    for r in 0..rows {
        let live = !(masked && source.fork(1).below(r, 4) == 0);
        let of_row = source.fork(100 + r as u64);
        let kind = if vocab < 8 { [0, 1, 5, 6][r % 4] } else { r % 8 };
        let values: Vec<f32> = (0..vocab).map(|v| logit(kind, of_row, v)).collect();
        // A possible label: the first from a random position on, often the largest.
        let start = match source.fork(2).below(r, 3) {
            0 => values.iter().enumerate().fold(0, |m, (v, z)| if *z > values[m] { v } else { m }),
            _ => source.fork(3).below(r, vocab),
        };
        let label = (start..vocab).chain(0..start).find(|v| values[*v].is_finite()).unwrap_or(0);
        logits.extend(values.iter().enumerate().map(|(v, z)| if live { *z } else { garbage(v) }));
        row[LABEL].push(label as f32);
        row[LIVE].push(if live { 1.0 } else { 0.0 });
        let coef = [0.0, -0.5, 1.0, source.fork(4).signed(r), -2e-5][source.fork(5).below(r, 5)];
        row[COEF].push(coef);
        row[COEF_ENTROPY].push([-0.001, 0.0, source.fork(6).signed(r)][r % 3]);
    }
    Data {
        offsets: (0..=rows).map(|r| (r * vocab) as u32).collect(),
        element: vec![logits],
        row,
        ..Data::default()
    }
}
