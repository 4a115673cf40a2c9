//! The web page for people: takes a picture or numbers, and shows classes, costs, and what the
//! server could see. Pictures require a model that states how pixels become its inputs. The page
//! loads nothing from other sites. Its requests need the token, which the page takes from its
//! address behind `#`, the part that browsers do not send.
use crate::ApiError;
use crate::energy::EnergyModel;
use crate::fleet::{self, Fleet};
use crate::json;
use crate::lane::Lane;
use crate::metadata::{ModelMetadata, largest};
use crate::rest::{body, json_response};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::{HeaderValue, Response, Uri};
use axum::routing::{get, post};
use serde_json::{Value, json as object};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_backends::Trust;
use tacit_client::input::{self, Fit};
use tacit_client::{Answer, ClientError, PhaseReport};
use tacit_foreign::plain;
use tacit_graph::{Interface, OutputMode, Units, npy};

const PAGE_HTML: &str = include_str!("../page/index.html");
/// Most bytes of a picture's file.
const MAX_PICTURE_BYTES: usize = 32 << 20;
/// Limit on the time for one picture.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Number of classes shown.
const SHOWN_CLASSES: usize = 5;

type PageResult = Result<Response<Body>, ApiError>;

pub(crate) fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/page/models", get(models))
        .route("/page/classify", post(classify))
        .route("/page/progress", get(progress))
        .with_state(fleet)
}

