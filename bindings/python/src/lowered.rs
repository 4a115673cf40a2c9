//! The class `tacit._tacit.Lowered`: a model lowered for one back end; and the list of back ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use tacit_backends::check::useful_error_bound;
use tacit_backends::lowered::{self, Origin};
use tacit_backends::{
    Costs, DEFAULT, LOWER_BOUND, Numerics, Options, Plan, Preparation, Registry, ServerModel, Setup, Trust,
};
use tacit_client::wire;
use tacit_graph::Interface;
use tacit_store::seal::Kind;

use crate::error::to_python;
use crate::interrupt::brief;
use crate::{files, hex};

/// A server's model: public part and private part for one back end.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Lowered {
    model: Arc<dyn ServerModel>,
    origin: Origin,
    trust: Trust,
}

impl Lowered {
    pub(crate) fn new(model: Arc<dyn ServerModel>, origin: Origin, trust: Trust) -> Self {
        Self { model, origin, trust }
    }

    pub(crate) fn get(&self) -> &Arc<dyn ServerModel> {
        &self.model
    }

    pub(crate) fn backend_id(&self) -> &str {
        &self.origin.backend
    }
}

/// The public facts of a plan, the same at both parties, as JSON.
#[derive(Serialize)]
struct Facts<'a> {
    interface: &'a Interface,
    costs: Costs,
    numerics: Numerics,
    preparation: Preparation,
    setup: Setup,
    output_unit: Option<f64>,
}

pub fn plan_json(plan: &(impl Plan + ?Sized)) -> PyResult<String> {
    let facts = Facts {
        interface: plan.interface(),
        costs: plan.costs(),
        numerics: plan.numerics(),
        preparation: plan.preparation(),
        setup: plan.setup(),
        output_unit: plan.output_unit(),
    };
    serde_json::to_string(&facts).map_err(to_python)
}

/// The back ends of this module as JSON, in the registry's order.
#[pyfunction]
pub fn backends_json() -> String {
    let registry = Registry::standard();
    let backends = registry.iter().map(|b| json!({"id": b.id(), "about": b.about(), "trust": b.trust()}));
    Value::Array(backends.collect()).to_string()
}

/// The back end that is used if none is named.
#[pyfunction]
pub fn default_backend() -> &'static str {
    DEFAULT
}

/// The back end that no private one can beat.
#[pyfunction]
pub fn lower_bound() -> &'static str {
    LOWER_BOUND
}

#[pymethods]
impl Lowered {
    /// Reads a file made by `save` or `tacit model lower`, with the key that `seal` names if it is sealed.
    #[staticmethod]
    #[pyo3(signature = (path, seal))]
    fn load(py: Python<'_>, path: PathBuf, seal: Option<String>) -> PyResult<Self> {
        brief(py, move || {
            let bytes = files::read(&path, Kind::lowered(&path), seal.as_deref(), lowered::MAX_BYTES)?;
            let file = lowered::read(&bytes).map_err(to_python)?;
            let registry = Registry::standard();
            let backend = registry.get(&file.origin.backend).map_err(to_python)?;
            let model = file.load(&**backend).map_err(to_python)?;
            Ok(Self { model, origin: file.origin, trust: backend.trust() })
        })
    }

    /// Writes a file that `load` and `tacit serve` read, sealed with the key that `seal` names.
    #[pyo3(signature = (path, seal))]
    fn save(&self, py: Python<'_>, path: PathBuf, seal: Option<String>) -> PyResult<()> {
        let (model, origin) = (Arc::clone(&self.model), self.origin.clone());
        brief(py, move || {
            let bytes = lowered::write(&origin, &*model).map_err(to_python)?;
            files::write(&path, Kind::lowered(&path), seal.as_deref(), &bytes)
        })
    }

    /// Name of the back end.
    #[getter]
    fn backend(&self) -> &str {
        &self.origin.backend
    }

    /// Digest of the plan, which both parties compare; hexadecimal.
    #[getter]
    fn digest(&self) -> String {
        hex(&self.model.digest())
    }

    /// Digest of the public part, hexadecimal.
    #[getter]
    fn public_digest(&self) -> String {
        hex(&wire::public_digest(self.model.public_bytes()))
    }

    /// Digest of the model that it was made from, hexadecimal.
    #[getter]
    fn model_digest(&self) -> String {
        hex(&self.origin.model)
    }

    /// What the plan says, as JSON.
    fn plan_json(&self) -> PyResult<String> {
        plan_json(&*self.model)
    }

    /// The trust that the back end needs, and its options, as JSON.
    fn origin_json(&self) -> String {
        json!({"trust": self.trust, "options": self.origin.options}).to_string()
    }

    /// The public part as JSON.
    fn describe_json(&self) -> String {
        self.model.describe().to_string()
    }

    /// The report of the lowering as JSON; `None` for a lowering from a file, or if the back end
    /// reports nothing.
    fn report_json(&self) -> Option<String> {
        self.model.report().map(|report| report.json().to_string())
    }

    /// The report as text.
    fn report_text(&self) -> Option<String> {
        self.model.report().map(ToString::to_string)
    }

    /// The back end's own reference on one flat input, in the clear.
    fn reference<'py>(
        &self,
        py: Python<'py>,
        input: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (input, model) = (input.as_slice()?.to_vec(), Arc::clone(&self.model));
        Ok(brief(py, move || model.reference(&input).map_err(to_python))?.to_pyarray(py))
    }

    /// The outputs of the ONNX network for reference values: the step that the client computes at the end.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        reference: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(self.model.interface().finish(reference.as_slice()?).to_pyarray(py))
    }

    /// Largest difference of an honest answer from that reference.
    fn error_bound(&self, reference: PyReadonlyArray1<'_, f64>) -> PyResult<f64> {
        Ok(self.model.error_bound(reference.as_slice()?))
    }

    /// The same where it says something of these outputs.
    fn useful_error_bound(&self, reference: PyReadonlyArray1<'_, f64>) -> PyResult<Option<f64>> {
        Ok(useful_error_bound(&*self.model, reference.as_slice()?))
    }
}

pub fn to_options(options: &BTreeMap<String, String>) -> Options {
    let mut parsed = Options::default();
    options.iter().for_each(|(key, value)| parsed.set(key, value));
    parsed
}
