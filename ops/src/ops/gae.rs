//! Generalised advantage estimation.

use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::advantage::Gae;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::require;

/// How the sequences of a batch end, and the critic's value after their last token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ends<'a> {
    /// Every sequence terminated; the value after the last token is 0.
    Terminated,
    /// Given per sequence; each is either terminated or truncated.
    Flags {
        /// Non-zero: the sequence terminated, `[S]`.
        terminated: &'a [u8],
        /// Non-zero: the sequence was truncated (length limit, partial rollout) and would have continued,
        /// `[S]`.
        truncated: &'a [u8],
        /// The critic's value of the continuation, `[S]`; read where truncated.
        bootstrap: &'a [f32],
    },
}

/// The λ of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lambda {
    /// The same λ for all sequences.
    Fixed(f64),
    /// VAPO: 1 − 1/(α L), at least 0, for L live tokens.
    LengthAdaptive {
        /// The paper's α, 0.05 there.
        alpha: f64,
    },
}

/// The rewards and values that [`gae`] reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaeInput<'a> {
    /// Rewards per token, `[N]`.
    pub rewards: &'a [f32],
    /// The critic's values, `[N]`.
    pub values: &'a [f32],
    /// How the sequences end.
    pub ends: Ends<'a>,
}

/// The discount and λ of [`gae`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaeParams {
    /// Discount per live token.
    pub gamma: f64,
    /// λ of the advantages.
    pub lambda: Lambda,
    /// λ of the returns, if the critic has its own (1 in VAPO); `None` = that of the advantages.
    pub lambda_critic: Option<Lambda>,
}

/// The advantages and returns of [`gae`]; the buffers are reused by the next call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GaeOutput {
    /// Advantages before whitening, `[N]`; a masked token has that of the next live token.
    pub advantage: Vec<f32>,
    /// The critic's regression targets, `[N]`; a masked token has that of the next live token.
    pub returns: Vec<f32>,
    alarm: Vec<u32>,
}

/// Computes GAE advantages and returns into `out`; formula: [`lockstep_core::advantage::gae`].
///
/// Errors: lengths that disagree; a live reward or value, or a bootstrap value of a truncated sequence, that
/// is not finite (index); a sequence that is both terminated and truncated, or neither (index); a gamma or λ
/// outside 0..=1; a result that overflows (index). `out` is unspecified after an error.
///
/// ```
/// use lockstep_ops::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 3], &[0, 1], None)?;
/// let input = GaeInput { rewards: &[0.0, 0.0, 1.0], values: &[0.2, 0.4, 0.7], ends: Ends::Terminated };
/// let params = GaeParams { gamma: 1.0, lambda: Lambda::Fixed(0.95), lambda_critic: None };
/// let mut out = GaeOutput::default();
/// gae(&Device::cpu(), &batch, &input, &params, &mut out)?;
/// assert!((out.advantage[0] - 0.75575).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "generalized advantage estimation")]
pub fn gae(
    device: &Device,
    batch: &Batch<'_>,
    input: &GaeInput<'_>,
    params: &GaeParams,
    out: &mut GaeOutput,
) -> Result<(), Error> {
    out.advantage.resize(batch.tokens(), 0.0);
    out.returns.resize(batch.tokens(), 0.0);
    let GaeOutput { advantage, returns, alarm } = out;
    match params.lambda_critic {
        None => run(device, batch, input, params, [Some(advantage), Some(returns)], alarm),
        Some(lambda) => {
            run(device, batch, input, params, [Some(advantage), None], alarm)?;
            run(device, batch, input, &GaeParams { lambda, ..*params }, [None, Some(returns)], alarm)
        }
    }
}