/// The page, with a new nonce for its script and style.
async fn page() -> PageResult {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| ApiError::Internal(e.to_string()))?;
    let nonce: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src blob:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = Response::new(Body::from(PAGE_HTML.replace("{{nonce}}", &nonce)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let policy = HeaderValue::from_str(&policy).expect("letters, digits and quotes");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

async fn models(State(fleet): State<Arc<Fleet>>) -> Response<Body> {
    json_response(&fleet.lanes().into_iter().map(|lane| model(&lane)).collect())
}

fn model(lane: &Lane) -> Value {
    match (lane.metadata(), lane.ready()) {
        (Ok(metadata), Ok(())) => object!({ "name": lane.name(), "ready": true, "pictures": metadata.takes_pixels(),
            "no_pictures": (!metadata.takes_pixels()).then(|| metadata.no_pictures()), "shape": metadata.interface.input_shape,
            "range": metadata.interface.input.range.ends(), "backend": metadata.backend, "private": is_private(&metadata) }),
        (_, state) => object!({ "name": lane.name(), "ready": false, "reason": state.err() }),
    }
}

fn is_private(metadata: &ModelMetadata) -> bool {
    metadata.trust != Trust::ServerSeesInput
}

/// Describes in plain words what the server could see.
fn server_sees(metadata: &ModelMetadata) -> String {
    match metadata.trust {
        Trust::TwoParty => "The server could see: that this client asked, when, which model, and how many bytes went to and fro. It \
             could not see your input or the answer: both reached it masked with random numbers that only this machine knows. This holds for a server that \
             follows the protocol."
            .into(),
        Trust::Dealer => "The server could see: that this client asked, when, which model, and how many bytes went to and fro. It \
             could not see your input or the answer, unless it works together with the dealer who made the random numbers."
            .into(),
        Trust::ServerSeesInput => format!(
            "The server SAW YOUR INPUT AND THE ANSWER: the back end `{}` hides nothing, and this sidecar was told to use it.",
            metadata.backend
        ),
    }
}

/// Reads the model's name from the query of a path.
///
/// # Errors
/// The query has no `model`.
fn requested_model(uri: &Uri) -> Result<String, ApiError> {
    let mut parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let model = parameters.find(|(name, _)| name == "model");
    model.map(|(_, value)| value.into_owned()).ok_or_else(|| ApiError::Bad("the query lacks `model=NAME`".into()))
}

async fn classify(State(fleet): State<Arc<Fleet>>, request: Request) -> PageResult {
    let begun = Instant::now();
    let lane = fleet.lane(&requested_model(request.uri())?, "")?;
    let metadata = lane.metadata()?;
    let (bytes, _) = body(request, MAX_PICTURE_BYTES).await?;
    let reader_metadata = metadata.clone();
    let input = fleet::decode(move || read(&bytes, &reader_metadata)).await?;
    let answered = fleet::collect_answers(&lane, vec![input], 0, Some(ANSWER_TIMEOUT)).await?;
    let [answer] = answered.answers.as_slice() else {
        return Err(ApiError::Internal("one input has one answer".into()));
    };
    Ok(json_response(&object!({
        "top": top(&metadata, answer),
        "phases": phases(answer, fleet.energy()),
        "energy": fleet.energy().map(EnergyModel::describe),
        "material": match (metadata.prepares, &answer.prepared) {
            (false, _) => "none",
            (true, None) => "ahead",
            (true, Some(_)) => "now",
        },
        "queued_s": answered.queued.as_secs_f64(),
        "worked_s": answered.runs.iter().map(|(_, worked)| worked.as_secs_f64()).sum::<f64>(),
        "all_s": begun.elapsed().as_secs_f64(),
        "backend": metadata.backend,
        "private": is_private(&metadata),
        "server_sees": server_sees(&metadata),
    })))
}

/// Waiting and running work of a model, for a user who waits for an answer.
async fn progress(State(fleet): State<Arc<Fleet>>, uri: Uri) -> PageResult {
    let lane = fleet.lane(&requested_model(&uri)?, "")?;
    let running = lane.steps().into_iter();
    let running = running.map(|step| object!({ "phase": step.phase.name(), "fraction": step.fraction }));
    Ok(json_response(&object!({ "waiting": lane.waiting(), "running": running.collect::<Vec<_>>() })))
}

/// The classes with the largest values, or the only class that the model reveals.
fn top(metadata: &ModelMetadata, answer: &Answer) -> Vec<Value> {
    match metadata.interface.output_mode {
        OutputMode::Top1 => vec![class(metadata, answer.class, None)],
        OutputMode::Logits => {
            largest(&answer.values, SHOWN_CLASSES).into_iter().map(|(c, v)| class(metadata, c, Some(v))).collect()
        }
    }
}

fn class(metadata: &ModelMetadata, class: usize, value: Option<f64>) -> Value {
    object!({ "class": class, "label": metadata.labels.get(class), "value": value })
}

/// Phases with this machine's figures; joules are modelled, and null without a named device.
fn phases(answer: &Answer, energy: Option<&EnergyModel>) -> Vec<Value> {
    let setup = answer.setup.as_ref().map(|r| phase("setup", r, energy));
    let offline = answer.prepared.as_ref().map(|p| phase("offline", &p.offline, energy));
    setup.into_iter().chain(offline).chain([phase("online", &answer.online, energy)]).collect()
}

fn phase(name: &str, report: &PhaseReport, energy: Option<&EnergyModel>) -> Value {
    let PhaseReport { client, server } = report;
    object!({ "name": name, "wall_s": client.wall_s, "sent_bytes": client.sent_bytes,
        "received_bytes": client.received_bytes, "rounds": client.rounds.max(server.rounds),
        "modelled_j": energy.map(|model| model.joules(client)) })
}

/// Reads a picture's file or numbers; returns the normalised input.
fn read(bytes: &Bytes, metadata: &ModelMetadata) -> Result<Vec<f32>, ApiError> {
    let is_picture = bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"\xff\xd8");
    let (values, units) = match is_picture {
        true if metadata.takes_pixels() => (picture(bytes, &metadata.interface)?, Units::Normalised),
        true => return Err(ApiError::Bad(metadata.no_pictures().into())),
        false => numbers(bytes, metadata)?,
    };
    metadata.interface.accept(&values, units).map_err(|e| ApiError::Bad(e.to_string()))
}

/// Reads one input as numbers: a JSON list, flat or nested, or an array file (`.npy`). Bytes in an
/// array file are pixels.
fn numbers(bytes: &Bytes, metadata: &ModelMetadata) -> Result<(Vec<f32>, Units), ApiError> {
    let (shape, len) = (&metadata.interface.input_shape, metadata.interface.input_len());
    if bytes.starts_with(b"\x93NUMPY") {
        // Checks the shape before the elements are converted.
        let layout = npy::Layout::read(bytes).map_err(|e| ApiError::Bad(e.to_string()))?;
        let array_shape = layout.shape.as_slice();
        if array_shape != shape && !matches!(array_shape, [1, row @ ..] if row == shape) && array_shape != [len] {
            let array_shape = plain(&format!("{array_shape:?}"));
            return Err(ApiError::Bad(format!("an array of shape {array_shape}: the model takes {shape:?}")));
        }
        let array = npy::read(bytes).map_err(|e| ApiError::Bad(e.to_string()))?;
        return match array.is_bytes {
            true if metadata.takes_pixels() => Ok((array.data, Units::Pixels)),
            true => Err(ApiError::Bad(format!("bytes are pixels: {}", metadata.no_pictures()))),
            false => Ok((array.data, Units::Network)),
        };
    }
    if bytes.len() > metadata.body_limit(1) {
        return Err(ApiError::TooLarge(metadata.body_limit(1)));
    }
    let parsed = serde_json::from_slice::<json::Numbers>(bytes);
    let kinds = "this is no PNG or JPEG picture, no .npy file and no list of numbers in JSON";
    let json::Numbers(values) = parsed.map_err(|e| ApiError::Bad(format!("{kinds}: {}", json::cut(&e))))?;
    if values.len() != len {
        return Err(ApiError::Bad(format!("{} numbers: the model takes {len}, for {shape:?}", values.len())));
    }
    Ok((values.into_iter().map(|v| v as f32).collect(), Units::Network))
}

fn picture(bytes: &Bytes, interface: &Interface) -> Result<Vec<f32>, ApiError> {
    let result = in_memory(bytes);
    let (file, path) = result.map_err(|e| ApiError::Internal(format!("keeping the picture in memory: {e}")))?;
    let pictures = input::read(&path, interface, Fit::Crop, Units::Pixels);
    drop(file);
    let pictures = pictures.map_err(|error| match error {
        ClientError::Input { what, .. } => ApiError::Bad(format!("the picture: {what}")),
        error => ApiError::from(&error),
    })?;
    pictures.into_iter().next().ok_or_else(|| ApiError::Bad("the file holds no picture".into()))
}

/// An anonymous file in memory, and the path by which this process may open it.
fn in_memory(bytes: &[u8]) -> io::Result<(std::fs::File, PathBuf)> {
    let file = rustix::fs::memfd_create("picture", rustix::fs::MemfdFlags::CLOEXEC)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    Ok((file, path))
}
