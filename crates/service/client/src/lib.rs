//! The client of private inference: connect, prepare material, infer, measure. Blocking; no async
//! runtime.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tacit_client::{ClientConfig, Connection};
//! let identity = tacit_store::keys::load_client("keys".as_ref(), "alice")?;
//! let mut connection = Connection::connect(tacit_backends::Registry::new(vec![]), ClientConfig::new("server:7878", identity))?;
//! for model in connection.models()? {
//!     println!("{}: {}", model.name, model.backends[0].backend);
//! }
//! let mut client = connection.open("digits", None)?;
//! let input = vec![0.5; client.interface().input_len()];
//! let answer = client.infer(&input)?;
//! println!("class {}, values {:?}", answer.class, answer.values);
//! client.close()?;
//! # Ok(()) }
//! ```
//!
//! * [`Connection::connect`]`(registry, config)`: TLS 1.3 with both certificates, then the version.
//!   [`Connection::models`] lists the models on offer.
//! * [`Connection::open`]`(model, backend)`: a [`Client`]. Without a name, the back end is the
//!   first on offer that this registry knows and whose server does not see the input, by the
//!   registry's own word.
//! * [`Client::infer`], [`infer_many`]: real-valued inputs to an [`Answer`] of real values. Floats
//!   are inputs of the ONNX network; [`Client::infer_in`] takes other
//!   [`Units`](tacit_graph::Units). Stored material is used if there is any; else material is made.
//!   `infer_many` makes it on a second connection, one batch ahead. [`Client::infer_batch`] runs
//!   its inputs as one batch, also with stored material ([`Client::prepare_batch`]).
//! * [`Client::announce`], [`Client::infer_announced`]: an input that is expected later, whose
//!   material is made in advance. [`Client::set_terms`]: how long an answer may take, how soon it
//!   is needed. The server decides when a phase starts: calls wait for their turn.
//! * [`Notices`]: the same over HTTP, without a connection; [`Client::take_up`] runs the phases.
//!   [`Control`]: the other requests that a server answers over HTTP.
//! * [`Client::prepare`], [`Client::list_stored`], [`Client::discard`]: material ahead of time
//!   ([`ClientConfig::store`]). [`Connection::material`] lists the material of all models.
//!   Connecting destroys halves whose other half is lost ([`Connection::reconciliation`]).
//!   [`Client::setup`] and the preparation of material run automatically where required.
//! * [`Client::model`]: plan, costs, numerics; [`Client::interface`]: shapes, ranges, what is
//!   revealed.
//! * [`SecretsFolder`]: secrets of keys that a server stores. [`Connection::uploads`] lists these
//!   keys, [`Connection::delete_uploads`] deletes them.
//! * [`Client::order`], [`Client::collect`] over a [`HelperLine`]: material made by a second machine
//!   of the client's, which runs a [`HelperServer`].
//! * [`RemoteDealer`], [`KeyFolder`]: resources of back ends with a dealer
//!   ([`ClientConfig::resources`]).
//! * [`input`]: images and arrays; [`mod@bench`]: the form of both parties' figures; [`measure`]:
//!   taking them; [`wire`]: messages.
//!
//! # States of a connection
//!
//! | state | the client sends | the server answers |
//! | --- | --- | --- |
//! | connecting | hello | hello, `Welcome` |
//! | comparing folders | `Reconcile`, `Discard` | `Reconciled` in parts, `Ids` |
//! | connected | `List`, `Uploads`, `DeleteUpload` | `Models`, `Uploads`, `Deleted` |
//! | connected | `Halves`, `Discard` | `Halves`, `Ids` |
//! | opening | `Open`, hello | `Model`, public part, hello |
//! | open | `Stored`, `Batch`, `Discard` | `Ids`, `Batch`, `Ids` |
//! | open | `Call`, `Ask`, `Announce`, `Cancel` | `Noted` |
//! | waiting for a turn | `Setup`, `Prepare`, `Refill`, `Infer` | `Go` |
//! | in a phase | messages of the back end | messages of the back end, `Done` |
//!
//! `Waiting` may precede any answer; a server that says nothing else is given up after
//! [`ClientConfig::patience`]. `Refused` leaves the state as it was; `Goodbye` ends the connection. Any
//! other answer is [`ClientError::Unexpected`]. After a damaged or misplaced frame the channel refuses
//! further use. Stored material is claimed after `Go`, before anything that depends on it is sent.
//!
//! The client checks all data from a server before using it. A public part has at most
//! [`MAX_PUBLIC_BYTES`](tacit_backends::seam::MAX_PUBLIC_BYTES), checked before any of it is
//! received; the digests of plan and public part are compared.
#![forbid(unsafe_code)]

mod announced;
mod answer;
mod ask;
pub mod bench;
mod claimed;
mod client;
mod closer;
mod config;
mod connection;
mod control;
pub mod dealer;
mod error;
pub mod helper;
pub mod input;
pub mod jpeg;
mod key_folder;
pub mod measure;
mod notices;
mod opened;
mod pipeline;
pub mod png;
mod secrets;
mod stock;
pub mod wire;

/// Most threads of a party.
pub const MAX_THREADS: usize = 1024;

pub use announced::Announced;
pub use answer::{Answer, BatchPart, Prepared};
pub use client::{Client, FetchedMaterial, HelperDelivery, Progress, Step};
pub use closer::Closer;
pub use config::ClientConfig;
pub use connection::Connection;
pub use control::Control;
pub use dealer::{DealerConfig, RemoteDealer, resources, resources_within};
pub use error::ClientError;
pub use helper::{HelperLine, HelperServer, HelperServerConfig};
pub use key_folder::KeyFolder;
pub use measure::{Figures, PhaseReport};
pub use notices::{NoticeState, Notices, Standing, UNKNOWN_INPUT_MESSAGE};
pub use opened::OpenedModels;
pub use pipeline::infer_many;
pub use secrets::SecretsFolder;
pub use stock::{Reconciled, StoredMaterial, Usability};
pub use wire::{ModelInfo, Offer};
