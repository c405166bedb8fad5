//! Importance ratios: how far the current policy has moved from the one that is being corrected for.

pub mod guard;
pub mod level;
pub mod token;

pub use guard::Guard;
pub use level::Level;
pub use token::TokenRatio;
