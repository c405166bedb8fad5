//! The sign table of every gate, written by hand from docs/maths/gates.md: advantage below, at and above 0 ×
//! ratio below the band, at its lower bound, inside, at its upper bound, above, at and above the dual clip.

use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::gate::{Gate, PpoClip, Sapo};
use lockstep::core::policy_loss::PolicyLoss;
use lockstep::core::ratio::{Guard, RatioGranularity};
use lockstep::ops::policy_loss::{PolicyParams, policy_loss};
use lockstep::ops::token_ratio;
use lockstep::{Advantage, Batch, Compiled, Device, PolicyInput, PolicyOutput};
use lockstep_conformance::precision::WORKED;

/// Log-probabilities whose ratio is `ratio` bit for bit: one of the neighbours of ln(ratio) gives it.
fn logps(device: &Device, ratio: f32) -> (f32, f32) {
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let around = ratio.ln().to_bits() as i64;
    for step in 0..64i64 {
        for d in [around + step, around - step].map(|bits| f32::from_bits(bits as u32)) {
            let (logp, logp_old) = if d > 0.0 { (0.0, -d) } else { (d, 0.0) };
            let got =
                token_ratio(device, &batch, &[logp], &[logp_old], Guard::NONE, [0.0, 1.0]).unwrap().ratio[0];
            if got.to_bits() == ratio.to_bits() {
                return (logp, logp_old);
            }
        }
    }
    panic!("no log-ratio gives exactly {ratio}");
}

/// A gate and nothing else.
fn alone<G: Gate>(gate: G) -> PolicyParams<G> {
    let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
    let (level, guard, band) = (RatioGranularity::Token, Guard::NONE, [0.5, 2.0]);
    PolicyParams { gate, level, guard, kl: None, kl_weighted: false, weight, band }
}

/// Loss, gradient and the fractions at the high, low and dual clip of one token.
fn token<G: Gate>(device: &Device, gate: G, a: f32, r: f32) -> (f64, f64, [f64; 3])
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let (logp, logp_old) = if r == 1.0 { (-0.5, -0.5) } else { logps(device, r) };
    let params = alone(gate);
    let mut out = PolicyOutput::default();
    let (logp, logp_old, a) = ([logp], [logp_old], [a]);
    let input = PolicyInput::new(&logp, &logp_old, Advantage::PerSequence(&a));
    policy_loss(device, &batch, &input, &params, &mut out).unwrap();
    let m = out.metrics.unwrap();
    assert_eq!(m.clip_fraction, m.clip_fraction_high + m.clip_fraction_low);
    assert_eq!(Some(f64::from(out.token_loss[0])), out.loss);
    (out.loss.unwrap(), out.coef[0].into(), [m.clip_fraction_high, m.clip_fraction_low, m.clip_fraction_dual])
}

fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= WORKED && (got == 0.0) == (want == 0.0)
}

const NONE: [f64; 3] = [0.0, 0.0, 0.0];
const HIGH: [f64; 3] = [1.0, 0.0, 0.0];
const LOW: [f64; 3] = [0.0, 1.0, 0.0];
const DUAL: [f64; 3] = [0.0, 0.0, 1.0];

