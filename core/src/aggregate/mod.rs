//! From per-token values to a number: the five aggregations, with explicit denominators, and the moments of a batch.

pub mod fold;
pub mod moments;
pub mod rows;
pub mod scan;
pub mod weight;

pub use fold::FoldRows;
pub use moments::{FoldMoments, RowMoments};
pub use rows::Aggregate;
pub use scan::RowScan;
pub use weight::{PerRow, Weight};
