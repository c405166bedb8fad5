//! `vocab_parallel_top`, `vocab_parallel_sums` and `vocab_parallel_statistics`, and `logits_gradient` of a
//! shard: rows of logits in shards, which this file reduces as ranks would.

use super::logits::{self, LABEL, LIVE, Logits, Which, of_rows};
use super::prelude::*;
use crate::oracle::vocab_parallel as oracle;
use crate::outputs::Space;
use lockstep_core::logits::vocab_parallel::{self as core, SUMS, unpacked};
use lockstep_core::logits::{
    LogitRows, LogitsGradient, VocabParallelStatistics, VocabParallelSums, VocabParallelTop,
};
use lockstep_core::num::{Bf16, F16, Storage, Suffix};
use lockstep_core::ragged::{Mask, Out};
use lockstep_cpu::Compiled;

/// How far the ops go, as in [`Which`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    Top,
    Sums { moments: bool },
    Statistics { moments: bool },
    Gradient { entropy: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VocabParallel {
    pub part: Part,
    /// Number of shards with entries; one that pads the vocabulary follows.
    pub shards: usize,
    pub temperature: f32,
    pub masked: bool,
    pub format: Suffix,
}

const TOP: [&str; 3] = ["vocab_parallel_top", "vocab_parallel_top_bf16", "vocab_parallel_top_f16"];
const SUM: [&str; 3] = ["vocab_parallel_sums", "vocab_parallel_sums_bf16", "vocab_parallel_sums_f16"];
const STATISTICS: &str = "vocab_parallel_statistics";

const REASON: &str = "the exponent rounds three times (in the magnitude), exp within 1 ULP, one product";

/// What no kernel writes as a largest entry.
const NO_TOP: i64 = i64::MAX - 7;

/// The sum, or poison if a part is.
fn add(a: f64, b: f64) -> f64 {
    let poison = [a, b].into_iter().find(|x| x.to_bits() == f64::POISON.to_bits());
    poison.unwrap_or(a + b)
}

/// Entries of the shard that pads the vocabulary.
const PADDING: usize = 3;

/// A shard: its first entry, and its entries of all rows.
type Shard<S> = (u32, Vec<S>);

impl OpTest for VocabParallel {
    const OPS: &'static [&'static str] = &[TOP[0], SUM[0], STATISTICS, TOP[1], SUM[1], TOP[2], SUM[2]];
    const ALLOWED: &'static [Allowance] = &[
        allow(TOP[0], &[], 0.0, "a maximum is exact"),
        allow(TOP[1], &[], 0.0, "a maximum is exact"),
        allow(TOP[2], &[], 0.0, "a maximum is exact"),
        allow(SUM[0], &["total", "product", "squares"], 4.0, REASON),
        allow(SUM[1], &["total", "product", "squares"], 4.0, REASON),
        allow(SUM[2], &["total", "product", "squares"], 4.0, REASON),
        allow(STATISTICS, &logits::OF_ROW, 4.0, logits::REASON),
    ];
    const CATCHES: &'static str = "a term off the grid; the label of another shard; the first of equal \
                                   tokens in two shards; a shard of nothing but -inf";
    const ROWS_ARE_EQUAL: bool = true;

    fn op(&self) -> &'static str {
        match self.part {
            Part::Top => self.format.of(TOP),
            Part::Sums { .. } => self.format.of(SUM),
            Part::Statistics { .. } => STATISTICS,
            Part::Gradient { .. } => self.format.of(logits::GRADIENT),
        }
    }

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        match self.format {
            Suffix::None => self.run_as::<f32>(backend, data, out),
            Suffix::Bf16 => self.run_as::<Bf16>(backend, data, out),
            Suffix::F16 => self.run_as::<F16>(backend, data, out),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let VocabParallel { temperature, masked, format, .. } = *self;
        let whole = |which| Logits { which, temperature, masked, format }.wants(data);
        let names: &[_] = match self.part {
            Part::Statistics { moments } => return whole(Which::Statistics { moments }),
            Part::Gradient { entropy } => return whole(Which::Gradient { entropy }),
            Part::Top => &["largest", "top"],
            Part::Sums { .. } => &["label", "holders", "total", "product", "squares"],
        };
        let mut wants: Vec<Want> = names.iter().map(|name| Want::new(name)).collect();
        for r in 0..data.rows() {
            let row = data.wide(0, r);
            let label = data.row[LABEL][r] as usize;
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let values = match self.part {
                _ if self.masked && data.row[LIVE][r] == 0.0 => vec![(0.0, 0.0); names.len()],
                Part::Top => {
                    let top = row.iter().position(|z| *z == largest).unwrap_or(0);
                    vec![(largest, 0.0), (top as f64, 0.0)]
                }
                _ => {
                    let [total, product, squares] = oracle::sums(&row, self.temperature.into());
                    vec![(row[label], 0.0), (1.0, 0.0), total, product, squares]
                }
            };
            push_all(&mut wants, values);
        }
        wants
    }

    fn corpus(source: Source) -> Vec<Case> {
        let parts = [
            Part::Top,
            Part::Sums { moments: true },
            Part::Sums { moments: false },
            Part::Statistics { moments: true },
            Part::Statistics { moments: false },
            Part::Gradient { entropy: true },
            Part::Gradient { entropy: false },
        ];
        let sizes = [(24, 1, 1), (24, 2, 2), (25, 33, 3), (8, 129, 2), (8, 257, 8), (4, 5001, 4)];
        let all = pairs(pairs([Suffix::None, Suffix::Bf16, Suffix::F16], sizes), parts);
        numbered(all, source, |k, ((format, (rows, vocab, shards)), part), source| {
            let (temperature, masked) = ([1.0, 0.7, 2.5][k % 3], k % 3 == 1 && rows > 4);
            case(VocabParallel { part, shards, temperature, masked, format }, rows, vocab, source).numbered(k)
        })
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let [top, sums] = [TOP, SUM].map(|names| logits::format_of(op, names));
        let part = match (top, sums) {
            (Some(_), _) => Part::Top,
            (_, Some(_)) => Part::Sums { moments: draw.yes() },
            _ => Part::Statistics { moments: draw.yes() },
        };
        let temperature = draw.temperature();
        let vocab = if draw.yes() { 1 + draw.below(300) } else { 1 + draw.below(5000) };
        let format = top.or(sums).unwrap_or(Suffix::None);
        let params =
            VocabParallel { part, shards: 1 + draw.below(9), temperature, masked: draw.yes(), format };
        case(params, 1 + draw.below(12), vocab, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        match self.part {
            Part::Statistics { .. } | Part::Gradient { .. } if !self.masked => vec![(0, &NOT_FINITE[..2])],
            _ => Vec::new(),
        }
    }
}

