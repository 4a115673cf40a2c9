//! The randomness of resharing, in both schemes.

use tacit_arith::prg::{Prg, PublicSeed};

/// The randomness of one answer.
pub struct ReshareStreams<'a> {
    /// Draws what hides the sum.
    pub secret: &'a mut Prg,
    /// The seed, known to both parties, of the answer's public half `c0'`.
    pub public: PublicSeed,
}
