//! The class `tacit._tacit.Client`: a connection with an open model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::{Value, json};
use tacit_backends::Registry;
use tacit_client::wire::{Deadline, InputId, LinkClass, ModelAndBackend, Terms};
use tacit_client::{
    Announced, Answer, ClientConfig, ClientError, Closer, Notices, PhaseReport, Prepared, Progress, Standing, Step,
    UNKNOWN_INPUT_MESSAGE,
};
use tacit_graph::Units;
use tacit_store::keys;

use crate::dealer::{Pinned, pin};
use crate::error::{TacitError, refused, to_python, warn_of_faint};
use crate::interrupt::{Stop, brief, interruptible, watched};
use crate::{files, lock, lowered};

mod open;

type Inner = tacit_client::Client;

/// Outputs and the back end's raw answers, a row for each input; costs as JSON.
type Inferred<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>, String);

/// A client of one model on one server.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Client {
    inner: Arc<Mutex<Option<Inner>>>,
    closer: Arc<Closer>,
    backend: String,
    plan: String,
    digest: String,
    public_digest: String,
    /// Settings of the connection, and the model's name: for notices sent over HTTP after the
    /// connection is closed.
    config: ClientConfig,
    model: String,
}

impl Client {
    /// Works on the connection without holding the interpreter. A protocol that fails half way or
    /// is interrupted ends the connection; the material that it has claimed is lost.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        self.telling(py, None, work)
    }

    /// As [`with`](Self::with), and calls `tell` with the name of each phase and the part of it
    /// that is done. An exception in `tell` ends the connection.
    fn telling<T: Send + 'static>(
        &self,
        py: Python<'_>,
        tell: Option<&Bound<'_, PyAny>>,
        work: impl FnOnce(&mut Inner) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        self.check()?;
        let progress = tell.map(|_| Arc::new(Progress::default()));
        let shared_progress = progress.clone();
        let (inner, closer) = (Arc::clone(&self.inner), Arc::clone(&self.closer));
        watched(
            py,
            || self.closer.close(),
            move |_| tell_steps(shared_progress.as_deref(), tell),
            move || run_on_connection(&inner, &closer, progress, work),
        )
    }

    fn check(&self) -> PyResult<()> {
        match self.closer.is_closed() {
            true => Err(TacitError::new_err("this client is closed: a call was interrupted; open a new one")),
            false => Ok(()),
        }
    }
}

/// Calls `tell` with each step since the last time.
fn tell_steps(progress: Option<&Progress>, tell: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match (progress, tell) {
        (Some(progress), Some(tell)) => progress
            .take()
            .iter()
            .try_for_each(|Step { phase, fraction }| tell.call1((phase.name(), fraction)).map(drop)),
        _ => Ok(()),
    }
}

fn run_on_connection<T>(
    inner: &Mutex<Option<Inner>>,
    closer: &Closer,
    progress: Option<Arc<Progress>>,
    work: impl FnOnce(&mut Inner) -> Result<T, ClientError>,
) -> PyResult<T> {
    let mut guard = lock(inner);
    let client = guard.as_mut().ok_or_else(|| TacitError::new_err("this client is closed"))?;
    client.set_progress(progress);
    let result = work(client);
    client.set_progress(None);
    if closer.is_closed() || matches!(&result, Err(e) if ends_connection(e)) {
        *guard = None;
    }
    result.map_err(|e| if e.refuses_answer() { refused(e) } else { to_python(e) })
}

fn ends_connection(error: &ClientError) -> bool {
    let is_out_of_step = matches!(
        error,
        ClientError::Net(_)
            | ClientError::Backend(_)
            | ClientError::Lost { .. }
            | ClientError::Ended { .. }
            | ClientError::Unexpected { .. }
    );
    is_out_of_step && !error.refuses_answer()
}

