//! The class `tacit._tacit.Model`: a checked model with its weights.

use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tacit_graph::file::{self, ModelFile};
use tacit_graph::npy::Npy;
use tacit_graph::onnx::{self, ImportOptions};
use tacit_graph::{GraphError, OutputMode, reference};

use crate::error::to_python;

/// A model as its owner holds it: public graph and private weights.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Model {
    pub(crate) file: Arc<ModelFile>,
    /// What the import found out, as JSON and as text; not part of the file.
    report: Option<(String, String)>,
}

type Outputs<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>);

/// Calibration samples as numpy holds them: shape, flat values, whether they are raw pixels.
type Samples<'py> = (Vec<usize>, PyReadonlyArray1<'py, f32>, bool);

#[pymethods]
impl Model {
    /// Reads the bytes of a `.tacit` file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let file = py.detach(|| file::read(bytes)).map_err(to_python)?;
        Ok(Self { file: Arc::new(file), report: None })
    }

    /// Imports an ONNX file.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
    fn import_onnx<'py>(
        py: Python<'py>,
        bytes: &[u8],
        samples: Option<Samples<'py>>,
        name: String,
        top1: bool,
        range: Option<[f32; 2]>,
        pixels: (f32, Vec<f32>, Vec<f32>),
        bits: (Option<u32>, Option<u32>),
        max_samples: usize,
        seed: u64,
    ) -> PyResult<Self> {
        let npy = |(shape, data, is_bytes): Samples<'py>| {
            Ok::<_, PyErr>(Npy { shape, data: data.as_slice()?.to_vec(), is_bytes })
        };
        let options = ImportOptions {
            name,
            calibration: samples.map(npy).transpose()?,
            max_samples,
            pixel_scale: pixels.0,
            mean: pixels.1,
            std: pixels.2,
            range,
            output_mode: if top1 { OutputMode::Top1 } else { OutputMode::Logits },
            frac_bits: bits.0,
            weight_bits: bits.1,
            seed,
            ..ImportOptions::default()
        };
        py.detach(|| {
            let imported = onnx::import(bytes, &options).map_err(to_python)?;
            let file = file::read(&imported.to_file().map_err(to_python)?).map_err(to_python)?;
            let json = serde_json::to_string(&imported.report).map_err(to_python)?;
            Ok(Self { file: Arc::new(file), report: Some((json, imported.report.to_string())) })
        })
    }

    /// The import's report as JSON; none for a model from a file.
    fn report_json(&self) -> Option<String> {
        self.report.as_ref().map(|r| r.0.clone())
    }

    /// The import's report as text; none for a model from a file.
    fn report_text(&self) -> Option<String> {
        self.report.as_ref().map(|r| r.1.clone())
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

    /// The integers of the input node for a flat real-valued input.
    fn quantize<'py>(&self, py: Python<'py>, input: PyReadonlyArray1<'py, f32>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(reference::quantize_input(&self.file.graph, input.as_slice()?).map_err(to_python)?.to_pyarray(py))
    }

    /// Runs the fixed-point reference on one flat input; returns the flat output as real numbers and as integers.
    fn reference<'py>(&self, py: Python<'py>, input: PyReadonlyArray1<'py, f32>) -> PyResult<Outputs<'py>> {
        let input = input.as_slice()?.to_vec();
        let file = &self.file;
        let (values, integers) = py
            .detach(|| {
                let integers = reference::quantize_input(&file.graph, &input)?;
                let output = reference::run(&file.graph, &file.weights, &integers)?;
                Ok((reference::dequantize_output(&file.graph, &output), output))
            })
            .map_err(|e: GraphError| to_python(e))?;
        Ok((values.to_pyarray(py), integers.to_pyarray(py)))
    }
}
