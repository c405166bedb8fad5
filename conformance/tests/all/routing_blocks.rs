//! A CPU processes sixteen rows of a common router at once, with the bits of one row at a time, bad numbers
//! included.

use crate::prelude::*;
use lockstep::core::ragged::flag;
use lockstep::core::routing::{ChosenOut, GatingBackward, GatingForward, Router, RouterKind, Trace};

/// Two blocks of 16, and further rows.
const ROWS: usize = 37;
/// Kinds of scores.
const STYLES: usize = 13;

/// Scores: unordered, rounded to bf16, few distinct values; a few units apart around a number, where keys are
/// equal and where sigmoids are equal or change order; saturated; unordered with some bad values.
fn score(style: usize, source: Source, i: usize) -> f32 {
    let around = |x: f32| f32::from_bits(x.to_bits() + source.below(i, 700) as u32);
    match style {
        0 => 4.0 * source.signed(i),
        1 => f32::from_bits((2.0 * source.signed(i)).to_bits() & 0xffff_0000),
        2 => [0.0, -0.0, 1.0, 1.5][source.below(i, 4)],
        3 => around(0.9),
        4 => around([3.9999, -0.693][source.below(i, 2)]),
        5 => around([-60.0, -88.0, 1.0][(i / 128) % 3]),
        6 => 30.0 * source.signed(i),
        7 => -110.0 + 10.0 * source.signed(i),
        // Seven far above; the eighth pick is the lower of two scores one unit apart whose sigmoids are
        // equal.
        9 => match i % 128 {
            110..117 => 3.75 + (i % 128) as f32 / 1024.0,
            101 => 3.5,
            50 => f32::from_bits(3.5f32.to_bits() - 1),
            _ => -1.0 + 0.5 * source.signed(i),
        },
        // The same with two that differ only in the last bit, the larger one later; with −0 before +0; with
        // two below 0.
        10..13 => match (i % 128, style) {
            // Two of the seven share one of sixteen columns, so that both are candidates.
            (110..116 | 126, _) => 3.75 + (i % 128) as f32 / 1024.0,
            (101, 10) => f32::from_bits(3.5f32.to_bits() + 1),
            (50, 10) => 3.5,
            (101, 11) => 0.0,
            (50, 11) => -0.0,
            (101, _) => -0.75,
            (50, _) => f32::from_bits((-0.75f32).to_bits() + 1),
            _ => -2.0 + 0.5 * source.signed(i),
        },
        _ => match source.below(i, 500) {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => -f32::NAN,
            _ => source.signed(i),
        },
    }
}

/// The bits of everything that a forward and a backward pass write; alarms above the limit count as one.
fn bits(device: &Device, router: Router, style: usize, with_bias: bool) -> Vec<Vec<u32>> {
    let source = Source::new(style as u64).fork(router.experts as u64);
    let (experts, top_k) = (router.experts, router.top_k);
    let scores: Vec<f32> = (0..ROWS * experts).map(|i| score(style, source, i)).collect();
    let bias: Vec<f32> = (0..experts).map(|e| 0.5 * source.fork(1).signed(e)).collect();
    let (mut chosen, mut gates) = (vec![0u8; ROWS * top_k], vec![7.0f32; ROWS * top_k]);
    let mut group_scores = vec![7.0f32; ROWS * router.groups];
    let (mut replayed, mut alarms) = (vec![7u32; ROWS], vec![7u32; ROWS]);
    device
        .run(&GatingForward {
            router,
            rows: ROWS,
            scores: In::new(&scores),
            bias: with_bias.then(|| In::new(&bias)),
            replay: None,
            chosen: ChosenOut::narrow(Out::new(&mut chosen)),
            gates: Out::new(&mut gates),
            group_scores: (router.groups > 1).then(|| Out::new(&mut group_scores)),
            row_replayed: Out::new(&mut replayed),
            row_alarm: Out::new(&mut alarms),
        })
        .unwrap();
    let forward = alarms.clone();
    let coef: Vec<f32> = (0..ROWS * top_k).map(|i| score([0, 2, 8][style % 3], source.fork(2), i)).collect();
    let mut experts_run = chosen.clone();
    if style == 8 {
        // Not one of the 128 experts.
        experts_run[20] = 200;
    }
    let mut gradient = vec![7.0f32; ROWS * experts];
    device
        .run(&GatingBackward {
            router,
            rows: ROWS,
            scores: In::new(&scores),
            chosen: Trace::narrow(In::new(&experts_run), 1, top_k),
            gates: In::new(&gates),
            coef: In::new(&coef),
            gradient: Out::new(&mut gradient),
            row_alarm: Out::new(&mut alarms),
        })
        .unwrap();
    let numbers = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect();
    let alarm = |x: &[u32]| x.iter().map(|x| *x.min(&(flag::LIMIT + 1))).collect();
    let chosen = chosen.iter().map(|e| u32::from(*e)).collect();
    let [gates, group_scores, gradient] = [&gates, &group_scores, &gradient].map(|x| numbers(x));
    vec![chosen, gates, group_scores, replayed, alarm(&forward), gradient, alarm(&alarms)]
}