#[pymethods]
impl Client {
    /// Connects and opens a model: the only one on offer if `model` is `None`. If `backend` is
    /// `None`, the client chooses a back end that keeps the input private. `seal` names the key
    /// that seals material. A lowering that does not meet `require` is not opened.
    #[staticmethod]
    #[pyo3(signature = (address, keys, identity, server_name, model, backend, store, seal, dealer, threads, memory_mib, link, timeout_s, require))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
    fn connect(
        py: Python<'_>,
        address: String,
        keys: PathBuf,
        identity: &str,
        server_name: Option<String>,
        model: Option<String>,
        backend: Option<String>,
        store: Option<PathBuf>,
        seal: Option<String>,
        dealer: Pinned,
        threads: usize,
        memory_mib: Option<u32>,
        link: &str,
        timeout_s: f64,
        require: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let identity = keys::load_client(&keys, identity).map_err(to_python)?;
        let stall_timeout = Duration::try_from_secs_f64(timeout_s).map_err(to_python)?;
        let link: LinkClass = serde_json::from_value(link.into()).map_err(to_python)?;
        let stop = Stop::default();
        let stopped = stop.clone();
        interruptible(
            py,
            || stop.set(),
            move || {
                let connect_timeout = link.connect_timeout();
                let resources =
                    tacit_client::resources_within(connect_timeout, pin(&dealer)?, &identity, store.as_deref())
                        .map_err(to_python)?;
                let config = ClientConfig {
                    resources,
                    server_name,
                    store,
                    seal: files::key(seal.as_deref())?,
                    threads,
                    memory: memory_mib.map(|mib| u64::from(mib) << 20),
                    link,
                    connect_timeout,
                    stall_timeout,
                    require: lowered::to_options(&require),
                    ..ClientConfig::new(&address, identity)
                };
                open::open(config, model, backend.as_deref(), &stopped)
            },
        )
    }

    /// Name of the back end.
    #[getter]
    fn backend(&self) -> &str {
        &self.backend
    }

    /// Digest of the plan, which both parties compared; hexadecimal.
    #[getter]
    fn digest(&self) -> &str {
        &self.digest
    }

    /// Digest of what the server sent, hexadecimal.
    #[getter]
    fn public_digest(&self) -> &str {
        &self.public_digest
    }

    /// What the plan says, as JSON.
    fn plan_json(&self) -> &str {
        &self.plan
    }

