//! The class `tacit._tacit.Model`: the owner's float model, before any back end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use tacit_backends::Registry;
use tacit_backends::check::check;
use tacit_backends::lowered::Origin;
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::npy::Npy;
use tacit_graph::{Interface, Interval, OutputMode, Units, file};
use tacit_store::seal::Kind;
use zeroize::Zeroizing;

use crate::error::to_python;
use crate::interrupt::{Stop, brief, interruptible};
use crate::lowered::{Lowered, to_options};
use crate::{files, hex};

/// A model as its owner holds it: network, weights and calibration in real numbers.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Model {
    model: Arc<tacit_graph::Model>,
}

/// Calibration samples as numpy holds them: shape, flat values, whether they are raw pixels.
type Samples<'py> = (Vec<usize>, PyReadonlyArray1<'py, f32>, bool);

impl Model {
    pub(crate) fn get(&self) -> &Arc<tacit_graph::Model> {
        &self.model
    }

    fn new(model: tacit_graph::Model) -> Self {
        Self { model: Arc::new(model) }
    }
}

#[pymethods]
impl Model {
    /// Reads the bytes of a `.tacit` file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let bytes = Zeroizing::new(bytes.to_vec());
        brief(py, move || file::read(&bytes).map(Self::new).map_err(to_python))
    }

    /// Reads a `.tacit` file, with the key that `seal` names if it is sealed.
    #[staticmethod]
    #[pyo3(signature = (path, seal))]
    fn load(py: Python<'_>, path: PathBuf, seal: Option<String>) -> PyResult<Self> {
        brief(py, move || {
            let bytes = files::read(&path, Kind::model(&path), seal.as_deref(), file::MAX_BYTES)?;
            file::read(&bytes).map(Self::new).map_err(to_python)
        })
    }

    /// Imports an ONNX file.
    #[staticmethod]
    #[pyo3(signature = (bytes, samples, name, top1, range, pixels, max_samples, seed, folder))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
    fn import_onnx<'py>(
        py: Python<'py>,
        bytes: &[u8],
        samples: Option<Samples<'py>>,
        name: String,
        top1: bool,
        range: Option<[f32; 2]>,
        pixels: (f32, Vec<f32>, Vec<f32>),
        max_samples: usize,
        seed: u64,
        folder: Option<PathBuf>,
    ) -> PyResult<Self> {
        let calibration = samples
            .map(|(shape, data, is_bytes)| Ok::<_, PyErr>(Npy { shape, data: data.as_slice()?.to_vec(), is_bytes }));
        let (pixel_scale, mean, std) = pixels;
        let stop = Stop::default();
        let options = ImportOptions {
            watch: stop.watch(),
            name,
            calibration: calibration.transpose()?,
            max_samples,
            pixel_scale,
            mean,
            std,
            range: range.map(|[low, high]| Interval { low, high }),
            output_mode: if top1 { OutputMode::Top1 } else { OutputMode::Logits },
            seed,
            folder,
            ..ImportOptions::default()
        };
        let bytes = Zeroizing::new(bytes.to_vec());
        let work = move || import(&bytes, &options).map(|imported| Self::new(imported.model)).map_err(to_python);
        interruptible(py, || stop.set(), work)
    }

    /// The bytes of its `.tacit` file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let model = Arc::clone(&self.model);
        let bytes = brief(py, move || file::write(&model).map_err(to_python))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes its `.tacit` file, sealed with the key that `seal` names.
    #[pyo3(signature = (path, seal))]
    fn save(&self, py: Python<'_>, path: PathBuf, seal: Option<String>) -> PyResult<()> {
        let model = Arc::clone(&self.model);
        brief(py, move || {
            let bytes = file::write(&model).map_err(to_python)?;
            files::write(&path, Kind::model(&path), seal.as_deref(), &bytes)
        })
    }

    /// BLAKE3 over everything in the model, hexadecimal.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| hex(&self.model.digest()))
    }

    /// Inputs and outputs as JSON.
    fn interface_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.model.interface).map_err(to_python)
    }

    /// What the import found out, as JSON.
    fn summary_json(&self) -> String {
        let model = &self.model;
        let nodes: Vec<_> = model.graph.nodes.iter().map(|n| (&n.name, n.op.name(), &n.shape)).collect();
        json!({
            "calibration": model.calibration.text,
            "guessed": model.calibration.guessed,
            "macs": model.graph.macs(),
            "rewrites": model.notes,
            "nodes": nodes,
        })
        .to_string()
    }

    /// Lowers it for a back end.
    fn lower(&self, py: Python<'_>, backend: &str, options: BTreeMap<String, String>) -> PyResult<Lowered> {
        let lowering_options = to_options(&options);
        let (stop, model, backend) = (Stop::default(), Arc::clone(&self.model), backend.to_owned());
        let watch = stop.watch();
        interruptible(
            py,
            || stop.set(),
            move || {
                let registry = Registry::standard();
                let chosen = registry.get(&backend).map_err(to_python)?;
                let digest = model.digest();
                let model = chosen.lower_watched(&model, &lowering_options, &watch).map_err(to_python)?;
                let origin = Origin { model: digest, backend, options: lowering_options };
                Ok(Lowered::new(model, origin, chosen.trust()))
            },
        )
    }

    /// Compares the model with a lowering of it, as JSON. `inputs` are normalised and concatenated;
    /// `labels` has the right class of each.
    #[pyo3(signature = (lowered, inputs, labels))]
    fn check_json(
        &self,
        py: Python<'_>,
        lowered: &Lowered,
        inputs: PyReadonlyArray1<'_, f32>,
        labels: Option<Vec<usize>>,
    ) -> PyResult<String> {
        let (float, lowered) = (Arc::clone(&self.model), Arc::clone(lowered.get()));
        let rows = rows(&float.interface, inputs.as_slice()?);
        let (inputs, stop): (Vec<Vec<f32>>, _) = (rows.map(<[f32]>::to_vec).collect(), Stop::default());
        let watch = stop.watch();
        let work = move || {
            let report = check(&float, &*lowered, &inputs, labels.as_deref(), &watch).map_err(to_python)?;
            serde_json::to_string(&report).map_err(to_python)
        };
        interruptible(py, || stop.set(), work)
    }

    /// The float network's outputs for one flat, normalised input.
    fn run<'py>(&self, py: Python<'py>, input: PyReadonlyArray1<'py, f32>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (input, model) = (input.as_slice()?.to_vec(), Arc::clone(&self.model));
        let answer = brief(py, move || {
            model.interface.check_input(&input).map_err(to_python)?;
            Ok(model.interface.finish(&model.run(&input).map_err(to_python)?))
        });
        Ok(answer?.to_pyarray(py))
    }
}

