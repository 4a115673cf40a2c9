//! Bodies of requests.
use super::answer::Refusal;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, StatusCode, header};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) struct BodyLimits {
    pub(crate) bytes: usize,
    pub(crate) patience: Duration,
}

/// Reads the JSON body of a request that changes something.
pub(crate) async fn json_body(headers: &HeaderMap, body: Body, limits: BodyLimits) -> Result<Bytes, Refusal> {
    let BodyLimits { bytes: max_bytes, patience } = limits;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // CORS: a page of another origin must ask before it sends this type, and gets no answer.
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be of type application/json"));
    }
    let body = timeout(patience, to_bytes(body, max_bytes)).await;
    let body = body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
    body.map_err(|_| {
        let error = format!("the body broke off, or has more than {max_bytes} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })
}
