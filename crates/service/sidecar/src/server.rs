//! Listeners: connections with limits on all resources of a peer, until the sidecar is stopped.
use crate::access::Access;
use crate::fleet::Fleet;
use crate::{ApiError, grpc, page, rest};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Response};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::any;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tacit_admission::{Admission, ConnectionSlot, Full, Limits, PoolLimits, Refusal, handshake_slots};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tonic::codegen::Service as _;

/// Most authenticated connections of one listener at a time.
const MAX_CONNECTIONS: usize = 256;
/// Most unauthenticated connections at a time, as far as open files allow. When all are in use,
/// admission evicts the oldest of the address that holds most.
const MAX_HANDSHAKES: usize = 1024;
/// Time from accepting a connection to its first authorized request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Open files reserved for authenticated connections and everything else.
const OTHER_FILES: u64 = 512;
/// Interval of checking whether a log entry is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause of accepting when the system is out of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most concurrent requests of one connection (HTTP/2).
const MAX_STREAMS: u32 = 64;
/// Limit on receiving the headers of a request, from the end of the previous request: clients reuse
/// connections for a while.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Most headers of a request, and most bytes of them.
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 32 << 10;
/// Time for running requests to finish after a stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// A source of connections.
pub enum Listener {
    /// A TCP address of this machine.
    Tcp(TcpListener),
    /// A socket file, which is deleted with the listener.
    Unix(UnixListener, SocketFile),
}

/// The file of a socket.
pub struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    /// Whether the socket file is still there; a file that has replaced it is not ours to delete.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| meta.file_type().is_socket() && (meta.dev(), meta.ino()) == self.inode)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens on a loopback address: the traffic is not encrypted.
    ///
    /// # Errors
    /// Other machines can reach the address, or it is unavailable.
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::other(
                "it is no loopback address, and the sidecar's own protocols are not encrypted: listen on 127.0.0.1 or ::1",
            ));
        }
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Listens on a socket file with mode 0600. Replaces a file that a sidecar left behind.
    ///
    /// # Errors
    /// The file exists and is not ours, another process listens there, or it cannot be made.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if let Ok(meta) = fs::symlink_metadata(path) {
            let is_ours = meta.file_type().is_socket() && meta.uid() == rustix::process::geteuid().as_raw();
            if !is_ours || std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::other("the file exists, and is another's or in use"));
            }
            fs::remove_file(path)?;
        }
        // Made under another name first, so that it is never open to other users under its own.
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = folder.join(format!(".tacit-{}", std::process::id()));
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&temporary);
        rustix::process::umask(old);
        let bound = bound?;
        // Unlike a rename, a link never replaces an existing file.
        let linked = fs::symlink_metadata(&temporary).and_then(|meta| fs::hard_link(&temporary, path).map(|()| meta));
        fs::remove_file(&temporary)?;
        let meta = linked?;
        Ok(Self::Unix(bound, SocketFile { path: path.to_owned(), inode: (meta.dev(), meta.ino()) }))
    }

    /// The TCP address, if there is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }
}

/// All routes over HTTP.
pub fn http(fleet: &Arc<Fleet>, access: Access) -> Router {
    with_access_check(rest::routes(fleet.clone()).merge(page::routes(fleet.clone())), access)
}

/// The service over gRPC.
pub fn grpc(fleet: &Arc<Fleet>, access: Access) -> Router {
    let unknown = async || tonic::Status::unimplemented("there is no such service").into_http::<Body>();
    let router = Router::new().route("/inference.GRPCInferenceService/{*call}", any(call)).fallback(unknown);
    with_access_check(router.with_state(fleet.clone()), access)
}

/// Serves one gRPC call. The limit on messages depends on the models, which become known over time:
/// so each call makes its own service, which is cheap.
async fn call(State(fleet): State<Arc<Fleet>>, request: Request) -> Response<Body> {
    let max_bytes = fleet.body_limit();
    let Ok(response) = grpc::service(fleet, max_bytes).call(request).await;
    response.map(Body::new)
}

/// Connection limits of one listener: its single user, and unauthenticated peers.
fn limits() -> Limits {
    Limits {
        handshakes: handshake_slots(MAX_HANDSHAKES, 1, OTHER_FILES),
        handshake_timeout: HANDSHAKE_TIMEOUT,
        pools: vec![PoolLimits { connections: MAX_CONNECTIONS, per_peer: MAX_CONNECTIONS }],
    }
}

/// The peer of a connection: the single user, or unauthenticated.
struct Peer {
    slot: ConnectionSlot,
    /// Set by the first request with the token, or for which no token is needed: whether there was
    /// a connection slot.
    place: OnceLock<Result<(), Full>>,
}

impl Peer {
    /// Records an authorized request and takes a connection slot.
    fn authenticate(&self) -> Result<(), Full> {
        *self.place.get_or_init(|| self.slot.authenticate(0, [0; 32]))
    }

