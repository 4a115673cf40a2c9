//! Objects that are made before encryption: polynomials, linear transforms, bootstrapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::json;
use tacit_he::ckks::{
    Basis, BootstrapSpec, Bootstrapper, Complex, Context, Encoder, LinearTransform, MESSAGE_RATIO_BITS, Method,
    Polynomial, TransformSpec,
};

use super::{CkksContext, Key, check_level, complex, key};
use crate::error::{TacitError, to_python};
use crate::interrupt::brief;

fn method(chained: bool) -> Method {
    if chained { Method::Chained } else { Method::Hoisted }
}

/// A polynomial with real coefficients.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksPolynomial {
    pub(super) polynomial: Arc<Polynomial>,
}

#[pymethods]
impl CkksPolynomial {
    /// By its coefficients, from the constant, of powers or of Chebyshev polynomials.
    #[new]
    fn new(coefficients: PyReadonlyArray1<'_, f64>, chebyshev: bool) -> PyResult<Self> {
        let basis = if chebyshev { Basis::Chebyshev } else { Basis::Power };
        let polynomial = Polynomial::new(basis, coefficients.as_slice()?).map_err(to_python)?;
        Ok(Self { polynomial: Arc::new(polynomial) })
    }

    /// Levels that it takes.
    #[getter]
    fn depth(&self) -> usize {
        self.polynomial.depth()
    }

    /// Its value at `x`.
    fn at(&self, x: f64) -> f64 {
        self.polynomial.at(x)
    }
}

/// A linear transform of the slots at one level.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksTransform {
    pub(super) context: Arc<Context>,
    pub(super) transform: Arc<LinearTransform>,
}

#[pymethods]
impl CkksTransform {
    /// The transform with these diagonals (pairs of floats) by their offsets, whose result is one level lower
    /// and has that level's scale.
    #[new]
    fn new(
        py: Python<'_>,
        context: &CkksContext,
        diagonals: BTreeMap<i64, PyReadonlyArray1<'_, f64>>,
        level: usize,
        chained: bool,
    ) -> PyResult<Self> {
        let context = context.context.clone();
        check_level(&context, level)?;
        if level == 1 {
            return Err(TacitError::new_err("a transform takes a level, and level 1 is the last"));
        }
        let values =
            |(&offset, values): (&i64, &PyReadonlyArray1<'_, f64>)| Ok((offset, complex(values.as_slice()?).to_vec()));
        let diagonals = diagonals.iter().map(values).collect::<PyResult<BTreeMap<i64, Vec<Complex>>>>()?;
        brief(py, move || {
            let slots = diagonals.values().next().map_or(0, Vec::len);
            let encoder = Encoder::new(&context, slots).map_err(to_python)?;
            let parameters = context.parameters();
            let [scale, below] = [level, level - 1].map(|level| parameters.scale(level));
            let spec = TransformSpec {
                diagonals: &diagonals,
                level,
                scale: below.times_prime(parameters.primes()[level - 1]).over(scale),
                method: method(chained),
                cache_bytes: 0,
            };
            let transform = LinearTransform::new(&encoder, &spec).map_err(to_python)?;
            Ok(Self { context, transform: Arc::new(transform) })
        })
    }

    /// The keys it needs.
    fn keys(&self) -> Vec<Key> {
        self.transform.plan().keys(&self.context).into_iter().map(key).collect()
    }
}

/// Bootstrapping of real slots.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksBootstrapper {
    pub(super) context: Arc<Context>,
    pub(super) boot: Arc<Bootstrapper>,
}

#[pymethods]
impl CkksBootstrapper {
    /// Tables for `slots` slots of size `2^(MESSAGE_RATIO_BITS - message_ratio_bits)` or less.
    #[new]
    fn new(
        py: Python<'_>,
        context: &CkksContext,
        slots: usize,
        stages: (usize, usize),
        message_ratio_bits: Option<u32>,
        arcsine: bool,
        chained: bool,
    ) -> PyResult<Self> {
        let (slot_to_coeff, coeff_to_slot) = stages;
        let context = context.context.clone();
        let spec = BootstrapSpec {
            slots,
            slot_to_coeff,
            coeff_to_slot,
            message_ratio_bits: message_ratio_bits.unwrap_or(MESSAGE_RATIO_BITS),
            arcsine,
            method: method(chained),
            cache_bytes: 0,
        };
        brief(py, move || {
            let boot = Bootstrapper::new(&context, &spec).map_err(to_python)?;
            Ok(Self { context, boot: Arc::new(boot) })
        })
    }

    /// The keys it needs.
    fn keys(&self) -> Vec<Key> {
        self.boot.keys().into_iter().map(key).collect()
    }

    /// Levels and the probability of failure, as JSON.
    fn describe_json(&self) -> String {
        let boot = &self.boot;
        json!({
            "level_in": boot.level_in(),
            "level_out": boot.level_out(),
            "depth": boot.depth(),
            "failure_log2": boot.failure_log2(),
        })
        .to_string()
    }
}
