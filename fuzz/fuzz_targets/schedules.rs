//! Fuzzes schedules: no arguments cause a panic; a decision is within its bounds and repeatable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::schedule::fifo::Fifo;
use lockstep::schedule::rounding::Bounds;
use lockstep::schedule::*;
use lockstep::{Error, schedule};
use lockstep_fuzz::*;

fn doubles(draw: &mut Draw<'_>, n: usize) -> Vec<f64> {
    (0..n).map(|_| draw.double(Like::Parameter)).collect()
}

fn small(draw: &mut Draw<'_>, n: usize) -> Vec<u32> {
    (0..n).map(|_| if draw.byte() == 0xff { draw.u32() } else { draw.byte().into() }).collect()
}

/// Makes a decision twice and checks that the results are equal, or that the errors are and name an argument.
fn twice<T: PartialEq + std::fmt::Debug>(decide: impl Fn() -> Result<T, Error>) -> Option<T> {
    match (decide(), decide()) {
        (Ok(a), Ok(b)) => {
            // NaN does not equal itself, but its text does.
            assert_eq!(format!("{a:?}"), format!("{b:?}"));
            Some(a)
        }
        (Err(a), Err(b)) => {
            assert_eq!(a.to_string(), b.to_string());
            assert!(a.to_string().contains('`'), "an error names an argument: {a}");
            None
        }
        (a, b) => panic!("{a:?}, then {b:?}"),
    }
}

/// Checks that every index is below `n` and none occurs twice.
fn distinct(indices: &[u32], n: usize) {
    let mut seen = vec![false; n];
    for i in indices {
        assert!(!std::mem::replace(&mut seen[*i as usize], true), "{i} twice in {indices:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let (which, n) = (draw.below(12), draw.below(24));
    let (seed, step) = (draw.u64(), draw.u32());
    match which {
        0 => {
            let (length, ranks, equal) = (small(draw, n), draw.below(9), draw.flag());
            let how = draw.one_of(&[Balance::KarmarkarKarp, Balance::Greedy, Balance::Better]);
            let Some(out) = twice(|| balance(&length, ranks, equal, how)) else { return };
            assert!(out.rank.iter().all(|rank| (*rank as usize) < ranks));
            let total: u64 = length.iter().map(|n| u64::from(*n)).sum();
            assert_eq!((out.rank.len(), out.load.iter().sum::<u64>()), (n, total));
        }
        1 => {
            let (rollouts, count) =
                (doubles(draw, n), (0..n).map(|_| draw.byte().into()).collect::<Vec<u32>>());
            let (least, most) = (draw.below(4) as u32, draw.byte().into());
            let bounds = Bounds { least, most, budget: u64::from(draw.u32() % 10_000) };
            let Some((got, total)) = twice(|| largest_remainder(&rollouts, &count, bounds)) else { return };
            assert!(got.iter().all(|n| (least..=most).contains(n)) && total <= bounds.budget);
        }
        2 => {
            let (share, variance, mean) = (doubles(draw, n), doubles(draw, n), draw.double(Like::Parameter));
            twice(|| square_root_law(&share, &variance, mean));
        }
        3 => {
            let versions = small(draw, n);
            let order = april_order(&versions).expect("any versions have an order");
            distinct(&order, n);
            assert!(order.windows(2).all(|w| versions[w[0] as usize] <= versions[w[1] as usize]));
        }
        4 => {
            let capacity = u32::from(draw.byte());
            let Ok(mut buffer) = Fifo::new(capacity) else { return assert_eq!(capacity, 0) };
            (0..n).for_each(|_| _ = buffer.push());
            let count = draw.below(32) as u32;
            let Some(slots) = twice(|| replay_slots(&buffer, count, seed, step)) else { return };
            distinct(&slots, capacity as usize);
            assert_eq!(slots.len(), count as usize);
        }
        5 => {
            let offsets = small(draw, n);
            let rewards = draw.floats(offsets.last().map_or(0, |last| *last as usize % 512), Like::Reward);
            let count = draw.below(8);
            if let Some(chosen) = twice(|| swarm_groups(&offsets, &rewards, count, seed, step)) {
                distinct(&chosen, offsets.len());
                assert!(chosen.len() <= count);
            }
            if let Some(kept) = twice(|| dynamic_sampling(&offsets, &rewards, count)) {
                distinct(&kept, offsets.len());
            }
        }
        6 => {
            let rule = schedule::arrol::Arrol {
                keep: draw.byte().into(),
                least: draw.byte().into(),
                target: draw.double(Like::Parameter),
            };
            let success = doubles(draw, n);
            let wanted = rule.keep.max(rule.least).min(n as u32) as usize;
            let kept = |kept: &[bool]| kept.iter().filter(|kept| **kept).count();
            if let Some(out) = twice(|| arrol_two_ended(&rule, &success)) {
                assert_eq!(kept(&out.kept), wanted);
            }
            if let Some(out) = twice(|| arrol_sampled(&rule, &success, seed, step, 0)) {
                assert_eq!(kept(&out.kept), wanted);
                assert!(out.weight.iter().all(|w| *w == 0.0 || *w >= 1.0 && w.is_finite()), "{out:?}");
            }
        }
        7 => {
            let (length, alpha) = (small(draw, n), draw.double(Like::Parameter));
            let correct: Vec<bool> = (0..n).map(|_| draw.flag()).collect();
            twice(|| rorecomp_split(&length, &correct, alpha));
        }
        8 => {
            let (vade, batch) = (Vade::default(), draw.below(32));
            let posteriors: Vec<Posterior> = (0..n)
                .map(|_| Posterior { a: draw.double(Like::Parameter), b: draw.double(Like::Parameter) })
                .collect();
            if let Some(chosen) = twice(|| vade_select(&vade, &posteriors, batch, seed, step)) {
                distinct(&chosen.prompts, n);
                assert_eq!(chosen.prompts.len(), batch.min(n));
            }
        }
        9 => {
            let m = draw.below(24);
            let (a, b) = (small(draw, n), small(draw, m));
            let (f, distance) =
                (rouge_l(&a, &b).expect("no limits"), edit_distance(&a, &b).expect("no limits"));
            assert!((0.0..=1.0).contains(&f) && distance as usize <= a.len().max(b.len()));
            assert_eq!(distance, edit_distance(&b, &a).expect("no limits"));
            assert_eq!(distance == 0, a == b);
            _ = latr_prunes(&Latr::default(), &a, &b, draw.flag().then(|| draw.u32()));
        }
        10 => {
            let (candidates, capacity) = (small(draw, n), draw.u32() % 4096);
            twice(|| latr_fit(&candidates, capacity));
        }
        _ => {
            let known: Vec<Known> = (0..n)
                .map(|_| Known {
                    rollouts: draw.byte().into(),
                    sum: draw.double(Like::Reward),
                    square: draw.double(Like::Parameter),
                })
                .collect();
            let (budget, exploration) = (u32::from(draw.byte()), draw.double(Like::Parameter));
            if let Some(extra) = twice(|| xrpo(&known, budget, exploration)) {
                assert_eq!(extra.iter().map(|n| u64::from(*n)).sum::<u64>(), u64::from(budget));
            }
        }
    }
});