    /// The public part as JSON.
    fn describe_json(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |client| Ok(client.model().describe().to_string()))
    }

    /// Makes the connection's keys unless the connection has keys already. Returns the phase's
    /// figures as JSON, or `None`.
    fn setup(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let report = self.with(py, Inner::setup)?;
        Ok(report.map(|r| phase(&r).to_string()))
    }

    /// Makes and stores material for so many inputs as one; its facts as JSON.
    fn prepare(&self, py: Python<'_>, batch: usize, progress: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        let material = self.telling(py, progress, move |client| client.prepare_batch(batch))?;
        Ok(prepared_json(&material).to_string())
    }

    /// Begins a call for `inputs` inputs. The server grants the batch size, `max_batch` at most.
    fn begin_call(&self, py: Python<'_>, inputs: usize, max_batch: Option<usize>) -> PyResult<()> {
        let default = self.config.max_batch;
        self.with(py, move |client| {
            client.set_max_batch(max_batch.unwrap_or(default));
            client.begin_call(inputs)
        })
    }

    /// Number of stored materials that are ready at both parties.
    fn ready(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |c| Ok(c.list_stored()?.len()))
    }

    /// Destroys the unused stored material of the model at both parties; returns how much was destroyed.
    fn discard_stored(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |c| {
            let ids: Vec<_> = c.list_stored()?.into_iter().map(|entry| entry.id).collect();
            c.discard(&ids)
        })
    }

    /// Announces `inputs` inputs as one batch, or as many of them as the server runs in one,
    /// `expected_s` seconds from now if known. Uses a connection of its own while this client is
    /// open, and HTTP when the client is closed.
    fn announce(&self, py: Python<'_>, expected_s: Option<f64>, inputs: usize) -> PyResult<Notice> {
        let expected = seconds(expected_s)?;
        let (inner, config) = (Arc::clone(&self.inner), self.config.clone());
        let (model, backend) = (self.model.clone(), self.backend.clone());
        let is_closed = self.closer.is_closed();
        let work = move || {
            let mut guard = lock(&inner);
            if let Some(client) = guard.as_mut().filter(|_| !is_closed) {
                let making = client.connect_again().and_then(|mut maker| {
                    maker.ask_batch(inputs)?;
                    client.announce_over(maker, expected)
                });
                return Ok(Noticed::Making(making.map_err(to_python)?));
            }
            drop(guard);
            let notices = Notices::new(&config).map_err(to_python)?;
            let notice = notices.announce(&model, &backend, inputs, expected, None).map_err(to_python)?;
            Ok(Noticed::Named(Arc::new(notices), notice))
        };
        interruptible(py, || self.closer.close(), work).map(Notice::new)
    }

    /// Answers the first of the inputs as one batch, or the announced batch. Returns the outputs,
    /// the revealed values of the back end, and the costs as JSON.
    fn infer<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArray2<'_, f32>,
        notice: Option<&Notice>,
        timeout_s: Option<f64>,
        deadline: &str,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Inferred<'py>> {
        let inputs: Vec<Vec<f32>> = inputs.as_array().rows().into_iter().map(|row| row.to_vec()).collect();
        let noticed = notice.map(Notice::take).transpose()?;
        let terms = terms(timeout_s, deadline)?;
        let answers = self.telling(py, progress, move |client| {
            client.set_terms(terms);
            let announced = match noticed {
                None => return client.infer_next(Units::Normalised, &inputs),
                Some(Noticed::Making(announced)) => announced,
                Some(Noticed::Named(_, notice)) => {
                    let mut maker = client.connect_again()?;
                    maker.ask_batch(notice.inputs)?;
                    client.take_up(maker, notice.name)?
                }
            };
            let (answers, maker) = client.infer_announced_batch(announced, Units::Normalised, &inputs, |_| ())?;
            maker.map_or(Ok(()), Inner::close)?;
            Ok(answers)
        })?;
        warn_of_faint(py, &answers)?;
        let [values, revealed] = [|a: &Answer| a.values.clone(), |a: &Answer| a.revealed.clone()]
            .map(|field| PyArray2::from_vec2(py, &answers.iter().map(field).collect::<Vec<_>>()).map_err(to_python));
        // Each answer of a run carries the costs of the whole run.
        let cost = answers.first().map(costs_json).unwrap_or_default();
        Ok((values?, revealed?, cost.to_string()))
    }

    /// Ends the connection from another thread: a call that waits fails at once.
    fn interrupt(&self) {
        self.closer.close();
    }

    /// Ends the connection with a goodbye. A second call, or a call after an interruption, does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.closer.is_closed() {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let work = move || {
            let client = lock(&inner).take();
            // Errors do not matter: a peer that has closed already needs no goodbye.
            let _ = client.map(Inner::close);
            Ok(())
        };
        interruptible(py, || self.closer.close(), work)
    }
}

/// How an input was announced.
enum Noticed {
    /// On a connection that makes the input's material.
    Making(Announced),
    /// Over HTTP: no material is made until the input is asked.
    Named(Arc<Notices>, Standing),
}

/// An input that was announced, or a batch; used or withdrawn once.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Notice {
    name: Option<InputId>,
    inputs: usize,
    noticed: Mutex<Option<Noticed>>,
}

impl Notice {
    fn new(noticed: Noticed) -> Self {
        let (name, inputs) = match &noticed {
            Noticed::Making(announced) => (None, announced.inputs()),
            Noticed::Named(_, notice) => (Some(notice.name), notice.inputs),
        };
        Self { name, inputs, noticed: Mutex::new(Some(noticed)) }
    }

    fn take(&self) -> PyResult<Noticed> {
        let noticed = lock(&self.noticed).take();
        noticed.ok_or_else(used_notice)
    }
}

fn used_notice() -> PyErr {
    TacitError::new_err("this notice was used or withdrawn already")
}

#[pymethods]
impl Notice {
    /// The name that the server gave it, sixteen hexadecimal digits; none unless it was announced over HTTP.
    #[getter]
    fn name(&self) -> Option<String> {
        self.name.map(|name| name.to_string())
    }

    /// For how many inputs it is.
    #[getter]
    fn inputs(&self) -> usize {
        self.inputs
    }

    /// Whether its material is made, or will not be before it is asked for.
    fn is_settled(&self) -> bool {
        match &*lock(&self.noticed) {
            Some(Noticed::Making(announced)) => announced.is_settled(),
            Some(Noticed::Named(..)) | None => true,
        }
    }