fn parse_interface(json: &str) -> PyResult<Interface> {
    serde_json::from_str(json).map_err(to_python)
}

/// Splits concatenated inputs.
fn rows<'a>(interface: &Interface, values: &'a [f32]) -> std::slice::Chunks<'a, f32> {
    // The length is never 0: the interface was checked.
    values.chunks(interface.input_len().max(1))
}

/// Normalises concatenated inputs (pixels, or inputs of the ONNX network) as the client of a model
/// with this interface does.
#[pyfunction]
pub fn normalise<'py>(
    py: Python<'py>,
    interface_json: &str,
    values: PyReadonlyArray1<'py, f32>,
    pixels: bool,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let interface = parse_interface(interface_json)?;
    let units = if pixels { Units::Pixels } else { Units::Network };
    let rows = rows(&interface, values.as_slice()?);
    let normalised: Vec<f32> = rows.flat_map(|row| interface.normalise(row, units)).collect();
    Ok(normalised.to_pyarray(py))
}

/// The normalised input that is nearest to zeros within the accepted range of this interface.
#[pyfunction]
pub fn blank<'py>(py: Python<'py>, interface_json: &str) -> PyResult<Bound<'py, PyArray1<f32>>> {
    Ok(parse_interface(interface_json)?.blank().to_pyarray(py))
}

/// The inputs outside the accepted range of this interface: index and reason of each. `values` are
/// normalised and concatenated.
#[pyfunction]
pub fn refusals(interface_json: &str, values: PyReadonlyArray1<'_, f32>) -> PyResult<Vec<(usize, String)>> {
    let interface = parse_interface(interface_json)?;
    let rows = rows(&interface, values.as_slice()?).enumerate();
    let refused = rows.filter_map(|(place, row)| Some((place, interface.check_input(row).err()?.to_string())));
    Ok(refused.collect())
}
