//! A dealer over the network, as either party reaches it: TLS 1.3 with both certificates, and the
//! dealer's own certificate pinned. The CA alone would not suffice: it belongs to the model owner,
//! who could issue a dealer certificate to himself.
use crate::wire::LinkClass;
use crate::{ClientError, KeyFolder};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::BackendError;
use tacit_backends::seam::{
    Claim, ConnectionResources, Dealer, KeyStore, Order, Piece, Seal, Seed, Stop, Ticket, Wait,
};
use tacit_ids::ClientId;
use tacit_net::{Channel, Hello, NetError, TcpTransport, Transport, handshake, split_address};
use tacit_store::keys::{self, ClientIdentity};
use zeroize::Zeroizing;

pub mod wire;

use wire::{Answer, Ask, BYTES, MAX_CLIENT_HALF, PIECE};

/// How a party reaches its dealer.
#[derive(Clone)]
pub struct DealerConfig {
    /// `host:port`.
    pub address: String,
    /// Fingerprint of the dealer's key, obtained from the dealer itself (`tacit keys add-dealer`
    /// prints it).
    pub pin: ClientId,
    /// Identity of the asking party.
    pub identity: ClientIdentity,
    /// Limit on the time to connect.
    pub connect_timeout: Duration,
    /// Limit on the time without progress of the dealer.
    pub stall_timeout: Duration,
}

impl DealerConfig {
    /// 10 seconds to connect, 5 minutes stall timeout.
    #[must_use]
    pub fn new(address: &str, pin: ClientId, identity: ClientIdentity) -> Self {
        Self {
            address: address.into(),
            pin,
            identity,
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(300),
        }
    }
}

/// The resources of a party beside its channels: the dealer at an address with a pinned
/// fingerprint, if there is one, and a folder for data that it receives once.
/// # Errors
/// The address is malformed.
pub fn resources(
    dealer: Option<(&str, ClientId)>,
    identity: &ClientIdentity,
    keep: Option<&Path>,
) -> Result<ConnectionResources, ClientError> {
    resources_within(LinkClass::default().connect_timeout(), dealer, identity, keep)
}

/// As [`resources`], with `within` as the limit on connecting to the dealer.
///
/// # Errors
/// As [`resources`].
pub fn resources_within(
    within: Duration,
    dealer: Option<(&str, ClientId)>,
    identity: &ClientIdentity,
    keep: Option<&Path>,
) -> Result<ConnectionResources, ClientError> {
    let dealer = dealer.map(|(address, pin)| {
        let config = DealerConfig::new(address, pin, identity.clone());
        RemoteDealer::new(DealerConfig { connect_timeout: within, ..config })
    });
    Ok(ConnectionResources {
        dealer: dealer.transpose()?.map(|dealer| Arc::new(dealer) as Arc<dyn Dealer>),
        keep: keep.map(|dir| Arc::new(KeyFolder::new(dir)) as Arc<dyn KeyStore>),
        ..ConnectionResources::default()
    })
}

/// A dealer over the network. Connects on first use, and reconnects after a loss.
pub struct RemoteDealer {
    config: DealerConfig,
    /// Idle connections, shared by the clones that have another `stop`.
    idle: Arc<Mutex<Vec<DealerConnection>>>,
    stop: Stop,
}

struct DealerConnection {
    channel: Channel,
    stream: Arc<TcpStream>,
}

impl RemoteDealer {
    /// A dealer that is not connected yet.
    ///
    /// # Errors
    /// The address is malformed.
    pub fn new(config: DealerConfig) -> Result<Self, ClientError> {
        split_address(&config.address)?;
        Ok(Self { config, idle: Arc::default(), stop: Stop::default() })
    }

    /// The error for a fault of the dealer, or on the way to it.
    fn dealer_error(&self, what: impl std::fmt::Display) -> BackendError {
        BackendError::Dealer { what: format!("the one at {}: {what}", self.config.address) }
    }

    /// Connects in a thread of its own, since connecting cannot be interrupted, and does not wait
    /// for it after a stop.
    fn dial(&self) -> Result<TcpTransport, NetError> {
        let (sender, dialled) = mpsc::channel();
        let stopped = sender.clone();
        let _wait = self.stop.on_raise(move || drop(stopped.send(None)));
        let (address, timeout) = (self.config.address.clone(), self.config.connect_timeout);
        let builder = thread::Builder::new().name("tacit-dial".into());
        let started = builder.spawn(move || drop(sender.send(Some(TcpTransport::connect(address, timeout)))));
        started.map_err(|e| NetError::from_io("starting a thread", &e))?;
        let dialled = dialled.recv().ok().flatten();
        dialled.ok_or_else(|| NetError::from_io("connecting", &io::ErrorKind::ConnectionAborted.into()))?
    }

