//! The sign table of every gate, written by hand from docs/maths/gates.md: advantage below, at and above 0 ×
//! ratio below the band, at its lower bound, inside, at its upper bound, above, at and above the dual clip.

use crate::prelude::*;
use crate::worked::alone;
use lockstep::core::gate::{Gate, PpoClip, Sapo};
use lockstep::core::policy_loss::PolicyLoss;
use lockstep::ops::token_ratio;

/// Log-probabilities whose ratio is `ratio` bit for bit: one of the neighbours of ln(ratio) gives it.
fn logps(ratio: f32) -> (f32, f32) {
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let around = ratio.ln().to_bits() as i64;
    for bits in (0..64).flat_map(|step| [around + step, around - step]) {
        let d = f32::from_bits(bits as u32);
        let (logp, logp_old) = if d > 0.0 { (0.0, -d) } else { (d, 0.0) };
        let got = token_ratio(&Device::cpu(), &batch, &[logp], &[logp_old], Guard::NONE, [0.0, 1.0]).unwrap();
        if got.ratio[0].to_bits() == ratio.to_bits() {
            return (logp, logp_old);
        }
    }
    panic!("no log-ratio gives exactly {ratio}");
}

const NONE: [f64; 3] = [0.0, 0.0, 0.0];
const HIGH: [f64; 3] = [1.0, 0.0, 0.0];
const LOW: [f64; 3] = [0.0, 1.0, 0.0];
const DUAL: [f64; 3] = [0.0, 0.0, 1.0];

/// Checks loss, gradient and the fractions at the high, low and dual clip of one token with advantage A and
/// ratio r: (A, r, loss, dl/dlogp, clip).
fn check<G: Gate>(gate: G, table: &[(f32, f32, f64, f64, [f64; 3])])
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    for (a, r, loss, gradient, clip) in table {
        let out = alone(gate, *a, if *r == 1.0 { (-0.5, -0.5) } else { logps(*r) });
        let m = out.metrics.unwrap();
        assert_eq!(m.clip_fraction, m.clip_fraction_high + m.clip_fraction_low);
        assert_eq!(Some(f64::from(out.token_loss[0])), out.loss);
        let close = |got: f64, want: f64| (got - want).abs() <= WORKED && (got == 0.0) == (want == 0.0);
        let clips = [m.clip_fraction_high, m.clip_fraction_low, m.clip_fraction_dual];
        assert!(
            close(out.loss.unwrap(), *loss) && close(out.coef[0].into(), *gradient) && clips == *clip,
            "A {a}, r {r}: {out:?}"
        );
    }
}

#[test]
fn ppo_clip() {
    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 1.5 };
    // A bound itself counts as inside.
    check(
        gate,
        &[
            (2.0, 0.5, -1.0, -1.0, NONE), // below the band: the pessimistic side is the unclipped one
            (2.0, 0.8, -1.6, -1.6, NONE), // at the lower bound
            (2.0, 1.0, -2.0, -2.0, NONE), // inside
            (2.0, 1.28, -2.56, -2.56, NONE), // at the upper bound: kept
            (2.0, 1.4, -2.56, 0.0, HIGH), // above
            (2.0, 1.5, -2.56, 0.0, HIGH), // at c: dual clip is not for A > 0
            (2.0, 2.0, -2.56, 0.0, HIGH), // above c
            (-2.0, 0.5, 1.6, 0.0, LOW),   // below: already discouraged enough
            (-2.0, 0.8, 1.6, 1.6, NONE),  // at the lower bound: kept
            (-2.0, 1.0, 2.0, 2.0, NONE),  // inside
            (-2.0, 1.28, 2.56, 2.56, NONE), // at the upper bound
            (-2.0, 1.4, 2.8, 2.8, NONE),  // above: the pessimistic side is the unclipped one
            (-2.0, 1.5, 3.0, 3.0, NONE),  // at c: kept
            (-2.0, 2.0, 3.0, 0.0, DUAL),  // above c: l = −c A
        ],
    );
    check(gate, &[0.5, 0.8, 1.0, 1.28, 1.4, 1.5, 2.0].map(|r| (0.0, r, 0.0, 0.0, NONE)));
}

#[test]
fn ppo_clip_without_dual() {
    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: f32::INFINITY };
    check(
        gate,
        &[
            (-2.0, 2.0, 4.0, 4.0, NONE),
            (-2.0, 0.5, 1.6, 0.0, LOW),
            (2.0, 2.0, -2.56, 0.0, HIGH),
            (-0.0, 2.0, 0.0, 0.0, NONE),
        ],
    );
}

#[test]
fn sapo() {
    let gate = Sapo::new(1.0, 1.05);
    // f and r·w from the table of docs/maths/vectors.md. A > 0 pulls up and A < 0 pushes down for every r;
    // nothing is a clip.
    check(
        gate,
        &[
            (1.0, 0.25, -1.283285203, -0.217894994, NONE),
            (1.0, 0.5, -1.510162675, -0.470007424, NONE),
            (1.0, 1.0, -2.0, -1.0, NONE),
            (1.0, 1.5, -2.489837325, -1.410022273, NONE),
            (-1.0, 0.5, 1.415938330, 0.467069912, NONE),
            (-1.0, 1.0, 1.904761905, 1.0, NONE),
        ],
    );
    check(gate, &[0.5, 1.0, 1.5].map(|r| (0.0, r, 0.0, 0.0, NONE)));
    // Large ratios fade: the gradient keeps its sign and goes to 0.
    for a in [1.0f32, -1.0] {
        let gradients = [1.5f32, 3.0, 10.0, 40.0].map(|r| alone(gate, a, (0.0, -r.ln())).coef[0]);
        assert!(gradients.iter().all(|g| (*g < 0.0) == (a > 0.0)), "{gradients:?}");
        let falling = |pair: &[f32]| pair[1].abs() < pair[0].abs();
        assert!(gradients.windows(2).all(falling), "{gradients:?}");
    }
}
