//! Selection of the n largest of a batch, exact and parallel, with ties going to the lowest index: a chain of
//! launches without host synchronisation.
//!
//! ```text
//! selection_key                         keys [N] u32, 0 for no candidate
//! 11 × (digit_counts, narrow_digits)    the n-th largest key, 3 bits at a time from the top,
//!                                       and the ties before each row
//! select_top                            one of two values for each element, depending on whether it is
//!                                       among the n
//! ```
//!
//! Counts are exact integers, so nothing depends on the order of addition. All arrays stay on the device.

pub mod covariance;
pub mod digits;
pub mod key;
pub mod top;

pub use covariance::Covariance;
pub use digits::{DIGITS, DigitCounts, NarrowDigits, SHIFTS};
pub use key::{ClipTest, Order, SelectionKey};
pub use top::SelectTop;
