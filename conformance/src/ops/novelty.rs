//! `novelty_bands`.

use super::prelude::*;
use crate::oracle::novelty as oracle;
use lockstep_core::reward::NoveltyBands as Kernel;

/// Arguments of `novelty_bands`. Classes are [`Data::index`]; similarities are products of the two arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Novelty {
    pub mean_weight: f64,
    /// Majority, minority, width, invalid.
    pub bands: [f64; 4],
}

const PAPER: Novelty = Novelty { mean_weight: 0.5, bands: [0.5, -1.0, 0.5, -1.0] };
const LIST: [Novelty; 4] = [
    PAPER,
    Novelty { mean_weight: 0.0, ..PAPER },
    Novelty { mean_weight: 1.0, ..PAPER },
    Novelty { mean_weight: 0.25, bands: [2.0, 0.125, 0.3, -3.0] },
];

fn similarity(data: &Data, i: usize, j: usize) -> f32 {
    data.element[0][i] * data.element[0][j] + data.element[1][i] * data.element[1][j]
}

const REASON: &str = "novelty rounds to binary32 once; its range is in the magnitude of the reward";

impl OpTest for Novelty {
    const OPS: &'static [&'static str] = &["novelty_bands"];
    const ALLOWED: &'static [Allowance] = &[allow("novelty_bands", &["shaped", "novelty"], 1.0, REASON)];
    const CATCHES: &'static str = "the diagonal in a maximum; a range over both classes; 0/0 in a class of \
                                   equals; neighbours without an answer";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (mut pairs, mut start) = (Vec::new(), Vec::new());
        for r in 0..data.rows() {
            start.push(pairs.len() as u64);
            for i in data.span(r) {
                // The diagonal must not be read.
                let one = |j: usize| if i == j { f32::NAN } else { similarity(data, i, j) };
                pairs.extend(data.span(r).map(one));
            }
        }
        let [majority, minority, width, invalid] = self.bands;
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            pair_start: In::new(&start),
            similarity: In::new(&pairs),
            classes: In::new(&data.index),
            valid: data.masked(),
            mean_weight: self.mean_weight,
            majority,
            minority,
            width,
            invalid,
            shaped: out.scores("shaped"),
            novelty: out.element("novelty"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let [mut shaped, mut novelty] = ["shaped", "novelty"].map(Want::new);
        let [majority, minority, width, invalid] = self.bands;
        for r in 0..data.rows() {
            let span = data.span(r);
            let one = |i: usize, j: usize| f64::from(similarity(data, i, j));
            let matrix: Vec<Vec<f64>> =
                span.clone().map(|i| span.clone().map(|j| one(i, j)).collect()).collect();
            let class = |i: usize| (data.live(i) && data.index[i] < 2).then_some(data.index[i]);
            let class: Vec<Option<u32>> = span.clone().map(class).collect();
            let novelty_of = |k| oracle::novelty(&matrix, &class, k, self.mean_weight);
            let u: Vec<f64> = (0..class.len()).map(|k| class[k].map_or(0.0, |_| novelty_of(k))).collect();
            for (k, i) in span.enumerate() {
                let peers: Vec<f64> = (0..u.len()).filter(|j| class[*j] == class[k]).map(|j| u[j]).collect();
                novelty.push(u[k], u[k].abs());
                let Some(class) = class[k] else {
                    shaped.push(if data.live(i) { invalid } else { NO_SCORE.into() }, invalid.abs());
                    continue;
                };
                let base = if class == 1 { majority } else { minority };
                let reward = base + width * oracle::place(u[k], &peers);
                let most = peers.iter().fold(0.0, |m: f64, u| m.max(u.abs()));
                let range = peers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
                    - peers.iter().copied().fold(f64::INFINITY, f64::min);
                // Three roundings of a novelty, divided by the range.
                let moved = if range > 0.0 { width * 2.0 * most / range } else { 0.0 };
                shaped.push(reward, reward.abs() + moved);
            }
        }
        vec![shaped, novelty]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(LIST, [false, true]), source, |_, (params, valid), source| {
            case(params, &[8, 1, 2, 0, 5, 16, 33, 3, 70, 7], valid, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let sizes: Vec<u32> = draw.lengths().into_iter().map(|n| n % 40).collect();
        let (params, valid, source) = (draw.pick(&LIST), draw.yes(), draw.source());
        case(params, &sizes, valid, source)
    }
}

fn case(params: Novelty, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    // Quarters, so that similarities and their sums are exact and equal novelties compare equal everywhere.
    let value = |name: u64, i: usize| source.fork(2 + name).below(i, 9) as f32 / 4.0 - 1.0;
    data.element = [0, 1].map(|name| data.array(|i| value(name, i))).into();
    data.index = (0..data.elements()).map(|i| [1, 1, 1, 0, 0, 2, 9][source.fork(5).below(i, 7)]).collect();
    Case::of_groups(params, valid, data)
}
