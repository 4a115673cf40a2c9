//! Functions of one real number that sums and comparisons cannot compute: a row each. Back ends with
//! look-up tables support them; others refuse them.

use serde::{Deserialize, Serialize};

/// The shape of a function around zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symmetry {
    /// `f(-x) = f(x)`.
    Even,
    /// Zero for all positive x.
    ZeroAbove,
    /// Neither.
    None,
}

struct Row {
    name: &'static str,
    /// The ONNX operator that this function alone computes, after a ReLU if it is a residual.
    onnx: Option<&'static str>,
    value: fn(f64) -> f64,
    saturates_at: Option<f64>,
    is_positive: bool,
    residual: Option<Symmetry>,
}

/// The row of a function without special properties: the defaults of the rows below.
const PLAIN: Row = Row { name: "", onnx: None, value: |x| x, saturates_at: None, is_positive: false, residual: None };

/// Defines the functions, one a row. Files name a function by its place: new rows come last.
macro_rules! functions {
    ($($(#[$doc:meta])+ $function:ident: $row:expr;)+) => {
        /// A function, applied to each element.
        ///
        /// The residual of an activation is `relu(x) - activation(x)`: small, and constant where it
        /// saturates, so that a table of it is short. The activation is a ReLU minus its residual.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Function {
            $($(#[$doc])+ $function,)+
        }

        impl Function {
            /// All functions.
            pub const ALL: &[Self] = &[$(Self::$function),+];

            const ROWS: &[Row] = &[$($row),+];

            /// Unique name of the function; [`name`](Self::name) may be shared by two residuals of one
            /// activation.
            #[must_use]
            pub fn id(self) -> &'static str {
                const IDS: &[&str] = &[$(stringify!($function)),+];
                IDS[self as usize]
            }
        }
    };
}

functions! {
    /// `1 / (1 + exp(-x))`.
    Sigmoid: Row { name: "Sigmoid", value: |x| 1.0 / (1.0 + (-x).exp()), saturates_at: Some(8.0), ..PLAIN };
    /// `tanh(x)`.
    Tanh: Row { name: "Tanh", value: f64::tanh, saturates_at: Some(4.0), ..PLAIN };
    /// The residual of GELU, `x (1 + erf(x / sqrt 2)) / 2`.
    GeluResidual: Row {
        name: "Gelu", value: gelu_residual, saturates_at: Some(4.0), residual: Some(Symmetry::Even), ..PLAIN
    };
    /// The residual of GELU by `tanh`, with which networks are trained.
    GeluTanhResidual: Row {
        name: "Gelu", value: gelu_tanh_residual, saturates_at: Some(4.0), residual: Some(Symmetry::Even), ..PLAIN
    };
    /// The residual of SiLU (Swish), `x / (1 + exp(-x))`.
    SiluResidual: Row {
        name: "SiLU", value: |x| x.abs() / (1.0 + x.abs().exp()), saturates_at: Some(10.0),
        residual: Some(Symmetry::Even), ..PLAIN
    };
    /// The residual of HardSwish, `x * clip(x / 6 + 1/2, 0, 1)`.
    HardSwishResidual: Row {
        name: "HardSwish", onnx: Some("HardSwish"), value: |x| x.abs() * (3.0 - x.abs()).max(0.0) / 6.0,
        saturates_at: Some(3.0), residual: Some(Symmetry::Even), ..PLAIN
    };
    /// The residual of ELU with alpha 1.
    EluResidual: Row {
        name: "Elu", value: |x| -x.min(0.0).exp_m1(), saturates_at: Some(8.0),
        residual: Some(Symmetry::ZeroAbove), ..PLAIN
    };
    /// `exp(x)`.
    Exp: Row { name: "Exp", onnx: Some("Exp"), value: f64::exp, ..PLAIN };
    /// `1 / x` for positive x.
    Reciprocal: Row { name: "Reciprocal", value: f64::recip, is_positive: true, ..PLAIN };
    /// `sqrt(x)` for x of at least 0.
    Sqrt: Row { name: "Sqrt", onnx: Some("Sqrt"), value: f64::sqrt, is_positive: true, ..PLAIN };
    /// `1 / sqrt(x)` for positive x.
    Rsqrt: Row { name: "Rsqrt", value: |x| 1.0 / x.sqrt(), is_positive: true, ..PLAIN };
    /// The residual of Softplus, `ln(1 + exp(x))`.
    SoftplusResidual: Row {
        name: "Softplus", onnx: Some("Softplus"), value: |x| -(-x.abs()).exp().ln_1p(), saturates_at: Some(10.0),
        residual: Some(Symmetry::Even), ..PLAIN
    };
    /// The residual of Mish, `x tanh(ln(1 + exp(x)))`.
    MishResidual: Row {
        name: "Mish", onnx: Some("Mish"), value: |x| x.max(0.0) - x * softplus(x).tanh(), saturates_at: Some(10.0),
        residual: Some(Symmetry::None), ..PLAIN
    };
}

impl Function {
    fn row(self) -> &'static Row {
        &Self::ROWS[self as usize]
    }

    /// Returns the function that computes this ONNX operator, after a ReLU if it is a residual.
    #[must_use]
    pub fn from_onnx(operator: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.row().onnx == Some(operator))
    }

    /// Returns the ONNX operator of [`from_onnx`](Self::from_onnx), if there is one.
    #[must_use]
    pub fn onnx(self) -> Option<&'static str> {
        self.row().onnx
    }

    /// Returns the function's value; infinite or NaN outside its domain.
    #[must_use]
    pub fn value(self, x: f64) -> f64 {
        (self.row().value)(x)
    }

    /// Returns the magnitude beyond which the function hardly changes, if any. Inputs may be
    /// clipped to it.
    #[must_use]
    pub fn saturates_at(self) -> Option<f64> {
        self.row().saturates_at
    }

    /// Whether the function's domain is the positive numbers (perhaps with zero).
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.row().is_positive
    }

    /// Returns the symmetry of a function that is the residual of an activation; `None` for
    /// another function.
    #[must_use]
    pub fn residual_symmetry(self) -> Option<Symmetry> {
        self.row().residual
    }

    /// Name in reports and errors; of a residual, the name of its activation.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

