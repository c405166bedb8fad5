//! `logits_statistics` and `logits_gradient` in every format, and `otr_exact`: rows of logits.

use super::prelude::*;
use super::vocab_parallel::{self, Part, VocabParallel};
use crate::outputs::Space;
use lockstep_core::logits::statistics::{LogitsMoments, LogitsResults, STATE};
use lockstep_core::logits::{LogitRows, LogitsGradient, LogitsStatistics, OtrExact};
use lockstep_core::num::{Bf16, F16, Storage, Suffix};
use lockstep_core::ragged::{Mask, Out};
use lockstep_cpu::Compiled;

/// Which op: whether there are entropies and sums of squares, and a coefficient of the entropy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    Statistics { moments: bool },
    Gradient { entropy: bool },
    Otr { beta: f32, gradient: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits {
    pub which: Which,
    /// T, or κ.
    pub temperature: f32,
    pub masked: bool,
    pub format: Suffix,
}

/// Slots of [`Data::row`].
pub(crate) const LABEL: usize = 0;
pub(crate) const LIVE: usize = 1;
pub(crate) const COEF: usize = 2;
pub(crate) const COEF_ENTROPY: usize = 3;

pub(super) const REASON: &str =
    "the exponent rounds three times (in the magnitude), exp and log1p within 1 ULP, two more products";

const STATISTICS: [&str; 3] = ["logits_statistics", "logits_statistics_bf16", "logits_statistics_f16"];
pub(super) const GRADIENT: [&str; 3] = ["logits_gradient", "logits_gradient_bf16", "logits_gradient_f16"];
pub(super) const OF_ROW: [&str; 5] = ["logp", "lse", "entropy", "collision", "score_norm"];

impl OpTest for Logits {
    const OPS: &'static [&'static str] =
        &[STATISTICS[0], GRADIENT[0], "otr_exact", STATISTICS[1], GRADIENT[1], STATISTICS[2], GRADIENT[2]];
    const ALLOWED: &'static [Allowance] = &[
        allow(STATISTICS[0], &OF_ROW, 4.0, REASON),
        allow(STATISTICS[1], &OF_ROW, 4.0, REASON),
        allow(STATISTICS[2], &OF_ROW, 4.0, REASON),
        allow(GRADIENT[0], &["gradient"], 6.0, REASON),
        // That it is the gradient in binary32, rounded once, is a test of its own.
        allow(GRADIENT[1], &["gradient"], 6.0 + 65_536.0, "as in binary32, rounded to 8 bits: 2^-8"),
        allow(GRADIENT[2], &["gradient"], 6.0 + 8_192.0, "as in binary32, rounded to 11 bits: 2^-11"),
        allow("otr_exact", &["loss", "gradient"], 6.0, REASON),
    ];
    const CATCHES: &'static str = "0·∞ at a forbidden token; a label's entry written twice or not at all; \
                                   1 − p near 1; ties of the largest";
    const ROWS_ARE_EQUAL: bool = true;

    fn op(&self) -> &'static str {
        match self.which {
            Which::Statistics { .. } => self.format.of(STATISTICS),
            Which::Gradient { .. } => self.format.of(GRADIENT),
            Which::Otr { .. } => "otr_exact",
        }
    }

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match (self.format, self.which) {
            (_, Which::Otr { beta, gradient }) => {
                let (labels, live) = of_rows(data);
                backend.run(&OtrExact {
                    rows: self.rows(data, &data.element[0], &live),
                    labels: In::new(&labels),
                    kappa: self.temperature,
                    beta,
                    coef: In::new(&data.row[COEF]),
                    loss: out.row("loss"),
                    row_alarm: out.alarm(),
                    gradient: gradient.then(|| out.element("gradient")),
                })
            }
            (Suffix::None, _) => self.run_as::<f32>(backend, data, out),
            (Suffix::Bf16, _) => self.run_as::<Bf16>(backend, data, out),
            (Suffix::F16, _) => self.run_as::<F16>(backend, data, out),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        self.wants(data)
    }

    fn corpus(source: Source) -> Vec<Case> {
        const OTR: usize = 4;
        let whichs = [
            Which::Statistics { moments: true },
            Which::Statistics { moments: false },
            Which::Gradient { entropy: true },
            Which::Gradient { entropy: false },
            Which::Otr { beta: 0.0, gradient: true },
            Which::Otr { beta: -0.1, gradient: true },
            Which::Otr { beta: 1.0, gradient: false },
        ];
        let sizes = [(24, 1), (24, 2), (25, 33), (8, 129), (8, 2049), (8, 257), (1, 151_936)];
        // The longest row is slow, so each op runs it once.
        let all = pairs(sizes, whichs.into_iter().enumerate());
        let all = all.filter(|((_, vocab), (j, _))| *vocab <= 100_000 || j % 2 == 0);
        let mut cases = numbered(all, source, |k, ((rows, vocab), (j, which)), source| {
            let temperature = if j >= OTR { [1.3, 1.0, 2.0][k % 3] } else { [1.0, 0.7, 1.0, 2.5][k % 4] };
            let params = Logits { which, temperature, masked: k % 2 == 1 && rows > 1, format: Suffix::None };
            case(params, rows, vocab, source).numbered(k)
        });
        let sizes = [(24, 1), (24, 2), (25, 33), (8, 129), (8, 257), (4, 5001)];
        let all = pairs([Suffix::Bf16, Suffix::F16], sizes);
        for ((format, (rows, vocab)), which) in pairs(all, whichs.into_iter().take(OTR)) {
            let (k, masked) = (cases.len(), cases.len() % 3 == 1 && rows > 4);
            let params = Logits { which, temperature: [1.0, 0.7, 2.5][k % 3], masked, format };
            cases.push(case(params, rows, vocab, source.fork(k as u64)).numbered(k));
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let [statistics, gradient] = [STATISTICS, GRADIENT].map(|names| format_of(op, names));
        let which = match (statistics, gradient) {
            (Some(_), _) => Which::Statistics { moments: draw.yes() },
            (_, Some(_)) => Which::Gradient { entropy: draw.yes() },
            _ => Which::Otr { beta: draw.pick(&[0.0, -0.1, 0.5, 1.0, -3.0]), gradient: draw.yes() },
        };
        let (temperature, vocab) = (draw.temperature(), draw.vocab(4));
        let format = statistics.or(gradient).unwrap_or(Suffix::None);
        let params = Logits { which, temperature, masked: draw.yes(), format };
        let (rows, source) = (1 + draw.below(12), draw.source());
        // A third of the gradients are those of shards.
        match which {
            Which::Gradient { entropy } if draw.below(3) == 0 => {
                let Logits { temperature, masked, format, .. } = params;
                let (part, shards) = (Part::Gradient { entropy }, 1 + draw.below(4));
                let params = VocabParallel { part, shards, temperature, masked, format };
                vocab_parallel::case(params, rows, vocab, source)
            }
            _ => case(params, rows, vocab, source),
        }
    }

    fn fault_slots(&self) -> Vec<Fault> {
        if self.masked { Vec::new() } else { vec![(0, &NOT_FINITE[..2])] }
    }
}

