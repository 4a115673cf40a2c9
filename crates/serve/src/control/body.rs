//! Bodies of requests.
use super::MAX_BODY_BYTES;
use super::answer::Refusal;
use super::state::State;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::time::timeout;

/// The body of a request that changes something.
pub(super) async fn json_body(state: &State, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A page of another origin cannot send this type without asking first, and is not answered.
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be of type application/json"));
    }
    let body = timeout(state.shared.config.greeting_timeout, to_bytes(body, MAX_BODY_BYTES)).await;
    let body = body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
    body.map_err(|_| {
        let error = format!("the body broke off, or has more than {MAX_BODY_BYTES} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })
}
