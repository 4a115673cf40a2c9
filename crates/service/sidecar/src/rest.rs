//! The protocol over HTTP.
use crate::ApiError;
use crate::fleet::{self, Fleet, Reply, VERSION};
use crate::json;
use crate::lane::Lane;
use crate::rows;
use crate::stats::{Counts, Total};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Length of the JSON in a body that has binary data after it.
const HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// The protocol's gRPC definition, served to authors of clients.
const PROTO: &str = include_str!("../proto/open_inference.proto");
/// Limit on the time in which a body arrives.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a request without tensors.
const MAX_SMALL_BODY_BYTES: usize = 64 << 10;

pub(crate) const SERVER_NAME: &str = "tacit-sidecar";
/// Extensions of the protocol that are served.
pub(crate) const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "classification", "model_repository", "schedule_policy", "statistics"];

type Answer = Result<Response<Body>, ApiError>;
type Models = State<Arc<Fleet>>;

/// The model in a path, and its version if there is one.
#[derive(serde::Deserialize)]
struct ModelPath {
    model: String,
    #[serde(default)]
    version: String,
}

/// All paths of the protocol.
pub(crate) fn routes(fleet: Arc<Fleet>) -> Router {
    let mut router = Router::new()
        .route("/v2", get(server))
        .route("/open_inference.proto", get(async || PROTO))
        .route("/v2/health/live", get(async || json_response(&json!({ "live": true }))))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/stats", get(all_stats))
        .route("/v2/repository/index", post(index));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(model, get(metadata))
            .route(&format!("{model}/ready"), get(model_ready))
            .route(&format!("{model}/infer"), post(infer))
            .route(&format!("{model}/stats"), get(stats))
            .route(&format!("{model}/config"), any(refuse_unsupported))
            .route(&format!("{model}/generate"), any(refuse_unsupported))
            .route(&format!("{model}/generate_stream"), any(refuse_unsupported))
            .route(&format!("{model}/trace/setting"), any(refuse_unsupported));
    }
    for path in [
        "/v2/repository/models/{*rest}",
        "/v2/systemsharedmemory/{*rest}",
        "/v2/cudasharedmemory/{*rest}",
        "/v2/trace/setting",
        "/v2/logging",
    ] {
        router = router.route(path, any(refuse_unsupported));
    }
    router
        .fallback(async || ApiError::NotFound("there is no such path".into()))
        .method_not_allowed_fallback(async || ApiError::Method)
        .with_state(fleet)
}

/// Refuses by name a part of the protocol that this sidecar does not have.
async fn refuse_unsupported(request: Request) -> ApiError {
    let path = request.uri().path();
    let parts = [
        ("/v2/systemsharedmemory", "system shared memory"),
        ("/v2/cudasharedmemory", "CUDA shared memory"),
        ("/v2/repository/models", "loading and unloading models"),
        ("/v2/logging", "changing the log"),
    ];
    let named = parts.into_iter().find(|(start, _)| path.starts_with(start)).map(|(_, name)| name);
    let last = path.rsplit('/').find(|segment| *segment != "setting").unwrap_or("this");
    ApiError::Unsupported(named.map_or_else(|| format!("`{last}`"), str::to_owned))
}

