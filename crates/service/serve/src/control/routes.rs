//! Routes of the control interface. `openapi.json` beside this file describes them.
use super::answer::{Answer, Peer, Refusal, finish, json, response_of_type};
use super::body::json_body;
use super::keepalive::Keepalive;
use super::state::State;
use super::{events, inputs, read_policy};
use crate::jobs::event::Event;
use crate::ops::snapshot::ClientRow;
use crate::shared::Shared;
use axum::body::Body;
use axum::extract::{Extension, State as Shares};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::routing::{MethodRouter, get, post};
use axum::{Router, response::Response};
use serde_json::json as object;
use std::sync::Arc;
use tacit_store::Counts;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

const PAGE: &str = include_str!("dashboard.html");
const OPENAPI: &str = include_str!("openapi.json");

type SharedState = Shares<Arc<State>>;
type RequestPeer = Extension<Peer>;

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<State>>)> {
    vec![
        ("/", get(page)),
        ("/metrics", get(metrics)),
        ("/v1/events", get(watch_events)),
        ("/v1/health/live", get(live)),
        ("/v1/health/ready", get(is_ready)),
        ("/v1/inputs", post(inputs::announce)),
        ("/v1/inputs/{name}", get(inputs::look).delete(inputs::cancel)),
        ("/v1/models", get(models)),
        ("/v1/openapi.json", get(openapi)),
        ("/v1/policy", get(policy).put(set_policy)),
        ("/v1/reload", post(reload)),
        ("/v1/status", get(status)),
    ]
}

pub(super) fn router(shared: Arc<Shared>, stop: watch::Receiver<bool>) -> Router {
    let router = routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(map_response(finish))
        .with_state(Arc::new(State::new(shared, stop)))
}

async fn not_found(uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(80).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no `{path}`; /v1/openapi.json lists what there is"))
}

async fn method_not_allowed(method: Method) -> Refusal {
    let error = format!("this takes no {}; /v1/openapi.json lists what it takes", method.as_str());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error.chars().take(120).collect::<String>())
}

async fn live() -> Response {
    json(&object!({ "status": "live" }))
}

async fn is_ready(state: SharedState) -> Answer {
    let snapshot = state.require_snapshot().await?;
    if snapshot.stopping {
        return Err(Refusal::stopping());
    }
    let warnings: Vec<&str> = snapshot.certificates.iter().filter_map(|row| row.advice.as_deref()).collect();
    Ok(json(&match warnings[..] {
        [] => object!({ "status": "ready" }),
        _ => object!({ "status": "ready", "warnings": warnings }),
    }))
}

async fn status(state: SharedState, Extension(peer): RequestPeer) -> Answer {
    let snapshot = state.require_snapshot().await?;
    if peer.is_operator() {
        return Ok(json(&*snapshot));
    }
    let client_row = snapshot.clients.iter().find(|row| row.client == peer.client).cloned();
    let client_row = client_row.unwrap_or_else(|| ClientRow::new(peer.client));
    Ok(json(&object!({ "version": snapshot.version, "uptime_s": snapshot.uptime_s, "client": client_row })))
}

async fn models(state: SharedState, Extension(peer): RequestPeer) -> Answer {
    let snapshot = state.require_snapshot().await?;
    if peer.is_operator() {
        return Ok(json(&object!({ "models": snapshot.models })));
    }
    let allowed = snapshot.models.iter().filter(|m| state.shared.allows(peer.client, &m.name));
    let rows: Vec<_> = allowed.map(|m| object!({ "name": m.name, "backends": m.backends })).collect();
    Ok(json(&object!({ "models": rows })))
}

async fn policy(state: SharedState, Extension(peer): RequestPeer) -> Answer {
    peer.require_operator()?;
    Ok(json(&object!({ "policy": state.require_snapshot().await?.scheduling.policy })))
}

async fn set_policy(state: SharedState, Extension(peer): RequestPeer, headers: HeaderMap, body: Body) -> Answer {
    peer.require_operator()?;
    let body = json_body(&headers, body, state.limits()).await?;
    let policy = read_policy(&body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    state.shared.ask(|reply| Event::SetPolicy { policy, reply }).await.ok_or_else(Refusal::stopping)?;
    state.forget().await;
    Ok(json(&object!({ "policy": state.require_snapshot().await?.scheduling.policy })))
}

/// Makes the server read its files again, and waits for the result, which may take long.
async fn reload(
    state: SharedState,
    Extension(peer): RequestPeer,
    Extension(keepalive): Extension<Arc<Keepalive>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    peer.require_operator()?;
    let body = json_body(&headers, body, state.limits()).await?;
    if !matches!(serde_json::from_slice(&body), Ok(serde_json::Value::Object(object)) if object.is_empty()) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the body must be {}"));
    }
    let (reply, mut outcome) = oneshot::channel();
    state.shared.reloads.try_send(reply).map_err(|_| {
        Refusal::new(StatusCode::CONFLICT, "files are being looked at again already; ask again when that is over")
    })?;
    let outcome = loop {
        tokio::select! {
            outcome = &mut outcome => break outcome.map_err(|_| Refusal::stopping())?,
            // A connection with a waiting request is not idle.
            () = sleep(state.shared.config.control_idle / 4) => keepalive.beat(),
        }
    };
    state.forget().await;
    outcome.map(|reloaded| json(&reloaded)).map_err(|error| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error))
}

async fn watch_events(state: SharedState, Extension(peer): RequestPeer) -> Answer {
    peer.require_operator()?;
    let place = state
        .try_stream_permit()
        .ok_or_else(|| Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many are watching; try again later"))?;
    let Shares(state) = state;
    Ok(response_of_type("text/event-stream", events::stream(state, place)))
}

async fn metrics(state: SharedState, Extension(peer): RequestPeer) -> Answer {
    peer.require_operator()?;
    let text = state.shared.metrics.text(&*state.require_snapshot().await?, &ledger(&state).await);
    Ok(response_of_type("application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

/// Counts of the ledger; zeros without a ledger, or if it cannot be read (its users report the
/// error).
async fn ledger(state: &State) -> Counts {
    let shared = state.shared.clone();
    let counts =
        spawn_blocking(move || shared.store.as_ref().and_then(|store| store.counts().ok()).unwrap_or_default());
    counts.await.unwrap_or_default()
}

async fn openapi() -> Response {
    response_of_type("application/json", OPENAPI)
}

/// The dashboard page. Its policy allows only its own script and connections to this server.
async fn page(Extension(peer): RequestPeer) -> Answer {
    peer.require_operator()?;
    let mut nonce = [0; 16];
    let random = getrandom::fill(&mut nonce);
    random.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness from the operating system"))?;
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut response = response_of_type("text/html; charset=utf-8", PAGE.replace("NONCE", &nonce));
    let rule = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let rule = HeaderValue::from_str(&rule).expect("hexadecimal digits are allowed in a header");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, rule);
    Ok(response)
}

#[cfg(test)]
mod tests;
