//! `loss_totals`.

use super::prelude::*;
use crate::oracle::totals as oracle;
use crate::output::POISON;
use lockstep_core::aggregate::totals::COUNTS;
use lockstep_core::aggregate::{LossTotals, MetricTotals};
use lockstep_core::policy_loss::sum::SUMS;
use lockstep_core::ragged::Out;

/// Arguments of `loss_totals`. [`Data::element64`] holds the losses and the sums, the first array the maxima,
/// [`Data::index`] tokens and alarms; the sequences are the elements of the first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub metrics: bool,
}

/// Counts, alarm and loss.
const ALWAYS: usize = COUNTS + 2;

impl Totals {
    fn statistics(self) -> usize {
        ALWAYS + if self.metrics { SUMS + 2 } else { 0 }
    }
}

impl OpTest for Totals {
    const OPS: &'static [&'static str] = &["loss_totals"];
    const ALLOWED: &'static [Allowance] = &[allow("loss_totals", &["totals"], 1e-7, SUM64)];
    const CATCHES: &'static str = "partials indexed [sequence][statistic]; an alarm compared as a number; \
                                   an empty sequence that counts";
    const ROWS_ARE_BLOCKS: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let sequences = data.span(0).len();
        let (mut loss, mut count, mut alarm) = ([f64::POISON], [u64::POISON; COUNTS], [u32::POISON]);
        let (mut sums, mut maxima) = ([f64::POISON; SUMS], [f32::POISON; 2]);
        let (tokens, alarms) = data.index.split_at(sequences);
        let (row_loss, row_sums) = data.element64.split_at(sequences);
        backend.run(&LossTotals {
            row_loss: In::new(row_loss),
            row_tokens: In::new(tokens),
            row_alarm: In::new(alarms),
            loss: Out::new(&mut loss),
            counts: Out::new(&mut count),
            alarm: Out::new(&mut alarm),
            metrics: self.metrics.then(|| MetricTotals {
                row_sums: In::new(row_sums),
                row_maxima: In::new(&data.element[0]),
                sums: Out::new(&mut sums),
                maxima: Out::new(&mut maxima),
            }),
        })?;
        let poison = f64::POISON;
        let Values::F64(mut totals) = u64::values(count.to_vec()) else { unreachable!("as it says there") };
        totals.push(if alarm[0] == POISON { poison } else { alarm[0].into() });
        totals.extend(loss);
        if self.metrics {
            totals.extend(sums);
            totals.extend(maxima.iter().map(|x| if x.to_bits() == POISON { poison } else { (*x).into() }));
        }
        out.add(vec![row("totals", Values::F64(totals))]);
        Ok(())
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let sequences = data.span(0).len();
        let (tokens, alarm) = data.index.split_at(sequences);
        let (loss, sums) = data.element64.split_at(sequences);
        let maxima = data.element.first().map_or(&[][..], |maxima| &maxima[..]);
        let (want, magnitude) =
            oracle::Rows { loss, sums, maxima, tokens, alarm }.totals().into_iter().unzip();
        vec![Want { name: "totals", want, magnitude }]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = pairs([true, false], [1, 2, 31, 33, 128, 129, 1000]);
        numbered(all, source, |_, (metrics, sequences), source| case(Totals { metrics }, sequences, source))
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let most = draw.pick(&[40, 1500]);
        let sequences = 1 + draw.below(most);
        case(Totals { metrics: draw.yes() }, sequences, draw.source())
    }
}

/// Every fifth sequence has no live token; in every third case one has an alarm.
fn case(params: Totals, sequences: usize, source: Source) -> Case {
    let empty = |s: usize| source.fork(9).below(s, 5) == 0;
    let double = |i: usize| {
        let tail = f64::from(source.fork(2).spread(i)) / 16_777_216.0;
        if empty(i % sequences) { 0.0 } else { f64::from(source.fork(1).spread(i)) + tail }
    };
    let maximum = |i: usize| if empty(i % sequences) { f32::NEG_INFINITY } else { source.fork(3).spread(i) };
    let tokens = |s: usize| if empty(s) { 0 } else { 1 + source.fork(4).below(s, 4096) as u32 };
    let fine = |s: usize| if empty(s) { 0 } else { source.fork(5).spread(s).abs().to_bits() };
    let mut index: Vec<u32> = (0..sequences).map(tokens).chain((0..sequences).map(fine)).collect();
    if source.below(0, 3) == 0 {
        let bad = [f32::INFINITY.to_bits(), 0x7f80_0001, 0xffc0_0000, u32::MAX][source.below(1, 4)];
        index[sequences + source.below(2, sequences)] = bad;
    }
    let sums = if params.metrics { SUMS } else { 0 };
    let rows = params.statistics() as u32;
    let data = Data {
        offsets: (0..=rows).map(|r| r * sequences as u32).collect(),
        element: params.metrics.then(|| (0..2 * sequences).map(maximum).collect()).into_iter().collect(),
        element64: (0..(1 + sums) * sequences).map(double).collect(),
        index,
        ..Data::default()
    };
    let (metrics, unique) = (params.metrics, source.below(3, 1000));
    Case::of(params, format!("{sequences} sequences, metrics: {metrics}, {unique}"), data)
}
