//! RMSNorm.

use anyhow::Result;
use candle_core::{D, Tensor};

const EPS: f64 = 1e-6;

/// x / rms(x) times a learned gain.
pub(super) struct RmsNorm(Tensor);

impl RmsNorm {
    pub(super) fn new(gain: Tensor) -> Self {
        Self(gain)
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rms = (x.sqr()?.mean_keepdim(D::Minus1)? + EPS)?.sqrt()?;
        Ok(x.broadcast_div(&rms)?.broadcast_mul(&self.0)?)
    }
}
