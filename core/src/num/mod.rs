//! The scalar functions of the bit contract, one file each, built only from exactly rounded operations: no
//! platform libm.

mod arith;
mod div;
mod exp;
mod expm1;
mod expm1mx;
mod fma;
mod ln;
mod log1p;
mod nan;
mod select;
#[cfg(any(target_arch = "amdgpu", test))]
mod settle;
mod sigmoid;
mod sqrt;
mod storage;
mod tanh;
mod wide;

#[cfg(any(feature = "std", target_arch = "nvptx64", target_arch = "amdgpu"))]
pub use arith::Hard;
pub use arith::{Arith, Soft};
pub(crate) use div::reciprocal;
pub use div::{div, div64};
pub use exp::{EXP_IS_ZERO, exp, exp_nonpositive, exp_normal};
pub use expm1::{exp_and_rest, expm1, expm1_nonpositive};
pub use ln::{ln, ln_normal};
pub use nan::{canonical, canonical_nan, canonical64, max, min};
pub use select::count;
pub(crate) use select::select;
pub use storage::{Bf16, F16, Storage, Suffix};
pub use wide::{exp64, ln64};
pub use {expm1mx::expm1mx, fma::fma, log1p::log1p};
pub use {sigmoid::sigmoid, sqrt::sqrt, tanh::tanh};