/// The format whose name is that of the op.
pub(super) fn format_of(op: &str, names: [&'static str; 3]) -> Option<Suffix> {
    [Suffix::None, Suffix::Bf16, Suffix::F16].into_iter().find(|format| format.of(names) == op)
}

/// Statistics as outputs; the state is none.
pub(super) fn results<'a, 'b: 'a>(
    out: &mut Outputs<'b>,
    moments: bool,
    state: &'a mut [f64],
) -> LogitsResults<'a> {
    LogitsResults {
        logp: out.row("logp"),
        lse: out.row("lse"),
        top: out.row("top"),
        row_alarm: out.alarm(),
        moments: moments.then(|| LogitsMoments {
            entropy: out.row("entropy"),
            collision: out.row("collision"),
            score_norm: out.row("score_norm"),
        }),
        state: Out::new(state),
    }
}

/// Labels of the rows, and which rows are live.
pub(super) fn of_rows(data: &Data) -> (Vec<u32>, Vec<u8>) {
    let labels = data.row[LABEL].iter().map(|a| *a as u32).collect();
    (labels, data.row[LIVE].iter().map(|x| *x as u8).collect())
}

impl Logits {
    fn rows<'a, S: Copy>(&self, data: &Data, logits: &'a [S], live: &'a [u8]) -> LogitRows<'a, S> {
        let (rows, vocab) = (data.rows(), data.elements() / data.rows());
        LogitRows { logits: In::new(logits), rows, vocab, live: Mask::new(self.masked.then_some(live)) }
    }