#[test]
fn ppo_clip() {
    let device = Device::cpu();
    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 1.5 };
    // (A, r, loss, dl/dlogp, clip). A bound itself counts as inside.
    let table = [
        (2.0, 0.5, -1.0, -1.0, NONE), // below the band: the pessimistic side is the unclipped one
        (2.0, 0.8, -1.6, -1.6, NONE), // at the lower bound
        (2.0, 1.0, -2.0, -2.0, NONE), // inside
        (2.0, 1.28, -2.56, -2.56, NONE), // at the upper bound: kept
        (2.0, 1.4, -2.56, 0.0, HIGH), // above
        (2.0, 1.5, -2.56, 0.0, HIGH), // at c: dual clip is not for A > 0
        (2.0, 2.0, -2.56, 0.0, HIGH), // above c
        (0.0, 0.5, 0.0, 0.0, NONE),
        (0.0, 0.8, 0.0, 0.0, NONE),
        (0.0, 1.0, 0.0, 0.0, NONE),
        (0.0, 1.28, 0.0, 0.0, NONE),
        (0.0, 1.4, 0.0, 0.0, NONE),
        (0.0, 1.5, 0.0, 0.0, NONE),
        (0.0, 2.0, 0.0, 0.0, NONE),
        (-2.0, 0.5, 1.6, 0.0, LOW),     // below: already discouraged enough
        (-2.0, 0.8, 1.6, 1.6, NONE),    // at the lower bound: kept
        (-2.0, 1.0, 2.0, 2.0, NONE),    // inside
        (-2.0, 1.28, 2.56, 2.56, NONE), // at the upper bound
        (-2.0, 1.4, 2.8, 2.8, NONE),    // above: the pessimistic side is the unclipped one
        (-2.0, 1.5, 3.0, 3.0, NONE),    // at c: kept
        (-2.0, 2.0, 3.0, 0.0, DUAL),    // above c: l = −c A
    ];
    for (a, r, loss, gradient, clip) in table {
        let got = token(&device, gate, a, r);
        assert!(close(got.0, loss) && close(got.1, gradient) && got.2 == clip, "A {a}, r {r}: {got:?}");
    }
}

#[test]
fn ppo_clip_without_dual() {
    let device = Device::cpu();
    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: f32::INFINITY };
    for (a, r, loss, gradient, clip) in [
        (-2.0, 2.0, 4.0, 4.0, NONE),
        (-2.0, 0.5, 1.6, 0.0, LOW),
        (2.0, 2.0, -2.56, 0.0, HIGH),
        (-0.0, 2.0, 0.0, 0.0, NONE),
    ] {
        let got = token(&device, gate, a, r);
        assert!(close(got.0, loss) && close(got.1, gradient) && got.2 == clip, "A {a}, r {r}: {got:?}");
    }
}

#[test]
fn sapo() {
    let device = Device::cpu();
    let gate = Sapo::new(1.0, 1.05);
    // f and r·w from the table of docs/maths/vectors.md. A > 0 pulls up and A < 0 pushes down for every r;
    // nothing is a clip.
    let table = [
        (1.0, 0.25, -1.283285203, -0.217894994),
        (1.0, 0.5, -1.510162675, -0.470007424),
        (1.0, 1.0, -2.0, -1.0),
        (1.0, 1.5, -2.489837325, -1.410022273),
        (0.0, 0.5, 0.0, 0.0),
        (0.0, 1.0, 0.0, 0.0),
        (0.0, 1.5, 0.0, 0.0),
        (-1.0, 0.5, 1.415938330, 0.467069912),
        (-1.0, 1.0, 1.904761905, 1.0),
    ];
    for (a, r, loss, gradient) in table {
        let got = token(&device, gate, a, r);
        assert!(close(got.0, loss) && close(got.1, gradient) && got.2 == NONE, "A {a}, r {r}: {got:?}");
    }
    // Large ratios fade: the gradient keeps its sign and goes to 0.
    for a in [1.0f32, -1.0] {
        let gradients = [1.5f32, 3.0, 10.0, 40.0].map(|r| token_near(&device, gate, a, r));
        assert!(gradients.iter().all(|g| (*g < 0.0) == (a > 0.0)), "{gradients:?}");
        let falling = |pair: &[f64]| pair[1].abs() < pair[0].abs();
        assert!(gradients.windows(2).all(falling), "{gradients:?}");
    }
}

/// dl/dlogp at a ratio that need not be exact.
fn token_near(device: &Device, gate: Sapo, a: f32, r: f32) -> f64 {
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let params = alone(gate);
    let (logp, logp_old, a) = ([0.0], [-r.ln()], [a]);
    let input = PolicyInput::new(&logp, &logp_old, Advantage::PerSequence(&a));
    let mut out = PolicyOutput::default();
    policy_loss(device, &batch, &input, &params, &mut out).unwrap();
    out.coef[0].into()
}