pub(crate) fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn server() -> Response<Body> {
    json_response(&json!({ "name": SERVER_NAME, "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS }))
}

async fn ready(State(fleet): Models) -> Answer {
    fleet.ready().map(|()| json_response(&json!({ "ready": true })))
}

async fn model_ready(State(fleet): Models, Path(named): Path<ModelPath>) -> Answer {
    let lane = fleet.lane(&named.model, &named.version)?;
    lane.ready().map_err(ApiError::Unavailable)?;
    Ok(json_response(&json!({ "name": named.model, "ready": true })))
}

async fn metadata(State(fleet): Models, Path(named): Path<ModelPath>) -> Answer {
    let metadata = fleet.lane(&named.model, &named.version)?.metadata()?;
    let platform = platform(&metadata.backend);
    let (input, outputs) = (metadata.input(), metadata.outputs());
    Ok(json_response(&json!({ "name": named.model, "versions": [VERSION], "platform": platform,
        "inputs": [input], "outputs": outputs })))
}

/// The protocol's name for the engine: maker and back end.
pub(crate) fn platform(backend: &str) -> String {
    format!("tacit_{backend}")
}

async fn stats(State(fleet): Models, Path(named): Path<ModelPath>) -> Answer {
    Ok(stats_response(&fleet.counts(Some((&named.model, &named.version)))?))
}

async fn all_stats(State(fleet): Models) -> Answer {
    Ok(stats_response(&fleet.counts(None)?))
}

fn stats_response(counts: &[(String, Counts)]) -> Response<Body> {
    let stats: Vec<Value> = counts.iter().map(|(name, counts)| model_stats(name, counts)).collect();
    json_response(&json!({ "model_stats": stats }))
}

fn model_stats(name: &str, counts: &Counts) -> Value {
    let Counts { last_inference, inference_count, execution_count, inference_stats, batches } = counts;
    let none = Total::default();
    let batches = batches.iter().map(|(size, infer)| {
        json!({ "batch_size": size, "compute_input": none, "compute_infer": infer, "compute_output": none })
    });
    let batches: Vec<Value> = batches.collect();
    json!({ "name": name, "version": VERSION, "last_inference": last_inference, "inference_count": inference_count,
        "execution_count": execution_count, "inference_stats": inference_stats, "batch_stats": batches })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    #[serde(default)]
    ready: bool,
}

async fn index(State(fleet): Models, request: Request) -> Answer {
    let (bytes, _) = body(request, MAX_SMALL_BODY_BYTES).await?;
    let wanted = match bytes.trim_ascii() {
        [] => Index { ready: false },
        text => serde_json::from_slice(text).map_err(|_| ApiError::Bad("only `ready` may be asked for".into()))?,
    };
    let lanes = fleet.lanes();
    let listed = lanes.iter().map(|lane| (lane, lane.ready())).filter(|(_, state)| state.is_ok() || !wanted.ready);
    let models = listed.map(|(lane, state)| {
        let [state, reason] = state_and_reason(state);
        json!({ "name": lane.name(), "version": VERSION, "state": state, "reason": reason })
    });
    Ok(json_response(&models.collect()))
}

/// A model's state and its reason, in the terms of the repository extension.
pub(crate) fn state_and_reason(ready: Result<(), String>) -> [String; 2] {
    match ready {
        Ok(()) => ["READY".into(), String::new()],
        Err(why) => ["UNAVAILABLE".into(), why],
    }
}

async fn infer(State(fleet): Models, Path(named): Path<ModelPath>, request: Request) -> Answer {
    let lane: Arc<Lane> = fleet.lane(&named.model, &named.version)?;
    let limit = lane.metadata()?.body_limit(lane.capacity());
    let (bytes, headers) = body(request, limit).await?;
    let header = header_length(&headers)?;
    let request = fleet::decode(move || json::read(&bytes, header)).await?;
    let (id, binary) = (request.id.clone(), request.binary);
    let Reply { outputs, refused } = fleet::infer(&lane, request).await?;
    let (text, raw) = json::write(lane.name(), &id, &outputs, &rows::refusal_parameters(&refused), binary);
    let (kind, length) = match raw.is_empty() {
        true => ("application/json", None),
        false => ("application/octet-stream", Some(text.len())),
    };
    let mut response = Response::new(Body::from([text, raw].concat()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = length {
        response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ApiError> {
    let Some(header) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let length = header.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| ApiError::Bad("Inference-Header-Content-Length is no number".into()))
}

/// Reads the body of a request, and its headers.
///
/// # Errors
/// The body is of another type, too large, too slow, or incomplete.
pub(crate) async fn body(request: Request, limit: usize) -> Result<(Bytes, HeaderMap), ApiError> {
    let (parts, body) = request.into_parts();
    if parts.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(ApiError::MediaType("bodies are read as they are: no Content-Encoding"));
    }
    let kind = parts.headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?"));
    // The accepted types are not among those that foreign web pages may send without permission.
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase());
    if kind.is_some_and(|kind| !matches!(kind.as_str(), "application/json" | "application/octet-stream" | "")) {
        return Err(ApiError::MediaType("the body must be application/json or application/octet-stream"));
    }
    let content_length = parts.headers.get("content-length").and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if parts.method == Method::POST && content_length.is_some_and(|n| n > limit as u64) {
        return Err(ApiError::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok((bytes, parts.headers)),
        Ok(Err(e)) if is_too_long(&e) => Err(ApiError::TooLarge(limit)),
        Ok(Err(_)) => Err(ApiError::Bad("the body breaks off".into())),
        Err(_) => Err(ApiError::Bad(format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()))),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|e| e.is::<http_body_util::LengthLimitError>())
}

impl From<ApiError> for Response<Body> {
    fn from(error: ApiError) -> Self {
        error.into_response()
    }
}
