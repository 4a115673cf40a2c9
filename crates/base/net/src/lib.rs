//! Byte transports, and the framed, counted channel of the protocols.
//!
//! * [`Transport`]: a blocking duplex byte stream. [`MemTransport`] (tests, one process),
//!   [`TcpTransport`], [`TlsTransport`] (TLS 1.3, mutual authentication), [`RecordTransport`] and
//!   [`ReplayTransport`] (one party alone), [`PacedTransport`] (limited rate).
//! * [`Channel`]: tagged, length-checked, checksummed messages over any transport, with traffic
//!   counted per [`Phase`].
//! * [`TrafficModel`]: predicts the traffic and round trips of a phase.
//! * [`Sides`]: a value for each party.
//! * [`link`]: rates, delays and faults of a link, as users write them.
//! * [`Hello`] and [`handshake`]: compare the version on connecting, and plan and public part once
//!   a model is open.
//!
//! No deadlock arises if both parties write up to [`QUEUE_BYTES`] before either reads: a thread of
//! the transport queues and writes what the kernel does not take.
#![forbid(unsafe_code)]

mod buffered;
mod channel;
mod deadline;
mod error;
mod handshake;
pub mod link;
mod mem;
mod paced;
mod queue;
mod rate;
mod record;
mod sides;
mod tag;
mod tcp;
pub mod tls;
mod tls_error;
mod traffic;
mod traffic_model;
mod transport;

pub use channel::{Channel, HEADER_BYTES, MAX_FRAME_BYTES};
pub use deadline::MovingDeadline;
pub use error::NetError;
pub use handshake::{Hello, MAX_HELLO_BYTES, PROTOCOL_VERSION, handshake};
pub use mem::{MemTransport, mem_pair};
pub use paced::{Bucket, PacedTransport, burst_bytes};
pub use queue::QUEUE_BYTES;
pub use rate::{BadRate, Rate};
pub use record::{RecordTransport, ReplayTransport};
pub use sides::Sides;
pub use tag::Tag;
pub use tcp::{TcpTransport, split_address, tcp_pair};
pub use tls::{ClientTls, ServerTls, TlsTransport};
pub use traffic::{Phase, Traffic};
pub use traffic_model::TrafficModel;
pub use transport::Transport;