/// `relu(x) - gelu(x)`. The magnitude stands for x: `relu(-x) - gelu(-x) = relu(x) - x - gelu(x) + x`.
fn gelu_residual(x: f64) -> f64 {
    0.5 * x.abs() * erfc(x.abs() * std::f64::consts::FRAC_1_SQRT_2)
}

fn gelu_tanh_residual(x: f64) -> f64 {
    let x = x.abs();
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    x / (1.0 + (2.0 * inner).exp())
}

/// `ln(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 - erf(x)` for x of at least 0: the series of erf below 2.5, a continued fraction above; off
/// by 1e-12.
#[must_use]
pub fn erfc(x: f64) -> f64 {
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
    fn functions_equal_tabulated_values() {
        for (x, expected) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (2.6, 2.360_344_165_293_492e-4),
            (4.0, 1.541_725_790_028_002e-8),
        ] {
            assert!((erfc(x) - expected).abs() < 1e-11, "erfc({x}) = {}", erfc(x));
        }
        for (x, gelu) in [(1.0, 0.841_344_746_068_542_9), (-1.0, -0.158_655_253_931_457_05)] {
            assert!((f64::max(x, 0.0) - Function::GeluResidual.value(x) - gelu).abs() < 1e-9, "gelu({x})");
            assert!((Function::GeluTanhResidual.value(x) - 0.158_808_009_391_5).abs() < 1e-6);
        }
        // silu(2) = 1.7615942, hardswish(-2) = -1/3, elu(-1) = -0.6321206.
        for (f, x, expected) in [
            (Function::SiluResidual, 2.0, 1.761_594_155_955_765),
            (Function::SiluResidual, -2.0, -0.238_405_844_044_235),
            (Function::HardSwishResidual, -2.0, -1.0 / 3.0),
            (Function::HardSwishResidual, 4.0, 4.0),
            (Function::EluResidual, -1.0, -0.632_120_558_828_557_7),
            (Function::EluResidual, 3.0, 3.0),
            (Function::SoftplusResidual, 1.0, 1.313_261_687_518_222_8),
            (Function::SoftplusResidual, -2.0, 0.126_928_011_042_972_5),
            (Function::MishResidual, 1.0, 0.865_098_388_267_310_3),
            (Function::MishResidual, -1.0, -0.303_401_461_374_108_2),
        ] {
            assert!((f64::max(x, 0.0) - f.value(x) - expected).abs() < 1e-12, "{f:?} of {x}");
        }
        assert_eq!(Function::Sigmoid.value(0.0), 0.5);
        assert_eq!((Function::Reciprocal.value(4.0), Function::Rsqrt.value(4.0)), (0.25, 0.5));
        for &f in Function::ALL {
            if let Some(end) = f.saturates_at() {
                for sign in [1.0, -1.0] {
                    assert!((f.value(sign * end) - f.value(sign * 100.0)).abs() < 2e-3, "{f:?}");
                }
            }
            for x in (1..100).map(|i| f64::from(i) * 0.1) {
                match f.residual_symmetry() {
                    Some(Symmetry::Even) => assert_eq!(f.value(x), f.value(-x), "{f:?}"),
                    Some(Symmetry::ZeroAbove) => assert_eq!(f.value(x), 0.0, "{f:?}"),
                    Some(Symmetry::None) | None => {}
                }
            }
        }
    }
}