    fn run_as<S: Storage + Captured>(
        &self,
        backend: &dyn Backend,
        data: &Data,
        out: &mut Outputs<'_>,
    ) -> Result<(), String>
    where
        for<'a> LogitsStatistics<'a, S>: Compiled,
        for<'a> LogitsGradient<'a, S>: Compiled,
    {
        let (labels, live) = of_rows(data);
        let logits: Vec<S> = data.element[0].iter().map(|z| S::narrow(*z)).collect();
        let rows = self.rows(data, &logits, &live);
        let entropy = match self.which {
            Which::Statistics { moments } => {
                return self.statistics(backend, rows, &labels, moments, out).map(|_| ());
            }
            Which::Gradient { entropy } => entropy,
            Which::Otr { .. } => return Err("the one-token rollout has logits in f32".into()),
        };
        let space = Space::new();
        let state = self.statistics(backend, rows, &labels, entropy, &mut Outputs::of(data, &space))?;
        backend.run(&LogitsGradient {
            rows,
            labels: In::new(&labels),
            vocab_start: None,
            temperature: self.temperature,
            state: In::new(&state),
            coef: In::new(&data.row[COEF]),
            coef_entropy: entropy.then(|| In::new(&data.row[COEF_ENTROPY][..])),
            gradient: out.element("gradient"),
            row_alarm: out.alarm(),
        })
    }

    fn statistics<S: Storage>(
        &self,
        backend: &dyn Backend,
        rows: LogitRows<'_, S>,
        labels: &[u32],
        moments: bool,
        out: &mut Outputs<'_>,
    ) -> Result<Vec<f64>, String>
    where
        for<'a> LogitsStatistics<'a, S>: Compiled,
    {
        let mut state = vec![f64::POISON; STATE * rows.rows];
        backend.run(&LogitsStatistics {
            rows,
            labels: In::new(labels),
            temperature: self.temperature,
            results: results(out, moments, &mut state),
        })?;
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
        4 if v == 3 => -1e30,
        4 => f32::NEG_INFINITY,
        // Saturated: ±1e4, with ties for the largest.
        5 => [1e4, -1e4, 9.99e3, 1e4][source.below(v, 4)],
        // Differences below the resolution of e^y, and zeros of both signs.
        6 => [0.0, -0.0, 1e-7, -1e-42, -1e-3][source.below(v, 5)],
        // The cut at −87 and around it.
        _ => -87.0 * [0.0, 1.0, 0.999_999_9, 1.000_000_1, 0.5, 1.2][source.below(v, 6)],
    }
}

fn case(params: Logits, rows: usize, vocab: usize, source: Source) -> Case {
    // A label is part of the digest: those in `f32` are older than the other formats.
    let named = format!("{params:?}").replace(", format: None", "");
    let data = batch(params.masked, rows, vocab, source, params.format);
    Case::of(params, format!("{named} {rows} rows of {vocab}"), data)
}

/// The nearest number of the format that is finite where the logit is.
fn stored(format: Suffix, z: f32) -> f32 {
    match format {
        Suffix::None => z,
        Suffix::Bf16 => Bf16::narrow(z).widen(),
        Suffix::F16 if z.is_finite() => F16::narrow(z.clamp(-65504.0, 65504.0)).widen(),
        Suffix::F16 => z,
    }
}

/// Rows of every kind, with possible labels and with coefficients; see the slots above.
pub(crate) fn batch(masked: bool, rows: usize, vocab: usize, source: Source, format: Suffix) -> Data {
    let mut logits = Vec::with_capacity(rows * vocab);
    let mut row = vec![Vec::new(); 4];
    for r in 0..rows {
        let live = !(masked && source.fork(1).below(r, 4) == 0);
        let of_row = source.fork(100 + r as u64);
        let kind = if vocab < 8 { [0, 1, 5, 6][r % 4] } else { r % 8 };
        let values: Vec<f32> = (0..vocab).map(|v| stored(format, logit(kind, of_row, v))).collect();
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