pub(super) fn case(params: VocabParallel, rows: usize, vocab: usize, source: Source) -> Case {
    let data = logits::batch(params.masked, rows, vocab, source, params.format);
    Case::of(params, format!("{params:?} {rows} rows of {vocab}"), data)
}

impl VocabParallel {
    /// The shards of all rows, and one that pads the vocabulary.
    fn shards<S: Storage>(&self, data: &Data) -> Vec<Shard<S>> {
        let vocab = data.elements() / data.rows();
        let count = self.shards.min(vocab);
        let cut = |k: usize| k * vocab / count;
        let of_row = |r: usize, k: usize| &data.element[0][r * vocab + cut(k)..r * vocab + cut(k + 1)];
        let shard = |k: usize| {
            let entries = (0..data.rows()).flat_map(|r| of_row(r, k)).map(|z| S::narrow(*z)).collect();
            (cut(k) as u32, entries)
        };
        let padding = vec![S::narrow(f32::NEG_INFINITY); PADDING * data.rows()];
        (0..count).map(shard).chain([(vocab as u32, padding)]).collect()
    }

    fn run_as<S: Storage + Captured>(
        &self,
        backend: &dyn Backend,
        data: &Data,
        out: &mut Outputs<'_>,
    ) -> Result<(), String>
    where
        for<'a> VocabParallelTop<'a, S>: Compiled,
        for<'a> VocabParallelSums<'a, S>: Compiled,
        for<'a> LogitsGradient<'a, S>: Compiled,
    {
        let (n, temperature) = (data.rows(), self.temperature);
        let (labels, live) = of_rows(data);
        let live = Mask::new(self.masked.then_some(&live[..]));
        let shards = self.shards::<S>(data);
        let rows = |logits| LogitRows { logits: In::new(logits), rows: n, vocab: logits.len() / n, live };

        let mut top = vec![i64::MIN; n];
        for (start, logits) in &shards {
            let mut own = vec![NO_TOP; n];
            let (rows, top_of_shard) = (rows(logits), Out::new(&mut own));
            backend.run(&VocabParallelTop { rows, vocab_start: *start, top: top_of_shard })?;
            top.iter_mut().zip(own).for_each(|(top, own)| *top = own.max(*top));
        }
        let (moments, entropy) = match self.part {
            Part::Top => {
                let values = |top: &i64| match *top {
                    0 => (0.0, 0),
                    NO_TOP => (f32::POISON, u32::POISON),
                    top => unpacked(top),
                };
                let (largest, tokens) = top.iter().map(values).unzip();
                out.add(vec![row("largest", f32::values(largest)), row("top", u32::values(tokens))]);
                return Ok(());
            }
            Part::Sums { moments } | Part::Statistics { moments } => (moments, false),
            Part::Gradient { entropy } => (entropy, entropy),
        };

        let mut sums = vec![0.0; SUMS[usize::from(moments)] * n];
        let mut alarms = vec![0; n];
        for (start, logits) in &shards {
            let (mut own, mut alarm) = (vec![f64::POISON; sums.len()], vec![u32::POISON; n]);
            backend.run(&VocabParallelSums {
                rows: rows(logits),
                vocab_start: *start,
                labels: In::new(&labels),
                top: In::new(&top),
                temperature,
                moments,
                sums: Out::new(&mut own),
                row_alarm: Out::new(&mut alarm),
            })?;
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum = add(*sum, own));
            alarms.iter_mut().zip(alarm).for_each(|(all, own)| *all = own.max(*all));
        }
        if let Part::Sums { .. } = self.part {
            let sum = |k: usize| sums.get(k * n..(k + 1) * n).unwrap_or_default();
            let both = |k: usize| sum(k).iter().zip(sum(k + 1)).map(|(a, b)| add(*a, *b)).collect::<Vec<_>>();
            let mut made = vec![
                ("label", sum(core::LABEL).to_vec()),
                ("holders", sum(core::HOLDERS).to_vec()),
                ("total", both(core::TOTAL)),
            ];
            if moments {
                made.extend([("product", both(core::PRODUCT)), ("squares", both(core::SQUARES))]);
            }
            let made = made.into_iter().map(|(name, sums)| row(name, f64::values(sums)));
            out.add(made.chain([raised(alarms)]).collect());
            return Ok(());
        }