    /// Waits for its turn, so long at most, where it was announced over HTTP; whether it has come.
    fn wait_for_turn(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let within = Duration::try_from_secs_f64(timeout_s).map_err(to_python)?;
        let (notices, name) = match &*lock(&self.noticed) {
            Some(Noticed::Named(notices, notice)) => (Arc::clone(notices), notice.name),
            Some(Noticed::Making(_)) => {
                let text = "this notice has a connection, which waits for its turn by itself";
                return Err(TacitError::new_err(text));
            }
            None => return Err(used_notice()),
        };
        let standing = brief(py, move || notices.wait_for_turn(name, within).map_err(to_python))?;
        Ok(standing.ok_or_else(|| TacitError::new_err(UNKNOWN_INPUT_MESSAGE))?.turn)
    }

    /// Withdraws the notice; does nothing if the notice was used.
    fn withdraw(&self, py: Python<'_>) -> PyResult<()> {
        let noticed = lock(&self.noticed).take();
        match noticed {
            // Dropping the announcement withdraws it.
            Some(Noticed::Making(_)) | None => Ok(()),
            Some(Noticed::Named(notices, notice)) => {
                brief(py, move || notices.take_back(notice.name).map(drop).map_err(to_python))
            }
        }
    }
}

/// Announces an input over HTTP, or several that will be asked for as one, for a client that has no
/// connection: of the only model on offer if `model` is none, with a back end that keeps the input private if
/// `backend` is none.
#[pyfunction]
#[pyo3(signature = (address, keys, identity, server_name, model, backend, threads, memory_mib, inputs, expected_s, ttl_s))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
pub fn notify(
    py: Python<'_>,
    address: String,
    keys: PathBuf,
    identity: &str,
    server_name: Option<String>,
    model: Option<String>,
    backend: Option<String>,
    threads: usize,
    memory_mib: Option<u32>,
    inputs: usize,
    expected_s: Option<f64>,
    ttl_s: Option<f64>,
) -> PyResult<Notice> {
    let identity = keys::load_client(&keys, identity).map_err(to_python)?;
    let (expected, ttl) = (seconds(expected_s)?, seconds(ttl_s)?);
    let noticed = brief(py, move || {
        let memory = memory_mib.map(|mib| u64::from(mib) << 20);
        let config = ClientConfig { server_name, threads, memory, ..ClientConfig::new(&address, identity) };
        let notices = Notices::new(&config).map_err(to_python)?;
        let chosen = notices.choose(&Registry::standard(), model.as_deref(), backend.as_deref());
        let ModelAndBackend { model, backend } = chosen.map_err(to_python)?;
        let notice = notices.announce(&model, &backend, inputs, expected, ttl).map_err(to_python)?;
        Ok(Noticed::Named(Arc::new(notices), notice))
    });
    noticed.map(Notice::new)
}

fn seconds(time: Option<f64>) -> PyResult<Option<Duration>> {
    time.map(Duration::try_from_secs_f64).transpose().map_err(to_python)
}

fn terms(timeout_s: Option<f64>, deadline: &str) -> PyResult<Terms> {
    let timeout = seconds(timeout_s)?;
    let deadline = match deadline {
        "interactive" => Deadline::Interactive,
        "normal" => Deadline::Normal,
        "batch" => Deadline::Batch,
        phase => {
            let text = format!("deadline: `{phase}` is none of interactive, normal, batch");
            return Err(TacitError::new_err(text));
        }
    };
    Ok(Terms { timeout_ms: timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)), deadline })
}

fn phase(report: &PhaseReport) -> Value {
    json!({ "client": report.client, "server": report.server })
}

fn prepared_json(material: &Prepared) -> Value {
    json!({
        "id": material.id.to_string(),
        "offline": phase(&material.offline),
        "material_bytes": { "client": material.bytes.client, "server": material.bytes.server },
    })
}

fn costs_json(answer: &Answer) -> Value {
    json!({
        "online": phase(&answer.online),
        "setup": answer.setup.as_ref().map(phase),
        "prepared": answer.prepared.as_ref().map(prepared_json),
        "inputs": answer.part.inputs,
    })
}
