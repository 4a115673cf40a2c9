//! The class `tacit._tacit.Model`: a checked model with its weights.

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use tacit_graph::file::{self, ModelFile};
use tacit_graph::reference;

use crate::error::to_python;

/// A model as its owner holds it: public graph and private weights.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Model {
    pub(crate) file: Arc<ModelFile>,
}

#[pymethods]
impl Model {
    /// Reads the bytes of a `.tacit` file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let file = py.detach(|| file::read(bytes)).map_err(to_python)?;
        Ok(Self { file: Arc::new(file) })
    }

    /// The bytes of its `.tacit` file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let file = &self.file;
        let bytes = py.detach(|| file::write(file.graph.spec(), &file.weights, &file.summary)).map_err(to_python)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// BLAKE3 of the public section, hexadecimal.
    #[getter]
    fn digest(&self) -> String {
        self.file.digest.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The public specification as JSON.
    fn spec_json(&self) -> PyResult<String> {
        serde_json::to_string(self.file.graph.spec()).map_err(to_python)
    }

    /// What the importer found out, as JSON.
    fn summary_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.file.summary).map_err(to_python)
    }

    /// Runs the fixed-point reference on one flat input; returns the flat, dequantised output.
    fn reference<'py>(
        &self,
        py: Python<'py>,
        input: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let input = input.as_slice()?.to_vec();
        let file = &self.file;
        let output = py
            .detach(|| {
                let integers = reference::quantize_input(&file.graph, &input)?;
                let output = reference::run(&file.graph, &file.weights, &integers)?;
                Ok(reference::dequantize_output(&file.graph, &output))
            })
            .map_err(|e: tacit_graph::GraphError| to_python(e))?;
        Ok(output.to_pyarray(py))
    }
}
