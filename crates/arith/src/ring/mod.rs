//! Convolution and matrix-vector product over wrapping 64-bit words: the server's whole work on a linear
//! layer in the online phase. Sums are mod `2^32` or `2^64`; the caller reduces them mod `2^l`. Timing
//! depends on shapes only.

mod conv;
mod spec;
mod word;

pub use conv::conv2d;
pub use spec::{ConvSpec, ShapeError};

#[cfg(test)]
mod tests;
