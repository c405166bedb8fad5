//! `covariance`, `selection_key`, `digit_counts`, `narrow_digits`, `select_top`.

use super::prelude::*;
use crate::expect::tokens::{difference, doubtful_ratio};
use crate::oracle::{covariance as cov, digits, key, ppo_clip, top};
use lockstep_core::aggregate::moments::{MEAN, MOMENTS};
use lockstep_core::gate::PpoClip;
use lockstep_core::select::{
    ClipTest, Covariance, DIGITS, DigitCounts, NarrowDigits, Order, SHIFTS, SelectTop, SelectionKey,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// `covariance`, with means of advantages and log-probabilities.
    Covariance { means: [f64; 2], per_token: bool },
    /// `selection_key` of the advantages; with `unclipped`, without tokens that PPO's clip stops.
    Key { band: [f32; 2], unclipped: bool, order: Order },
    /// `digit_counts` of [`Data::index`].
    Counts { prefix: u32, shift: u32 },
    /// `narrow_digits` of [`Data::index`], `[8][R]`, with the prefix and the number wanted.
    Narrow { state: [u32; 2], shift: u32 },
    /// `select_top` of [`Data::index`], with the bound and the number wanted. Values are kept where selected
    /// and replaced elsewhere if `on`, otherwise the reverse.
    Top { state: [u32; 2], on: bool },
}

const CLIP: PpoClip = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: f32::INFINITY };
const COUNTS: [&str; DIGITS] =
    ["digit_0", "digit_1", "digit_2", "digit_3", "digit_4", "digit_5", "digit_6", "digit_7"];
const OFF: f32 = 0.25;