/// Computes λ-returns `[N]`: G_t = r_t + γ ((1 − λ) V_{t'} + λ G_{t'}), where t' is the next live token after
/// t.
///
/// Errors: those of [`gae`].
///
/// ```
/// use lockstep_ops::ops::gae::{Ends, GaeInput, Lambda, td_lambda};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 3], &[0, 1], None)?;
/// let input = GaeInput { rewards: &[0.0, 0.0, 1.0], values: &[0.25, 0.5, 0.75], ends: Ends::Terminated };
/// let monte_carlo = td_lambda(&Device::cpu(), &batch, &input, 0.5, Lambda::Fixed(1.0))?;
/// assert_eq!(monte_carlo, [0.25, 0.5, 1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "lambda return")]
pub fn td_lambda(
    device: &Device,
    batch: &Batch<'_>,
    input: &GaeInput<'_>,
    gamma: f64,
    lambda: Lambda,
) -> Result<Vec<f32>, Error> {
    let params = GaeParams { gamma, lambda, lambda_critic: None };
    let (mut returns, mut alarm) = (vec![0.0; batch.tokens()], Vec::new());
    run(device, batch, input, &params, [None, Some(&mut returns)], &mut alarm)?;
    Ok(returns)
}

fn run(
    device: &Device,
    batch: &Batch<'_>,
    input: &GaeInput<'_>,
    params: &GaeParams,
    [mut advantage, mut returns]: [Option<&mut Vec<f32>>; 2],
    alarm: &mut Vec<u32>,
) -> Result<(), Error> {
    let GaeInput { rewards, values, ends } = *input;
    let arguments = [Checked::finite("token rewards", rewards), Checked::finite("values", values)];
    locate::lengths(batch, &arguments)?;
    let (truncated, bootstrap) = ends.check(batch)?;
    let (lambda, length_alpha) = match params.lambda {
        Lambda::Fixed(lambda) => (lambda, None),
        Lambda::LengthAdaptive { alpha } => (0.0, Some(alpha)),
    };
    alarm.resize(batch.sequences(), 0);
    device.run(&Gae {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        rewards: In::new(rewards),
        values: In::new(values),
        bootstrap: bootstrap.map(In::new),
        truncated: Mask::new(truncated),
        gamma: params.gamma,
        lambda,
        length_alpha,
        advantage: advantage.as_mut().map(|values| Out::new(values)),
        returns: returns.as_mut().map(|values| Out::new(values)),
        row_alarm: Out::new(alarm),
    })?;
    let results = [("advantage", advantage), ("returns", returns)];
    let results =
        results.each_ref().map(|(name, values)| Checked::finite(name, values.as_deref().map(Vec::as_slice)));
    locate::check(batch, alarm, &arguments, &results, "rewards and values are too large for f32")
}

/// The truncation flags and the bootstrap values, `[S]` each; `None` if every sequence terminated.
type Behind<'a> = (Option<&'a [u8]>, Option<&'a [f32]>);

impl<'a> Ends<'a> {
    /// Errors: wrong lengths; a sequence that is both terminated and truncated, or neither; a bootstrap value
    /// of a truncated sequence that is not finite.
    pub(super) fn check(self, batch: &Batch<'_>) -> Result<Behind<'a>, Error> {
        let Ends::Flags { terminated, truncated, bootstrap } = self else { return Ok((None, None)) };
        batch.check_sequences("terminated", terminated.len())?;
        batch.check_sequences("truncated", truncated.len())?;
        batch.check_sequences("bootstrap", bootstrap.len())?;
        self.check_flags()?;
        Ok((Some(truncated), Some(bootstrap)))
    }

    /// Errors: a sequence that is both terminated and truncated, or neither; a bootstrap value of a truncated
    /// sequence that is not finite.
    pub fn check_flags(self) -> Result<(), Error> {
        let Ends::Flags { terminated, truncated, bootstrap } = self else { return Ok(()) };
        for (index, ((terminated, truncated), bootstrap)) in
            terminated.iter().zip(truncated).zip(bootstrap).enumerate()
        {
            let (argument, expected, got) = match (*terminated != 0, *truncated != 0) {
                (true, true) => ("truncated", "0, because the sequence is terminated", (*truncated).into()),
                (false, false) => {
                    ("truncated", "1, because the sequence is not terminated", (*truncated).into())
                }
                (false, true) if !bootstrap.is_finite() => {
                    ("bootstrap", "a finite number, because the sequence is truncated", *bootstrap)
                }
                _ => continue,
            };
            return Err(require::value(argument, Some(index), expected, got).into());
        }
        Ok(())
    }
}
