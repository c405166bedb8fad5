//! Generalised advantage estimation.

use super::locate::{self, Checked, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Gae;
use lockstep_core::ragged::{In, Mask, Out};

/// How the sequences of a batch end: what the critic says of the time behind their last token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ends<'a> {
    /// Every sequence came to its own end; nothing follows, value 0.
    Terminated,
    /// Per sequence. Each is one of the two.
    Flags {
        /// Not 0: it came to its own end, `[S]`.
        terminated: &'a [u8],
        /// Not 0: it was cut (length limit, partial rollout) and would have gone on, `[S]`.
        truncated: &'a [u8],
        /// The critic's value of what would follow, `[S]`; looked at where truncated.
        bootstrap: &'a [f32],
    },
}

/// λ of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lambda {
    /// The same for all.
    Fixed(f64),
    /// VAPO: 1 − 1/(α L), at least 0, for L live tokens.
    LengthAdaptive {
        /// 0.05 in the paper.
        alpha: f64,
    },
}

/// Rewards and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaeInput<'a> {
    /// Per token, `[N]`.
    pub rewards: &'a [f32],
    /// The critic's, `[N]`.
    pub values: &'a [f32],
    /// What is behind the last tokens.
    pub ends: Ends<'a>,
}

/// Discount and λ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaeParams {
    /// Discount of one live token.
    pub gamma: f64,
    /// Of the advantages.
    pub lambda: Lambda,
    /// Of the returns, where the critic has its own (VAPO: 1); absent = the same.
    pub lambda_critic: Option<Lambda>,
}

/// Advantages and returns, with buffers that the next call reuses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GaeOutput {
    /// Raw, `[N]`; a masked token has that of the live token after it.
    pub advantage: Vec<f32>,
    /// What the critic learns, `[N]`; a masked token has that of the live token after it.
    pub returns: Vec<f32>,
    alarm: Vec<u32>,
}

/// Advantages and returns into `out`; formula: [`lockstep_core::advantage::gae`].
///
/// Errors: lengths that disagree; a live reward or value, or a bootstrap that counts, that is not finite
/// (index); a sequence that is both terminated and truncated, or neither (index); a gamma or λ outside 0 to
/// 1; a result that overflows (index). `out` is unspecified after an error.
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

/// λ-returns `[N]`: G_t = r_t + γ ((1 − λ) V_{t'} + λ G_{t'}), t' the live token after t. Errors: those of
/// [`gae`].
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
    batch.check_tokens("token rewards", rewards.len())?;
    batch.check_tokens("values", values.len())?;
    let (truncated, bootstrap) = ends.check(batch)?;
    let (lambda, length_alpha) = match params.lambda {
        Lambda::Fixed(lambda) => (lambda, None),
        Lambda::LengthAdaptive { alpha } => (0.0, Some(alpha)),
    };
    alarm.resize(batch.sequences(), 0);
    let kernel = Gae {
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
    };
    kernel.check()?;
    device.run(&kernel)?;
    let arguments = [
        Checked { name: "token rewards", domain: Domain::Finite, values: rewards },
        Checked { name: "values", domain: Domain::Finite, values },
    ];
    let results = [("advantage", advantage), ("returns", returns)];
    let results: Vec<Checked<'_>> = results
        .iter()
        .filter_map(|(name, values)| Some(Checked { name, domain: Domain::Finite, values: values.as_ref()? }))
        .collect();
    locate::check(batch, alarm, &arguments, &results, "rewards and values are too large for f32")
}

/// Which sequences are truncated, and what follows them; `None`: none.
type Behind<'a> = (Option<&'a [u8]>, Option<&'a [f32]>);

impl<'a> Ends<'a> {
    /// Errors: lengths; a sequence that ends both ways or in none; a bootstrap that counts and is not finite.
    pub(super) fn check(self, batch: &Batch<'_>) -> Result<Behind<'a>, Error> {
        let Ends::Flags { terminated, truncated, bootstrap } = self else { return Ok((None, None)) };
        batch.check_sequences("terminated", terminated.len())?;
        batch.check_sequences("truncated", truncated.len())?;
        batch.check_sequences("bootstrap", bootstrap.len())?;
        for index in 0..batch.sequences() {
            let expected = match (terminated[index] != 0, truncated[index] != 0) {
                (true, true) => "not both: the sequence is terminated too",
                (false, false) => "one of both: the sequence is not terminated either",
                (false, true) if !bootstrap[index].is_finite() => {
                    let (argument, expected, got) =
                        ("bootstrap", "a finite number where truncated", bootstrap[index].into());
                    return Err(Argument::Value { argument, index: Some(index), expected, got }.into());
                }
                _ => continue,
            };
            let got = truncated[index].into();
            return Err(Argument::Value { argument: "truncated", index: Some(index), expected, got }.into());
        }
        Ok((Some(truncated), Some(bootstrap)))
    }
}
