//! Packed ("varlen") batches as in FlashAttention: rows back to back, delimited by offsets.

pub mod flag;
mod mask;
mod offsets;
mod span;
mod view;

pub use mask::Mask;
pub use offsets::{Offsets, check_offsets};
pub use span::Span;
pub use view::{Cells, In, Out, Sink, Stream, sink};