impl OpTest for Selection {
    names! {
        Selection::Covariance { .. } => "covariance",
        Selection::Key { .. } => "selection_key",
        Selection::Counts { .. } => "digit_counts",
        Selection::Narrow { .. } => "narrow_digits",
        Selection::Top { .. } => "select_top",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("covariance", &["covariance"], 1.0, ROUNDED),
        allow("selection_key", &["key"], 0.0, "bits"),
        allow("digit_counts", &COUNTS, 0.0, "counts"),
        allow("narrow_digits", &["prefix"], 0.0, "bits"),
        allow("select_top", &["out"], 0.0, "a copy"),
    ];
    const CATCHES: &'static str =
        "a tie that goes to another index; a key of 0 that is counted; a digit shifted out of the word";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (n, offsets, mask) = (data.elements(), data.packed()?, data.masked());
        let input = |k: usize| In::new(&data.element[k][..]);
        match *self {
            Selection::Covariance { means: [advantage, logp], per_token } => {
                let moments = |mean| std::array::from_fn(|k| if k == MEAN { mean } else { f64::NAN });
                let [advantage_moments, logp_moments]: [[f64; MOMENTS]; 2] = [advantage, logp].map(moments);
                backend.run(&Covariance {
                    cu_seqlens: offsets,
                    loss_mask: mask,
                    logp: input(slot::LOGP),
                    advantage: if per_token { input(slot::ADVANTAGE) } else { In::new(&data.row[0][..]) },
                    advantage_per_token: per_token,
                    logp_moments: In::new(&logp_moments),
                    advantage_moments: In::new(&advantage_moments),
                    covariance: out.element("covariance"),
                })
            }
            Selection::Key { band, unclipped, order } => backend.run(&SelectionKey {
                cu_seqlens: offsets,
                loss_mask: mask,
                values: input(slot::ADVANTAGE),
                band,
                unclipped: unclipped.then(|| ClipTest {
                    logp: input(slot::LOGP),
                    logp_old: input(slot::LOGP_OLD),
                    advantage: In::new(&data.row[0][..]),
                    advantage_per_token: false,
                    clip: CLIP,
                }),
                order,
                keys: out.element("key"),
            }),
            Selection::Counts { prefix, shift } => backend.run(&DigitCounts {
                offsets,
                keys: In::new(&data.index),
                state: In::new(&[prefix, 0]),
                shift,
                counts: out.rows(&COUNTS),
            }),
            Selection::Narrow { state, shift } => backend.run(&NarrowDigits {
                counts: In::new(&data.index),
                rows: n,
                state: In::new(&state),
                shift,
                narrowed: out.totals(&["prefix", "wanted"]),
                ties_before: out.element("ties_before"),
            }),
            Selection::Top { state, on } => {
                let before: Vec<u32> = data.row[0].iter().map(|x| *x as u32).collect();
                let values = Some(input(0));
                backend.run(&SelectTop {
                    cu_seqlens: offsets,
                    loss_mask: mask,
                    keys: In::new(&data.index),
                    state: In::new(&state),
                    ties_before: In::new(&before),
                    on: values.filter(|_| on),
                    on_value: OFF,
                    off: values.filter(|_| !on),
                    off_value: OFF,
                    out: out.element("out"),
                    row_selected: out.row("selected"),
                })
            }
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match *self {
            Selection::Covariance { means: [mean_a, mean_logp], per_token } => {
                vec![Want::live("covariance", data, |r, i| {
                    let a = if per_token { data.element[slot::ADVANTAGE][i] } else { data.row[0][r] };
                    let logp = data.element[slot::LOGP][i].into();
                    let value = cov::covariance(a.into(), mean_a, logp, mean_logp);
                    (value, value.abs())
                })]
            }
            Selection::Key { band, unclipped, order } => {
                let clip = ppo_clip::PpoClip {
                    low: CLIP.clip_ratio_low.into(),
                    high: CLIP.clip_ratio_high.into(),
                    dual: f64::INFINITY,
                };
                vec![Want::live("key", data, |r, i| {
                    let x = data.element[slot::ADVANTAGE][i];
                    let mut candidate = key::candidate(x.into(), band.map(f64::from));
                    let mut doubt = false;
                    if unclipped {
                        let (d, _) = difference(data.element[slot::LOGP][i], data.element[slot::LOGP_OLD][i]);
                        candidate &= clip.clips(d.exp(), data.row[0][r].into()) == ppo_clip::Clips::default();
                        let bounds = [1.0 - clip.low, 1.0 + clip.high];
                        doubt = bounds.iter().any(|bound| doubtful_ratio(d, d.exp(), *bound));
                    }
                    let key = match order {
                        Order::Largest => key::ordered(x),
                        Order::Random { seed, first } => key::hash(seed, first.wrapping_add(i as u64)),
                    };
                    let value = if candidate { f64::from(key) } else { 0.0 };
                    (value, if doubt { f64::INFINITY } else { 0.0 })
                })]
            }
            Selection::Counts { prefix, shift } => {
                let mut wants = COUNTS.map(Want::new);
                for r in 0..data.rows() {
                    let counts = digits::counts(&data.index[data.span(r)], prefix, shift);
                    push_all(&mut wants, counts.map(|count| (count as f64, 0.0)));
                }
                wants.into()
            }
            Selection::Narrow { state, shift } => {
                let n = data.elements();
                let of = |k: usize| &data.index[k * n..(k + 1) * n];
                let totals: Vec<u64> =
                    (0..DIGITS).map(|k| of(k).iter().map(|c| u64::from(*c)).sum()).collect();
                let (digit, left) = digits::narrow(&totals, state[1].into());
                let [mut prefix, mut wanted, mut ties] = ["prefix", "wanted", "ties_before"].map(Want::new);
                prefix.exact(state[0] | ((digit as u64) << shift) as u32);
                wanted.exact(left as f64);
                let mut before = 0;
                for count in of(digit) {
                    ties.exact(before);
                    before += count;
                }
                vec![prefix, wanted, ties]
            }
            Selection::Top { state: [bound, wanted], on } => {
                let [mut out, mut selected] = ["out", "selected"].map(Want::new);
                for r in 0..data.rows() {
                    let keys = &data.index[data.span(r)];
                    let chosen = top::selected(keys, bound, wanted, data.row[0][r] as u32);
                    for (i, chosen) in data.span(r).zip(&chosen) {
                        let value = if *chosen == on { data.element[0][i] } else { OFF };
                        out.exact(if data.live(i) { value } else { 0.0 });
                    }
                    selected.exact(chosen.iter().filter(|chosen| **chosen).count() as f64);
                }
                vec![out, selected]
            }
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for (j, shape) in shapes::all().iter().enumerate() {
            for params in all(source.fork(j as u64)) {
                let k = cases.len();
                let range = [Range::Realistic, Range::Ties, Range::Tiny][k % 3];
                cases.push(case(params, shape, Mask::ALL[k % 6], range, source.fork(1000 + k as u64), k));
            }
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let params: Vec<Selection> =
            all(draw.source()).into_iter().filter(|params| params.op() == op).collect();
        let shape = draw.shape();
        case(draw.pick(&params), &shape, draw.pick(&Mask::ALL), draw.pick(&Range::ALL), draw.source(), 0)
    }

    fn rows_are_blocks(&self) -> bool {
        matches!(self, Selection::Narrow { .. } | Selection::Key { order: Order::Random { .. }, .. })
    }
}

/// Every op with every kind of argument.
fn all(source: Source) -> Vec<Selection> {
    let (infinite, random) =
        ([f32::NEG_INFINITY, f32::INFINITY], Order::Random { seed: source.bits(0), first: 5 });
    let mut all = vec![
        Selection::Covariance { means: [0.25, -1.5], per_token: false },
        Selection::Covariance { means: [-0.5, -0.01], per_token: true },
        Selection::Key { band: infinite, unclipped: false, order: Order::Largest },
        Selection::Key { band: [0.0, 1.0], unclipped: true, order: Order::Largest },
        Selection::Key { band: infinite, unclipped: true, order: random },
        Selection::Key { band: [-1.0, f32::INFINITY], unclipped: false, order: random },
    ];
    for (k, shift) in SHIFTS.into_iter().enumerate() {
        let prefix = (KEYS[k % KEYS.len()] as u64 >> (shift + 3) << (shift + 3)) as u32;
        all.push(Selection::Counts { prefix, shift });
        let wanted = [0, 1, 7, 100, 5_000, u32::MAX][k % 6];
        all.push(Selection::Narrow { state: [prefix, wanted], shift });
    }
    for (k, bound) in KEYS.into_iter().enumerate() {
        all.push(Selection::Top { state: [bound, [1, 0, 20, 3][k % 4]], on: k % 2 == 0 });
    }
    all
}

/// Few distinct keys, so that there are ties; some share their first digits.
const KEYS: [u32; 6] = [0x8000_0000, 0x8000_0001, 0xbf80_0000, 0xbf80_0007, 1, u32::MAX];

fn case(params: Selection, shape: &Shape, mask: Mask, range: Range, source: Source, k: usize) -> Case {
    // Keys are looked up by element: a batch without elements has none to move.
    let none = shape.lengths.iter().all(|length| *length == 0);
    let one = Shape { lengths: vec![0, 1], ..shape.clone() };
    let mut data = tokens(if none { &one } else { shape }, mask, range, source);
    let n = data.elements();
    match params {
        Selection::Covariance { .. } | Selection::Key { .. } => {}
        Selection::Narrow { .. } => {
            // One row of R counts per digit.
            let rows = n.clamp(1, 700);
            let count =
                |i: usize| if source.fork(1).below(i, 3) == 0 { source.below(i, 9) as u32 } else { 0 };
            let index = (0..DIGITS * rows).map(count).collect();
            data = Data { offsets: vec![0, rows as u32], index, ..Data::default() };
        }
        Selection::Counts { .. } | Selection::Top { .. } => {
            let key = |i: usize| if data.live(i) { KEYS[source.fork(9).below(i, KEYS.len())] } else { 0 };
            data.index = (0..n).map(key).collect();
            data.row[0] = (0..data.rows()).map(|r| source.fork(10).below(r, 4) as f32).collect();
            data.element.truncate(1);
        }
    }
    Case::of(params, format!("{k}: {} {mask:?} {range:?}", shape.name), data)
}