    /// Closes the connection when a stop is raised.
    fn cut_by_stop(&self, stream: &Arc<TcpStream>) -> Wait<'_> {
        let stream = Arc::clone(stream);
        // An error means that the connection is closed already.
        self.stop.on_raise(move || drop(stream.shutdown(Shutdown::Both)))
    }

    fn connect(&self) -> Result<DealerConnection, NetError> {
        let config = &self.config;
        let end = Instant::now() + config.connect_timeout;
        let (host, _) = split_address(&config.address)?;
        let mut tcp = self.dial()?;
        let stream = Arc::new(tcp.closer()?);
        let _wait = self.cut_by_stop(&stream);
        tcp.set_stall_timeout(config.stall_timeout).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
        tcp.set_deadline(Some(end));
        let tls = config.identity.tls.connect(tcp, host)?;
        let found = tls.peer_certificate().and_then(keys::fingerprint);
        if found != Some(config.pin) {
            let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
            return Err(NetError::Tls(format!(
                "the fingerprint of its key is {found}, and {} was expected: is this the dealer that you agreed on?",
                config.pin
            )));
        }
        let mut channel = Channel::new(Box::new(tls));
        channel.set_deadline(Some(end));
        handshake(&mut channel, &Hello::without_model())?;
        channel.set_deadline(None);
        Ok(DealerConnection { channel, stream })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<DealerConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an exchange over an idle connection. If the dealer had closed that one before the
    /// exchange began, runs it over a new connection.
    fn exchange<T>(&self, run: impl FnMut(&mut Channel) -> Result<T, Failure>) -> Result<T, BackendError> {
        self.try_exchange(run).map_err(|failure| self.to_backend_error(failure))
    }

    fn try_exchange<T>(&self, mut run: impl FnMut(&mut Channel) -> Result<T, Failure>) -> Result<T, Failure> {
        let idle = self.idle().pop();
        if let Some(connection) = idle {
            match self.run_over(connection, &mut run) {
                // Connections that have been idle for longer are dead, too.
                Err(Failure::Before(error)) if error.is_gone() => self.idle().clear(),
                other => return other,
            }
        }
        self.run_over(self.connect().map_err(Failure::Before)?, &mut run)
    }

    /// Runs an exchange and, if it succeeds, returns the connection to the idle ones, unless a stop
    /// has cut it meanwhile.
    fn run_over<T>(
        &self,
        mut connection: DealerConnection,
        run: impl FnOnce(&mut Channel) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let wait = self.cut_by_stop(&connection.stream);
        let done = run(&mut connection.channel)?;
        drop(wait);
        if !self.stop.is_raised() {
            self.idle().push(connection);
        }
        Ok(done)
    }

    fn to_backend_error(&self, failure: Failure) -> BackendError {
        match failure {
            // This party closed the connection.
            Failure::Before(_) | Failure::After(_) if self.stop.is_raised() => BackendError::Stopped,
            Failure::Before(error) | Failure::After(error) => self.dealer_error(error),
            Failure::Other(error) => error,
        }
    }

    /// The failure for an answer that does not belong at this point.
    fn unexpected_answer(&self, answer: Answer) -> Failure {
        Failure::Other(match answer {
            Answer::Refused { reason } => self.dealer_error(reason),
            other => self.dealer_error(format!("it answered {other:?}")),
        })
    }

    fn ask(&self, channel: &mut Channel, request: &Ask, parts: &[&[u8]]) -> Result<Answer, Failure> {
        wire::ask(channel, request, parts).map_err(|e| match e {
            crate::wire::WireError::Net(error) => Failure::Before(error),
            other => Failure::Other(self.dealer_error(other)),
        })
    }

    /// Orders a material, registers its model first if the dealer does not know it, and passes the
    /// ticket and this party's half to `sink`.
    fn request_dealing(
        &self,
        channel: &mut Channel,
        order: &Order<'_>,
        seal: Option<Seal>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), Failure> {
        let Order { digest, batch, .. } = *order;
        let deal = match seal {
            Some(seal) => Ask::Deal { digest, batch, seal },
            None => Ask::Ahead { digest, batch },
        };
        let mut answer = self.ask(channel, &deal, &[])?;
        if answer == Answer::Unknown {
            let (public, part) = (order.public.len() as u64, order.part.len() as u64);
            let register = Ask::Register { backend: order.backend.into(), public, part };
            match self.ask(channel, &register, &[order.public, order.part])? {
                Answer::Done => {}
                other => return Err(self.unexpected_answer(other)),
            }
            answer = self.ask(channel, &deal, &[])?;
        }
        let Answer::Dealt { ticket, bytes } = answer else { return Err(self.unexpected_answer(answer)) };
        if bytes != order.server_bytes {
            let what = format!("its half has {bytes} bytes, {} were ordered", order.server_bytes);
            return Err(Failure::Other(self.dealer_error(what)));
        }
        sink(Piece::Ticket(&ticket)).map_err(Failure::Other)?;
        receive_half(channel, bytes, &mut |piece| sink(Piece::Half(piece)))
    }

    /// Fetches the client's half of a material, and passes it to `sink` in pieces.
    fn receive_client_half(
        &self,
        channel: &mut Channel,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), Failure> {
        match self.ask(channel, &Ask::Fetch { ticket: *ticket, claim: *claim }, &[])? {
            Answer::Half { bytes } if bytes <= MAX_CLIENT_HALF => receive_half(channel, bytes, sink),
            other => Err(self.unexpected_answer(other)),
        }
    }
}

