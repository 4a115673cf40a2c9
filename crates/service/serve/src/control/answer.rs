//! Answers and refusals of handlers, and the peer of a request.
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::time::Duration;
use tacit_ids::ClientId;
use tacit_store::Role;

/// The peer of a request, from the certificate of its connection.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) client: ClientId,
    pub(crate) role: Role,
}

impl Peer {
    pub(crate) fn is_operator(self) -> bool {
        self.role == Role::Operator
    }

    pub(crate) fn require_operator(self) -> Result<(), Refusal> {
        match self.role {
            Role::Operator => Ok(()),
            Role::Client | Role::Server | Role::Helper { .. } => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this needs a certificate of the role operator (made by `tacit keys add-client DIR NAME --operator`)",
            )),
        }
    }
}

pub(crate) struct Refusal {
    status: StatusCode,
    error: String,
    /// Time after which the client may retry (`Retry-After`, `again_s`), if any.
    retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), retry_after: None }
    }

    pub(crate) fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is being stopped")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut object = serde_json::json!({ "error": self.error });
        if let Some(delay) = self.retry_after {
            object["again_s"] = delay.as_secs_f64().into();
        }
        let mut response = json(&object);
        *response.status_mut() = self.status;
        if let Some(delay) = self.retry_after {
            let seconds = HeaderValue::from(delay.as_secs_f64().ceil().max(1.0) as u64);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

pub(crate) type Answer = Result<Response, Refusal>;

pub(crate) fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("plain data is always encoded");
    response_of_type("application/json", text)
}

pub(crate) fn response_of_type(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Adds the headers that every answer has: no caching, no guessing of content types.
pub(crate) async fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
