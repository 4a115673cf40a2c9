//! Bodies of requests.
use super::answer::Refusal;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use std::time::Duration;
use tokio::time::timeout;

/// Reads the JSON body of a request that changes something, with limits `(bytes, time)`.
pub(crate) async fn json_body(
    headers: &HeaderMap,
    body: Body,
    (most, patience): (usize, Duration),
) -> Result<Bytes, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // CORS: a page of another origin must ask before it sends this type, and gets no answer.
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