/// Receives a half of `left` bytes, and passes it to `sink` in pieces.
fn receive_half(
    channel: &mut Channel,
    mut left: u64,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
) -> Result<(), Failure> {
    while left > 0 {
        let piece = Zeroizing::new(channel.recv(BYTES, PIECE.min(left as usize)).map_err(Failure::After)?);
        left -= piece.len() as u64;
        sink(&piece).map_err(Failure::Other)?;
    }
    Ok(())
}

enum Failure {
    /// The connection failed while the exchange could still be repeated.
    Before(NetError),
    /// The connection failed later.
    After(NetError),
    Other(BackendError),
}

impl Dealer for RemoteDealer {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.exchange(|channel| self.request_dealing(channel, order, Some(*seal), sink))
    }

    fn deal_ahead(
        &self,
        order: &Order<'_>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.exchange(|channel| self.request_dealing(channel, order, None, sink))
    }

    fn bind(&self, ticket: &Ticket, seal: &Seal) -> Result<bool, BackendError> {
        self.exchange(|channel| match self.ask(channel, &Ask::Bind { ticket: *ticket, seal: *seal }, &[])? {
            Answer::Done => Ok(true),
            Answer::Unknown => Ok(false),
            other => Err(self.unexpected_answer(other)),
        })
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.exchange(|channel| {
            self.receive_client_half(channel, ticket, claim, sink)?;
            // The dealer may miss this message: only this party can show the claim, only once.
            let _ = crate::wire::send(channel, wire::ASK, &Ask::Taken { ticket: *ticket });
            Ok(())
        })
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.exchange(|channel| match self.ask(channel, &Ask::Consent { ticket: *ticket, claim: *claim }, &[])? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected_answer(other)),
        })
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.exchange(|channel| match self.ask(channel, &Ask::Open { ticket: *ticket }, &[])? {
            Answer::Opened { seed } => Ok(Seed(seed)),
            other => Err(self.unexpected_answer(other)),
        })
    }

    fn stopped_by(self: Arc<Self>, stop: &Stop) -> Arc<dyn Dealer> {
        Arc::new(Self { config: self.config.clone(), idle: Arc::clone(&self.idle), stop: stop.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn drops_connection_cut_by_stop() {
        let folder = tempfile::tempdir().unwrap();
        keys::init(folder.path(), &[], &["alice".into()]).unwrap();
        let identity = keys::load_client(folder.path(), "alice").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let dealer = RemoteDealer::new(DealerConfig::new(&address, identity.fingerprint, identity)).unwrap();
        let connection = || {
            let tcp = TcpTransport::connect(address.clone(), Duration::from_secs(10)).unwrap();
            let stream = Arc::new(tcp.closer().unwrap());
            DealerConnection { channel: Channel::new(Box::new(tcp)), stream }
        };
        let kept = || dealer.idle().len();
        assert!(dealer.run_over(connection(), |_| Ok(())).is_ok());
        assert_eq!(kept(), 1);
        // A stop at the very end of an exchange that succeeded.
        let cut = |_: &mut Channel| {
            dealer.stop.raise();
            Ok(())
        };
        assert!(dealer.run_over(connection(), cut).is_ok());
        assert_eq!(kept(), 1);
    }
}
