//! Answers, refusals, and who asks.
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tacit_ids::ClientId;
use tacit_store::Role;

/// Who asks: from the certificate of the connection.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) client: ClientId,
    pub(super) role: Role,
}

impl Peer {
    pub(super) fn is_operator(self) -> bool {
        self.role == Role::Operator
    }

    /// Refuses everybody but operators.
    pub(super) fn operator(self) -> Result<(), Refusal> {
        match self.role {
            Role::Operator => Ok(()),
            Role::Client | Role::Server => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this needs a certificate of the role operator (made by `tacit keys add-client DIR NAME --operator`)",
            )),
        }
    }
}

/// What is not answered, and why.
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    /// The driver is gone, or about to be.
    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is being stopped")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(&serde_json::json!({ "error": self.error }));
        *response.status_mut() = self.status;
        response
    }
}

/// What a handler gives.
pub(super) type Answer = Result<Response, Refusal>;

pub(super) fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("plain data is always encoded");
    typed("application/json", text)
}

pub(super) fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What holds for every answer: it is of this moment, and is what it says it is.
pub(super) async fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