        let mut state = vec![f64::POISON; 3 * n];
        let reduced = (In::new(&top[..]), In::new(&sums[..]), live);
        if let Part::Statistics { .. } = self.part {
            return self.statistics(backend, reduced, moments, out, &mut state);
        }
        let space = Space::new();
        self.statistics(backend, reduced, moments, &mut Outputs::of(data, &space), &mut state)?;

        let vocab = data.elements() / n;
        let (mut gradient, mut alarms) = (vec![S::POISON; n * vocab], vec![0; n]);
        for (start, logits) in &shards {
            let (mut own, mut alarm) = (vec![S::POISON; logits.len()], vec![u32::POISON; n]);
            backend.run(&LogitsGradient {
                rows: rows(logits),
                labels: In::new(&labels),
                vocab_start: Some(*start),
                temperature,
                state: In::new(&state),
                coef: In::new(&data.row[logits::COEF]),
                coef_entropy: entropy.then(|| In::new(&data.row[logits::COEF_ENTROPY][..])),
                gradient: Out::new(&mut own),
                row_alarm: Out::new(&mut alarm),
            })?;
            let width = logits.len() / n;
            if *start as usize == vocab {
                // The padding has no place in the result.
                continue;
            }
            for (r, own) in own.chunks(width).enumerate() {
                let at = r * vocab + *start as usize;
                gradient[at..at + width].copy_from_slice(own);
            }
            alarms.iter_mut().zip(alarm).for_each(|(all, own)| *all = own.max(*all));
        }
        out.add(vec![element("gradient", S::values(gradient)), raised(alarms)]);
        Ok(())
    }

    fn statistics(
        &self,
        backend: &dyn Backend,
        (top, sums, live): (In<'_, i64>, In<'_, f64>, Mask<'_>),
        moments: bool,
        out: &mut Outputs<'_>,
        state: &mut [f64],
    ) -> Result<(), String> {
        backend.run(&VocabParallelStatistics {
            rows: top.len(),
            live,
            top,
            sums,
            temperature: self.temperature,
            results: logits::results(out, moments, state),
        })
    }
}
