/// How answers relate to the reference of the back end's own level: the fixed-point or the float network.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numerics {
    /// Answers equal the reference, bit for bit.
    Exact,
    /// A truncation may be `below` units lower and `above` units higher than the floor. A linear output may
    /// be off by `linear` units at its own (untruncated) scale. ReLU may give 0 for results below
    /// `2^relu_drop` units.
    UlpPerTruncation {
        /// Largest deficit of a truncation, in units of the last place.
        below: u32,
        /// Largest excess of a truncation, in units of the last place.
        above: u32,
        /// Largest error of a linear output before truncation.
        linear: u32,
        /// Bits that the sign test of ReLU drops.
        relu_drop: u32,
    },
    /// Errors are estimated, without proof, to be at most `relative` times the reference's largest magnitude.
    Approx {
        /// Share of the largest output's magnitude.
        relative: f64,
    },
}
