//! Reasons for refusing a request, and their codes in both protocols.
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use tacit_client::ClientError;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Reason why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The request is invalid, or does not fit the model.
    #[error("{0}")]
    Bad(String),
    /// The request lacks the token.
    #[error("this needs `Authorization: Bearer TOKEN` with the sidecar's token")]
    NoToken,
    /// The request comes from a forbidden origin.
    #[error("{0}")]
    Forbidden(&'static str),
    /// There is no such model, version or path.
    #[error("{0}")]
    NotFound(String),
    /// The path exists for other methods only.
    #[error("this path is not for that method")]
    Method,
    /// The request has too many bytes.
    #[error("the request is larger than the {0} bytes that it may have")]
    TooLarge(usize),
    /// The body has an unsupported type.
    #[error("{0}")]
    MediaType(&'static str),
    /// The sidecar does not have this part of the protocol.
    #[error("{0} is not supported by this sidecar")]
    Unsupported(String),
    /// The queue is full.
    #[error("the queue of model `{0}` is full: try again later")]
    Full(String),
    /// The server's limit for this client in a day or a minute is used up.
    #[error("{reason}")]
    OverLimit {
        /// The server's reason.
        reason: String,
        /// Seconds until the limit allows more.
        again_s: u64,
    },
    /// The server is not available now.
    #[error("{0}")]
    Unavailable(String),
    /// The request's time limit is over.
    #[error("the request's time is over; what was sent for it is not used again")]
    Timeout,
    /// This input has no answer: another try gives none either.
    #[error("{0}")]
    NoAnswer(String),
    /// A failure that the request did not cause.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The HTTP status.
    #[must_use]
    pub fn http(&self) -> StatusCode {
        self.codes().0
    }

    /// The gRPC code.
    #[must_use]
    pub fn grpc(&self) -> Code {
        self.codes().1
    }

    fn codes(&self) -> (StatusCode, Code) {
        match self {
            Self::Bad(_) => (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            Self::NoToken => (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, Code::PermissionDenied),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, Code::NotFound),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, Code::InvalidArgument),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument),
            Self::Unsupported(_) => (StatusCode::NOT_IMPLEMENTED, Code::Unimplemented),
            Self::Full(_) | Self::OverLimit { .. } => (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
            Self::Timeout => (StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded),
            Self::NoAnswer(_) => (StatusCode::UNPROCESSABLE_ENTITY, Code::OutOfRange),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
        }
    }

    /// Seconds after which another try may succeed.
    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Full(_) | Self::Unavailable(_) => Some(1),
            Self::OverLimit { again_s, .. } => Some(*again_s),
            _ => None,
        }
    }
}

impl From<&ClientError> for ApiError {
    fn from(error: &ClientError) -> Self {
        let text = error.to_string();
        match error {
            ClientError::Graph(_) | ClientError::Input { .. } => Self::Bad(text),
            error if error.refuses_answer() => Self::NoAnswer(text),
            error if is_connection(error) => Self::Unavailable(text),
            ClientError::Refused { again: Some(again), .. } => {
                Self::OverLimit { reason: text, again_s: again.as_secs() }
            }
            ClientError::Refused { .. } | ClientError::NoModel { .. } | ClientError::NoBackend { .. } => {
                Self::Unavailable(text)
            }
            _ => Self::Internal(text),
        }
    }
}

/// Whether an error is the connection's fault, so that another connection may succeed.
pub(crate) fn is_connection(error: &ClientError) -> bool {
    use ClientError::{Backend, Ended, Lost, Net, Unreachable};
    let of_backend = matches!(error, Backend(tacit_backends::BackendError::Net(_)));
    of_backend || matches!(error, Net(_) | Unreachable { .. } | Lost { .. } | Ended { .. })
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let text = serde_json::json!({ "error": self.to_string() }).to_string();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.http();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self == Self::NoToken {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let mut metadata = MetadataMap::new();
        if let Some(seconds) = error.retry_after_s() {
            metadata.insert("retry-after", seconds.into());
        }
        Self::with_metadata(error.grpc(), error.to_string(), metadata)
    }
}
