//! Routes of the front, in JSON: `POST /v1/place` for clients, the rest for nodes (operators'
//! certificates).
use super::node_registry::{Granted, Refused, Ticket};
use super::placement_service::PlacementService;
use super::report::Report;
use crate::control::answer::{Answer, Peer, Refusal, finish, json};
use crate::control::body::{BodyLimits, json_body};
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Path, Request, State as Shares};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::map_response;
use axum::routing::{get, post};
use axum::{Router, response::Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json as object;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the front waits for a node to admit a client, and for a body to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest body of a client, in bytes.
const MAX_ASKED: usize = 4096;
/// Largest body of a node, in bytes: a report on 10,000 clients has one megabyte or two.
const MAX_REPORTED: usize = 16 << 20;
const MAX_NAME: usize = 256;

type RequestPeer = Extension<Peer>;
type Shared = Shares<Arc<State>>;

pub(super) struct State {
    service: PlacementService,
    server_name: Option<String>,
}

pub(super) fn router(service: PlacementService, server_name: Option<String>) -> Router {
    Router::new()
        .route("/v1/place", post(place))
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{name}/join", post(join))
        .route("/v1/nodes/{name}/renew", post(renew))
        .route("/v1/nodes/{name}/leave", post(leave))
        .route("/v1/nodes/{name}/end", post(end))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(map_response(finish))
        .with_state(Arc::new(State { service, server_name }))
}

const ROUTES: &str =
    "there is POST /v1/place, and for operators GET /v1/nodes and POST /v1/nodes/NAME/{join,renew,leave,end}";

async fn not_found(uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(80).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no `{path}`: {ROUTES}"))
}

async fn method_not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, ROUTES)
}

impl From<Refused> for Refusal {
    fn from(Refused { reason, retry_after }: Refused) -> Self {
        match retry_after {
            None => Self::new(StatusCode::FORBIDDEN, reason),
            Some(delay) => Self::new(StatusCode::SERVICE_UNAVAILABLE, reason).with_retry_after(delay),
        }
    }
}

async fn read_json<T: DeserializeOwned>(headers: &HeaderMap, body: Body, max_bytes: usize) -> Result<T, Refusal> {
    let bytes = json_body(headers, body, BodyLimits { bytes: max_bytes, patience: PATIENCE }).await?;
    serde_json::from_slice(&bytes).map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, format!("the body: {e}")))
}

/// A JSON body from an operator, of at most `MAX` bytes; other peers are refused.
struct OperatorJson<T, const MAX: usize = MAX_ASKED>(T);

impl<T: DeserializeOwned, const MAX: usize> FromRequest<Arc<State>> for OperatorJson<T, MAX> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<State>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        parts.extensions.get::<Peer>().expect("each connection says who asks").require_operator()?;
        read_json(&parts.headers, body, MAX).await.map(Self)
    }
}

/// Checks the length and characters of a name of a node or model, or of an address.
fn check_name(name: &str) -> Result<(), Refusal> {
    match name.len() {
        1..=MAX_NAME if !name.contains(char::is_control) => Ok(()),
        _ => {
            let error = format!("a name and an address have 1 to {MAX_NAME} bytes, none of them a control character");
            Err(Refusal::new(StatusCode::BAD_REQUEST, error))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    model: String,
}

/// Finds a node for a client's model, and tells the client how to reach it.
async fn place(Shares(state): Shared, Extension(peer): RequestPeer, headers: HeaderMap, body: Body) -> Answer {
    let Asked { model } = read_json(&headers, body, MAX_ASKED).await?;
    check_name(&model)?;
    let ticket = state.service.place(peer.client, &model, PATIENCE).await?;
    let Ticket { node, address, run, dealer, .. } = ticket;
    let mut placement = object!({"node": node, "run": run.to_string(), "address": address, "model": model});
    if let Some(name) = &state.server_name {
        placement["server_name"] = name.as_str().into();
    }
    if let Some((dealer, pin)) = dealer.split_once(' ') {
        placement["dealer"] = dealer.into();
        placement["dealer_pin"] = pin.into();
    }
    Ok(json(&placement))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Joins {
    address: String,
}

async fn join(
    Shares(state): Shared,
    Path(name): Path<String>,
    OperatorJson(Joins { address }): OperatorJson<Joins>,
) -> Answer {
    check_name(&name)?;
    check_name(&address)?;
    let run = state.service.join(&name, &address)?;
    tracing::info!("{name} at {address} has joined");
    Ok(json(&object!({ "run": run })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renews {
    run: u64,
    report: Report,
}

async fn renew(
    Shares(state): Shared,
    Path(name): Path<String>,
    OperatorJson(Renews { run, report }): OperatorJson<Renews, MAX_REPORTED>,
) -> Answer {
    let Granted { clients, version } = state.service.renew(&name, run, report)?;
    let clients: Option<Vec<String>> = clients.map(|list| list.iter().map(ToString::to_string).collect());
    Ok(json(&object!({ "clients": clients, "version": version })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Goes {
    run: u64,
}

async fn leave(
    Shares(state): Shared,
    Path(name): Path<String>,
    OperatorJson(Goes { run }): OperatorJson<Goes>,
) -> Answer {
    state.service.leave(&name, run);
    Ok(json(&object!({})))
}

async fn end(
    Shares(state): Shared,
    Path(name): Path<String>,
    OperatorJson(Goes { run }): OperatorJson<Goes>,
) -> Answer {
    state.service.end(&name, run);
    tracing::info!("{name} has ended");
    Ok(json(&object!({})))
}

async fn nodes(Shares(state): Shared, Extension(peer): RequestPeer) -> Result<Response, Refusal> {
    peer.require_operator()?;
    let now = Instant::now();
    let mut registry = state.service.registry();
    registry.expire(now);
    let nodes = registry.nodes.iter().map(|(name, node)| {
        object!({
            "name": name,
            "address": node.address,
            "lease_s": node.lease_until.saturating_duration_since(now).as_secs_f64(),
            "leaving": node.leaving,
            "waiting_s": node.report.waiting_s,
            "models": node.report.models.keys().collect::<Vec<_>>(),
            "clients": node.clients.len(),
            "stock": node.report.stock_in_all(),
            "dealer": node.report.dealer.split(' ').next(),
        })
    });
    let nodes: Vec<_> = nodes.collect();
    let lost = registry.losses.iter().map(|l| object!({"node": l.node, "clients": l.clients, "stock": l.stock}));
    Ok(json(&object!({ "nodes": nodes, "lost": lost.collect::<Vec<_>>() })))
}
