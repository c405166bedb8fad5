//! The team that owns a row, and the order of its reductions. This is the only place that defines an order of
//! operations over a row.

pub mod fold;
pub mod order;
mod pairs;
pub mod recur;
mod rows;
pub mod scan;
mod team;

pub use pairs::{PAIRED, two_largest};
pub use recur::{Recurrence, Step};
pub use rows::{put_rows, take_rows};
pub use scan::{AddF64, Affine, AffineF64, Direction, MinF32, Semigroup};
pub use team::{
    Element, Key, Lane, MAX_LARGEST, Near, Number, PICKS, Picked, PickedRows, ROWS, Swept, Team, Terms,
};
