//! From per-token values to one number: the five aggregations with explicit denominators, the moments of a
//! batch, and sums that do not depend on order.

pub mod counts;
pub mod exact;
pub mod exact_sum;
pub mod fold;
pub mod moments;
pub mod rows;
pub mod scan;
pub mod totals;
pub mod weight;

pub use counts::BatchCounts;
pub use exact::{ExactMoments, ExactSum};
pub use exact_sum::ExactDigits;
pub use fold::FoldRows;
pub use moments::{FoldMoments, RowMoments};
pub use rows::Aggregate;
pub use scan::RowScan;
pub use totals::{LossTotals, MetricTotals};
pub use weight::{PerRow, Weight, WeightFrom};
