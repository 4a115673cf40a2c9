//! Ciphertexts, and the operations that a server does on them with a client's keys.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tacit_he::HeError;
use tacit_he::ckks::{Ciphertext, Context, Evaluator, KeySet};

use super::plans::{CkksBootstrapper, CkksPolynomial, CkksTransform};
use super::{Key, check_same, key};
use crate::error::{TacitError, to_python};
use crate::interrupt::brief;

/// A ciphertext with its level, scale and estimates.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksCiphertext {
    context: Arc<Context>,
    ciphertext: Arc<Ciphertext>,
}

impl CkksCiphertext {
    pub(super) fn new(context: Arc<Context>, ciphertext: Ciphertext) -> Self {
        Self { context, ciphertext: Arc::new(ciphertext) }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn shared(&self) -> Arc<Ciphertext> {
        self.ciphertext.clone()
    }
}

#[pymethods]
impl CkksCiphertext {
    /// Its level.
    #[getter]
    fn level(&self) -> usize {
        self.ciphertext.level()
    }

    /// Number of slots.
    #[getter]
    fn slots(&self) -> usize {
        self.ciphertext.slots()
    }

    /// log2 of its scale.
    #[getter]
    fn scale_bits(&self) -> f64 {
        self.ciphertext.scale().log2()
    }

    /// Bits that the estimated error leaves of values of size 1.
    #[getter]
    fn precision_bits(&self) -> f64 {
        self.ciphertext.precision()
    }

    /// Both halves, packed.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (context, ciphertext) = (self.context.clone(), self.shared());
        let bytes = brief(py, move || Ok(ciphertext.to_bytes(&context)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The same at a lower level.
    fn drop_to(&self, level: usize) -> PyResult<Self> {
        Ok(Self::new(self.context.clone(), self.ciphertext.drop_to(level).map_err(to_python)?))
    }
}

/// One client's switching keys, and the operations that need them.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct CkksKeys {
    context: Arc<Context>,
    keys: Arc<KeySet>,
}

impl CkksKeys {
    pub(super) fn new(context: Arc<Context>, keys: KeySet) -> Self {
        Self { context, keys: Arc::new(keys) }
    }

    /// Runs `work` on `a` without holding the interpreter.
    fn on(
        &self,
        py: Python<'_>,
        a: &CkksCiphertext,
        work: impl FnOnce(&Evaluator<'_>, &Ciphertext) -> Result<Ciphertext, HeError> + Send + 'static,
    ) -> PyResult<CkksCiphertext> {
        check_same("the ciphertext", &self.context, &a.context)?;
        let (context, keys, a) = (self.context.clone(), self.keys.clone(), a.shared());
        brief(py, move || {
            let result = work(&Evaluator::new(&context, &keys), &a).map_err(to_python)?;
            Ok(CkksCiphertext::new(context, result))
        })
    }

    /// As [`Self::on`], with a second ciphertext.
    fn on_both(
        &self,
        py: Python<'_>,
        a: &CkksCiphertext,
        b: &CkksCiphertext,
        work: impl FnOnce(&Evaluator<'_>, &Ciphertext, &Ciphertext) -> Result<Ciphertext, HeError> + Send + 'static,
    ) -> PyResult<CkksCiphertext> {
        check_same("the second ciphertext", &self.context, &b.context)?;
        let b = b.shared();
        self.on(py, a, move |evaluator, a| work(evaluator, a, &b))
    }
}

#[pymethods]
impl CkksKeys {
    /// The keys that are there.
    fn ids(&self) -> Vec<Key> {
        self.keys.ids().into_iter().map(key).collect()
    }

    /// Bytes of memory that they take.
    #[getter]
    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }

    /// Adds the slots of `a` and `b`.
    fn add(&self, py: Python<'_>, a: &CkksCiphertext, b: &CkksCiphertext) -> PyResult<CkksCiphertext> {
        self.on_both(py, a, b, |evaluator, a, b| evaluator.add(a, b))
    }

    /// Subtracts the slots of `b` from the slots of `a`.
    fn sub(&self, py: Python<'_>, a: &CkksCiphertext, b: &CkksCiphertext) -> PyResult<CkksCiphertext> {
        self.on_both(py, a, b, |evaluator, a, b| evaluator.sub(a, b))
    }

    /// Multiplies the slots of `a` and `b`; the product is one level lower.
    fn multiply(&self, py: Python<'_>, a: &CkksCiphertext, b: &CkksCiphertext) -> PyResult<CkksCiphertext> {
        self.on_both(py, a, b, |evaluator, a, b| evaluator.mul_rescale(a, b))
    }

    /// The same number added to every slot.
    fn add_number(&self, py: Python<'_>, a: &CkksCiphertext, value: f64) -> PyResult<CkksCiphertext> {
        if !value.is_finite() {
            return Err(TacitError::new_err(format!("{value} cannot be added: it is no number")));
        }
        self.on(py, a, move |evaluator, a| Ok(evaluator.add_real(a, value)))
    }

    /// Slots moved to the left by `steps`, round about.
    fn rotate(&self, py: Python<'_>, a: &CkksCiphertext, steps: i64) -> PyResult<CkksCiphertext> {
        self.on(py, a, move |evaluator, a| evaluator.rotate(a, steps))
    }

    /// Complex conjugates of the slots.
    fn conjugate(&self, py: Python<'_>, a: &CkksCiphertext) -> PyResult<CkksCiphertext> {
        self.on(py, a, |evaluator, a| evaluator.conjugate(a))
    }

    /// A linear transform, one level lower.
    fn transform(&self, py: Python<'_>, a: &CkksCiphertext, transform: &CkksTransform) -> PyResult<CkksCiphertext> {
        check_same("the transform", &self.context, &transform.context)?;
        let transform = transform.transform.clone();
        self.on(py, a, move |evaluator, a| evaluator.transform(a, &transform))
    }

    /// A polynomial of every slot.
    fn polynomial(&self, py: Python<'_>, a: &CkksCiphertext, polynomial: &CkksPolynomial) -> PyResult<CkksCiphertext> {
        let polynomial = polynomial.polynomial.clone();
        self.on(py, a, move |evaluator, a| evaluator.polynomial(a, &polynomial))
    }

    /// The same slots at the level that bootstrapping ends at.
    fn bootstrap(
        &self,
        py: Python<'_>,
        a: &CkksCiphertext,
        bootstrapper: &CkksBootstrapper,
    ) -> PyResult<CkksCiphertext> {
        check_same("the bootstrapper", &self.context, &bootstrapper.context)?;
        let boot = bootstrapper.boot.clone();
        self.on(py, a, move |evaluator, a| boot.bootstrap(evaluator, a))
    }
}