    fn is_authenticated(&self) -> bool {
        matches!(self.place.get(), Some(Ok(())))
    }

    /// Completes if the peer is still unauthenticated when its time is over.
    async fn wait_until_late(&self) {
        sleep_until(self.slot.deadline().end().into()).await;
        if self.is_authenticated() {
            std::future::pending().await
        }
    }
}

fn with_access_check(router: Router, access: Access) -> Router {
    router.layer(from_fn_with_state(Arc::new(access), guard))
}

/// Checks a request before any of its body is read.
async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response<Body> {
    let grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let checked = access.check(request.uri(), request.headers()).and_then(|()| {
        let peer = request.extensions().get::<Arc<Peer>>().filter(|_| access.shows_token(request.headers()));
        let full = "as many connections are open as the sidecar serves: close some";
        peer.map_or(Ok(()), |peer| peer.authenticate().map_err(|_| ApiError::Unavailable(full.into())))
    });
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(error) if grpc => tonic::Status::from(error).into_http::<Body>(),
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Serves until `stop` is true or its sender is dropped; running requests then have `SHUTDOWN_GRACE` to
/// finish.
pub async fn serve(listener: Listener, router: Router, mut stop: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let admission = Admission::new(limits());
    loop {
        let stopped = async {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let accepted = tokio::select! {
            biased;
            () = stopped => break,
            () = due(&admission) => {
                admission.sum_up();
                continue;
            }
            accepted = accept(&listener) => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let detail = format!("accepting a connection: {error}");
                admission.count_refusal(Refusal { kind: "that could not be accepted", from: None, detail });
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let peer = Arc::new(Peer { slot: wait_for_slot(&admission, address).await, place: OnceLock::new() });
        let mut builder = Builder::new(TokioExecutor::new());
        set_limits(&mut builder);
        let served = builder.serve_connection(TokioIo::new(stream), with_peer(router.clone(), &peer));
        tokio::spawn(serve_connection(graceful.watch(served.into_owned()), peer, address));
    }
    drop(listener);
    admission.close();
    // Requests that take longer end with the runtime.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
}

/// A service whose requests carry the peer of their connection.
fn with_peer(
    router: Router,
    peer: &Arc<Peer>,
) -> impl Service<hyper::Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    let (service, peer) = (TowerToHyperService::new(router), Arc::clone(peer));
    service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&peer));
        service.call(request)
    })
}

/// Serves a connection until it ends, is evicted, or misses the time limit for its first authorized
/// request.
async fn serve_connection<E: std::fmt::Display>(
    served: impl Future<Output = Result<(), E>>,
    peer: Arc<Peer>,
    address: IpAddr,
) {
    let (kind, detail) = tokio::select! {
        result = served => match result {
            Err(error) if !peer.is_authenticated() => {
                ("that broke off or said something else", format!("a connection from {address}: {error}"))
            }
            Err(error) => return tracing::debug!("a connection ended: {error}"),
            Ok(()) => return,
        },
        // Admission has already counted the eviction.
        () = peer.slot.wait_for_eviction() => return,
        () = peer.wait_until_late() => {
            ("that did not show in time that they may ask", format!("a connection from {address} made no request in time"))
        }
    };
    peer.slot.admission().count_refusal(Refusal { kind, from: Some(address), detail });
}

async fn due(admission: &Admission) {
    loop {
        match admission.alarm() {
            Some(at) => return sleep_until(at.into()).await,
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits for a handshake slot; other connections wait in the system's queue meanwhile.
async fn wait_for_slot(admission: &Admission, address: IpAddr) -> ConnectionSlot {
    loop {
        match admission.admit(address) {
            Ok(slot) => return slot,
            Err(retry_at) => sleep_until(retry_at.into()).await,
        }
    }
}

fn set_limits(builder: &mut Builder<TokioExecutor>) {
    let mut http1 = builder.http1();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEADER_BYTES as u32);
    http2.keep_alive_interval(Duration::from_secs(30));
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Accepts a connection; returns its stream and the address of its peer.
async fn accept(listener: &Listener) -> io::Result<(Box<dyn Stream>, IpAddr)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, address) = listener.accept().await?;
            // Sends at once: answers are small, and clients wait for them.
            stream.set_nodelay(true)?;
            Ok((Box::new(stream), address.ip()))
        }
        Listener::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), Ipv4Addr::LOCALHOST.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listens_on_loopback_only() {
        for address in ["0.0.0.0:0", "[::]:0"] {
            assert!(Listener::tcp(address.parse().unwrap()).await.is_err(), "{address}");
        }
        assert!(Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap().address().is_some());
    }

    #[tokio::test]
    async fn owns_and_replaces_socket_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = Listener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Listener::unix(&path).is_err(), "somebody listens");
        drop(first);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(Listener::unix(&path).is_ok(), "nobody listens any more");
        fs::write(&path, "mine").unwrap();
        assert!(Listener::unix(&path).is_err(), "no socket");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
