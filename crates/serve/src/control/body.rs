//! Bodies of requests.
use super::answer::Refusal;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use std::time::Duration;
use tokio::time::timeout;

/// The body of a request that changes something: of at most so many bytes, within this time.
pub(crate) async fn json_body(
    headers: &HeaderMap,
    body: Body,
    (most, patience): (usize, Duration),
) -> Result<Bytes, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A page of another origin cannot send this type without asking first, and is not answered.
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be of type application/json"));
    }
    let body = timeout(patience, to_bytes(body, most)).await;
    let body = body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
    body.map_err(|_| {
        let error = format!("the body broke off, or has more than {most} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })
}
