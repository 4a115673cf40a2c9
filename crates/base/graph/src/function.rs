//! Functions of one real number that sums and comparisons cannot compute. Back ends with look-up
//! tables support them; others refuse them.

use serde::{Deserialize, Serialize};

/// A function, applied to each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Function {
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `tanh(x)`.
    Tanh,
    /// `relu(x) - gelu(x)` with `gelu(x) = x (1 + erf(x / sqrt 2)) / 2`: even, and nearly zero
    /// beyond 4.
    GeluGap,
    /// `GeluGap` with the approximation of GELU by `tanh` that networks are trained with.
    GeluTanhGap,
    /// `relu(x) - x / (1 + exp(-x))`, the gap of SiLU (Swish): even, nearly zero beyond 10.
    SiluGap,
    /// `relu(x) - x * clip(x / 6 + 1/2, 0, 1)`, the gap of HardSwish: even, zero beyond 3.
    HardSwishGap,
    /// `relu(x) - elu(x)` with alpha 1: zero above zero, `1 - exp(x)` below.
    EluGap,
    /// `exp(x)`.
    Exp,
    /// `1 / x` for positive x.
    Reciprocal,
    /// `sqrt(x)` for x of at least 0.
    Sqrt,
    /// `1 / sqrt(x)` for positive x.
    Rsqrt,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 11] = [
        Self::Sigmoid,
        Self::Tanh,
        Self::GeluGap,
        Self::GeluTanhGap,
        Self::SiluGap,
        Self::HardSwishGap,
        Self::EluGap,
        Self::Exp,
        Self::Reciprocal,
        Self::Sqrt,
        Self::Rsqrt,
    ];

    /// Returns the function's value; infinite or NaN outside its domain.
    #[must_use]
    pub fn value(self, x: f64) -> f64 {
        match self {
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            // Uses the magnitude: relu(-x) - gelu(-x) = relu(x) - x - gelu(x) + x.
            Self::GeluGap => 0.5 * x.abs() * erfc(x.abs() * std::f64::consts::FRAC_1_SQRT_2),
            Self::GeluTanhGap => {
                let x = x.abs();
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                x / (1.0 + (2.0 * inner).exp())
            }
            Self::SiluGap => x.abs() / (1.0 + x.abs().exp()),
            Self::HardSwishGap => x.abs() * (3.0 - x.abs()).max(0.0) / 6.0,
            Self::EluGap => -x.min(0.0).exp_m1(),
            Self::Exp => x.exp(),
            Self::Reciprocal => 1.0 / x,
            Self::Sqrt => x.sqrt(),
            Self::Rsqrt => 1.0 / x.sqrt(),
        }
    }

    /// Returns the magnitude beyond which the function hardly changes, if any. Inputs may be
    /// clipped to it.
    #[must_use]
    pub fn settles(self) -> Option<f64> {
        match self {
            Self::Sigmoid => Some(8.0),
            Self::SiluGap => Some(10.0),
            Self::EluGap => Some(8.0),
            Self::HardSwishGap => Some(3.0),
            Self::Tanh | Self::GeluGap | Self::GeluTanhGap => Some(4.0),
            Self::Exp | Self::Reciprocal | Self::Sqrt | Self::Rsqrt => None,
        }
    }

    /// Whether the function's domain is the positive numbers (perhaps with zero).
    #[must_use]
    pub fn is_positive(self) -> bool {
        matches!(self, Self::Reciprocal | Self::Sqrt | Self::Rsqrt)
    }

    /// Whether the function is the difference between ReLU and another activation.
    #[must_use]
    pub fn is_gap(self) -> bool {
        matches!(self, Self::GeluGap | Self::GeluTanhGap | Self::SiluGap | Self::HardSwishGap | Self::EluGap)
    }

    /// Name in reports and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sigmoid => "Sigmoid",
            Self::Tanh => "Tanh",
            Self::GeluGap | Self::GeluTanhGap => "Gelu",
            Self::SiluGap => "SiLU",
            Self::HardSwishGap => "HardSwish",
            Self::EluGap => "Elu",
            Self::Exp => "Exp",
            Self::Reciprocal => "Reciprocal",
            Self::Sqrt => "Sqrt",
            Self::Rsqrt => "Rsqrt",
        }
    }
}

/// `1 - erf(x)` for x of at least 0: the series of erf below 2.5, a continued fraction above; off
/// by 1e-12.
fn erfc(x: f64) -> f64 {
    if x < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - std::f64::consts::FRAC_2_SQRT_PI * sum;
    }
    let fraction = (1..=60).rev().fold(x, |inner, k| x + 0.5 * f64::from(k) / inner);
    (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_tables() {
        for (x, wanted) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (2.6, 2.360_344_165_293_492e-4),
            (4.0, 1.541_725_790_028_002e-8),
        ] {
            assert!((erfc(x) - wanted).abs() < 1e-11, "erfc({x}) = {}", erfc(x));
        }
        for (x, gelu) in [(1.0, 0.841_344_746_068_542_9), (-1.0, -0.158_655_253_931_457_05)] {
            assert!((f64::max(x, 0.0) - Function::GeluGap.value(x) - gelu).abs() < 1e-9, "gelu({x})");
            assert!((Function::GeluTanhGap.value(x) - 0.158_808_009_391_5).abs() < 1e-6);
        }
        // silu(2) = 1.7615942, hardswish(-2) = -1/3, elu(-1) = -0.6321206.
        for (f, x, wanted) in [
            (Function::SiluGap, 2.0, 1.761_594_155_955_765),
            (Function::SiluGap, -2.0, -0.238_405_844_044_235),
            (Function::HardSwishGap, -2.0, -1.0 / 3.0),
            (Function::HardSwishGap, 4.0, 4.0),
            (Function::EluGap, -1.0, -0.632_120_558_828_557_7),
            (Function::EluGap, 3.0, 3.0),
        ] {
            assert!((f64::max(x, 0.0) - f.value(x) - wanted).abs() < 1e-12, "{f:?} of {x}");
        }
        assert_eq!(Function::Sigmoid.value(0.0), 0.5);
        assert_eq!((Function::Reciprocal.value(4.0), Function::Rsqrt.value(4.0)), (0.25, 0.5));
        for f in Function::ALL {
            // The stated point where the function settles.
            if let Some(end) = f.settles() {
                assert!((f.value(end) - f.value(100.0)).abs() < 2e-3, "{f:?}");
            }
        }
    }
}
