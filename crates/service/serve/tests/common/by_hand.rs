//! Requests that a test sends itself, and the server's state on disk.
use std::path::Path;
use tacit_client::wire::Request;
use tacit_ids::MaterialId;

/// Requests material that both parties hold in memory.
pub fn prepare(number: u64) -> Request {
    Request::Prepare { id: MaterialId::numbered(number), folder: None, of: None }
}

/// Requests an answer with this material.
pub fn infer_with(id: MaterialId) -> Request {
    Request::Infer { id: Some(id), of: None }
}

/// The database of the server's quotas, audit and estimates.
pub fn server_state(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join("server-material/server.sqlite")).unwrap()
}