fn agree(router: Router, with_bias: bool) {
    let plain = Device::cpu_with(Some(SimdLevel::Plain), Some(1)).unwrap();
    for style in 0..STYLES {
        let want = bits(&plain, router, style, with_bias);
        for level in SimdLevel::available() {
            let got = bits(&Device::cpu_with(Some(level), Some(1)).unwrap(), router, style, with_bias);
            for (array, (got, want)) in got.iter().zip(&want).enumerate() {
                let differs = (0..want.len()).find(|i| got[*i] != want[*i]);
                let case = format!("{level}, style {style}, array {array}, {router:?}, bias {with_bias}");
                assert_eq!(differs, None, "{case}");
            }
        }
    }
}

#[test]
fn blocks_of_softmax_routers_have_the_bits_of_rows() {
    for kind in [RouterKind::SoftmaxChosen, RouterKind::SoftmaxAll] {
        agree(Router { scale: 1.5, ..Router::new(kind, 128, 8) }, false);
    }
}

#[test]
fn blocks_of_sigmoid_routers_have_the_bits_of_rows() {
    agree(Router::new(RouterKind::SigmoidNormalized, 128, 8), false);
    agree(Router { scale: 2.5, ..Router::new(RouterKind::Sigmoid, 128, 8) }, true);
}

#[test]
fn blocks_of_grouped_routers_have_the_bits_of_rows() {
    agree(Router::DEEPSEEK_V3, true);
    agree(Router { top_groups: 3, ..Router::DEEPSEEK_V3 }, false);
}

/// A gradient too large for the caches is written past them: written whole, it equals the same gradient
/// written in parts that do fit.
#[test]
fn a_gradient_beyond_the_caches_has_the_bits_of_its_parts() {
    const PART: usize = 1 << 16;
    let rows = 2 * PART + 48;
    let levels = SimdLevel::available().into_iter().filter(|level| *level != SimdLevel::Plain);
    let kinds = [RouterKind::SoftmaxChosen, RouterKind::SoftmaxAll];
    for (kind, level) in levels.flat_map(|level| kinds.map(|kind| (kind, level))) {
        let (router, device) = (Router::new(kind, 128, 8), Device::cpu_with(Some(level), Some(2)).unwrap());
        let source = Source::new(77);
        let scores: Vec<f32> = (0..rows * 128).map(|i| source.signed(i)).collect();
        let chosen: Vec<u8> = (0..rows * 8).map(|i| (16 * (i % 8) + (i * 7 / 8) % 16) as u8).collect();
        let gates: Vec<f32> = (0..rows * 8).map(|i| source.fork(1).signed(i).abs()).collect();
        let coef: Vec<f32> = (0..rows * 8).map(|i| source.fork(2).signed(i)).collect();
        let (mut whole, mut parts) = (vec![7.0f32; rows * 128], vec![5.0f32; rows * 128]);
        let backward = |first: usize, gradient: &mut [f32]| {
            let (rows, mut alarm) = (gradient.len() / 128, vec![0; gradient.len() / 128]);
            let of = |each: usize| first * each..(first + rows) * each;
            device
                .run(&GatingBackward {
                    router,
                    rows,
                    scores: In::new(&scores[of(128)]),
                    chosen: Trace::narrow(In::new(&chosen[of(8)]), 1, 8),
                    gates: In::new(&gates[of(8)]),
                    coef: In::new(&coef[of(8)]),
                    gradient: Out::new(gradient),
                    row_alarm: Out::new(&mut alarm),
                })
                .unwrap();
            assert!(alarm.iter().all(|alarm| *alarm <= flag::LIMIT));
        };
        backward(0, &mut whole);
        for first in (0..rows).step_by(PART) {
            let end = rows.min(first + PART);
            backward(first, &mut parts[first * 128..end * 128]);
        }
        assert!(whole.iter().zip(&parts).all(|(a, b)| a.to_bits() == b.to_bits()), "{kind:?} {level}");
    }
}
