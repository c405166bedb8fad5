//! From per-token losses to one number: the five aggregations, with explicit denominators.

pub mod fold;
pub mod rows;
pub mod scan;
pub mod weight;

pub use fold::FoldRows;
pub use rows::Aggregate;
pub use scan::RowScan;
pub use weight::{PerRow, Weight};
