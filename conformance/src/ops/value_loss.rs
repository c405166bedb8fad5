//! `value_loss`.

use super::prelude::*;
use crate::cases::params::{COUNTED, Partials, weights};
use crate::expect::tokens::UNIT;
use crate::oracle::value_loss as oracle;
use lockstep_core::aggregate::Weight;
use lockstep_core::value_loss::ValueLoss as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueLoss {
    /// Clip range; infinite disables the clip.
    pub range: f32,
    /// δ of Huber's loss; infinite gives the square.
    pub delta: f32,
    pub old: bool,
    pub token_loss: bool,
    pub weight: Weight,
    /// If set, its numbers are read from memory as this many [`Partials`].
    pub counted: Option<usize>,
}

/// Clip ranges and δ.
const RANGES: [(f32, f32); 6] = [
    (0.5, f32::INFINITY),
    (0.2, f32::INFINITY),
    (0.25, f32::INFINITY),
    (f32::INFINITY, f32::INFINITY),
    (0.2, 0.5),
    (f32::INFINITY, 10.0),
];

impl OpTest for ValueLoss {
    const OPS: &'static [&'static str] = &["value_loss"];
    const ALLOWED: &'static [Allowance] = &[
        allow("value_loss", &["gradient"], 3.0, "a difference, the rounding of W, a product"),
        allow("value_loss", &["token_loss"], 3.0, "a difference, squared"),
        allow("value_loss", &["row_loss"], 3.0, TERMS),
    ];
    const CATCHES: &'static str =
        "min for max; a gradient through the clip; the range around the new value; a mask multiplied";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let partials = Partials::of(self.weight, self.counted);
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            values: In::new(&data.element[0]),
            values_old: self.old.then(|| In::new(&data.element[1][..])),
            returns: In::new(&data.element[2]),
            cliprange_value: self.range,
            huber_delta: self.delta,
            weight: partials.weight,
            weight_from: partials.from(),
            gradient: out.element("gradient"),
            row_loss: out.row("row_loss"),
            row_clipped: out.row("row_clipped"),
            row_tokens: out.row("row_tokens"),
            row_alarm: out.alarm(),
            token_loss: self.token_loss.then(|| out.element("token_loss")),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let names = ["gradient", "token_loss", "row_loss", "row_clipped", "row_tokens"];
        let [mut gradient, mut token_loss, mut row_loss, mut clipped, mut tokens] = names.map(Want::new);
        for r in 0..data.rows() {
            let live = data.span(r).filter(|i| data.live(*i)).count();
            let weight = self.weight.of(live as u64);
            let (mut loss, mut count) = (Sum::default(), Sum::default());
            for i in data.span(r) {
                if !data.live(i) {
                    gradient.push(0.0, 0.0);
                    token_loss.push(0.0, 0.0);
                    continue;
                }
                let old = if self.old { data.element[1][i] } else { 0.0 };
                let (v, ret) = (data.element[0][i], data.element[2][i]);
                let [wide, before, target] = [v, old, ret].map(f64::from);
                let want = oracle::token(wide, before, target, self.range.into(), self.delta.into());
                // Rounding of the bounds, of the differences and of their comparison.
                let size = wide.abs() + target.abs() + before.abs();
                let in_doubt = want.distance_to_kink < 4.0 * UNIT * (size + f64::from(self.range.min(1e30)))
                    && !exact(v, old, ret, self.range);
                let size = if in_doubt { f64::INFINITY } else { (weight * want.gradient).abs() };
                gradient.push(weight * want.gradient, size);
                // A clipped value sits at a bound that was rounded.
                let bound = if want.clipped { f64::from(old.abs()) + f64::from(self.range) } else { 0.0 };
                let root = (2.0 * want.loss).sqrt().min(self.delta.into());
                token_loss.push(want.loss, want.loss + root * bound);
                loss.add(weight * want.loss, weight * (want.loss + root * bound));
                count.count(want.clipped, in_doubt);
            }
            row_loss.push(loss.0, loss.1);
            clipped.push(count.0, count.1);
            tokens.push(live as f64, 0.0);
        }
        vec![gradient, token_loss, row_loss, clipped, tokens]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for (ranges, shape) in pairs([&RANGES[..4], &RANGES[4..]], shapes::all()) {
            for &(range, delta) in ranges {
                let k = cases.len();
                if shape.name == "large" && k % 2 == 1 {
                    continue;
                }
                let (old, token_loss) = (range.is_finite() || k % 3 == 0, k % 2 == 0);
                let weight = weights()[k % 6];
                let params = ValueLoss { range, delta, old, token_loss, weight, counted: None };
                cases.push(case(params, &shape, Mask::ALL[k % 6], source.fork(k as u64)).numbered(k));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let range = draw.pick(&[0.5, 0.2, 0.25, 1e-3, f32::INFINITY]);
        let delta = draw.pick(&[f32::INFINITY, 10.0, 0.5]);
        let old = range.is_finite() || draw.yes();
        let (token_loss, weight, counted) = (draw.yes(), draw.pick(&weights()), draw.pick(&COUNTED));
        let params = ValueLoss { range, delta, old, token_loss, weight, counted };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let slots = [0, 1, 2].map(|slot| (slot, NOT_FINITE));
        slots.into_iter().filter(|(slot, _)| self.old || *slot != 1).collect()
    }
}

/// Whether binary32 holds everything that the decision depends on.
fn exact(v: f32, old: f32, ret: f32, range: f32) -> bool {
    let sum = |a: f32, b: f32| f64::from(a + b) == f64::from(a) + f64::from(b);
    let bounds = sum(old, range) && sum(old, -range);
    bounds && sum(v, -ret) && sum(old + range, -ret) && sum(old - range, -ret)
}

/// Values around the old ones; every fourth lies on a grid of 1/8, so that bounds of 1/4 and 1/2 are met
/// exactly.
fn case(params: ValueLoss, shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    let draw = |fork: u64, scale: f32, i: usize| {
        let x = scale * source.fork(fork).signed(i);
        if source.fork(9).below(i, 4) == 0 { (x * 8.0).round() / 8.0 } else { x }
    };
    let old = |i: usize| draw(1, 4.0, i);
    let far = |i: usize| if source.fork(4).below(i, 50) == 0 { 1e4 } else { 0.0 };
    data.element = vec![
        data.array(|i| old(i) + draw(2, 0.75, i)),
        data.array(old),
        data.array(|i| old(i) + draw(3, 1.5, i) + far(i)),
    ];
    // Spelt out, because the digest depends on labels.
    let ValueLoss { range, old, token_loss, weight, .. } = params;
    let scalars = format!("range: {range:?}, old: {old}, token_loss: {token_loss}, weight: {weight:?}");
    Case::of(params, format!("ValueLoss {{ {scalars} }} {} {mask:?}", shape.name), data)
}
