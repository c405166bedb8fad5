//! The few hardware-dependent operations, chosen by type: each has one exact result, so the choice changes
//! speed and never a bit.

/// Operations that IEEE-754 defines exactly (one rounding) but whose fastest form depends on the machine.
///
/// Kernels get one through [`Team::Arith`](crate::team::Team::Arith) and pass it on to the scalar functions:
/// `num::exp::<T::Arith>(x)`.
pub trait Arith: Copy + Send + Sync + 'static {
    /// a·b + c with one rounding, to nearest, ties to even.
    fn fma(a: f32, b: f32, c: f32) -> f32;
    /// √x, correctly rounded.
    fn sqrt(x: f32) -> f32;
    /// √x in binary64, correctly rounded.
    fn sqrt64(x: f64) -> f64;
}
