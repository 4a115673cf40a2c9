//! A device's connection to its helper.
use super::wire::{ANSWER, ASK, Answer, Ask, BYTES, PIECE, recv, send};
use crate::ClientError;
use std::io::Write;
use std::time::{Duration, Instant};
use tacit_ids::{ClientId, MaterialId};
use tacit_net::{Channel, Hello, NetError, TcpTransport, Traffic, Transport, handshake, split_address};
use tacit_store::keys::{self, ClientIdentity};
use tacit_store::{MAX_MATERIAL_BYTES, Role};

/// Most bytes of a sealed material: a seal adds a header, and a tag for each 64 KiB.
const MAX_SEALED: u64 = MAX_MATERIAL_BYTES + (MAX_MATERIAL_BYTES >> 10);

/// A connection to this client's helper: TLS 1.3 with both certificates, where the helper's
/// certificate was made for this client.
pub struct HelperLine {
    address: String,
    channel: Channel,
    helper: ClientId,
}

impl HelperLine {
    /// Connects to the helper at `address` (`host:port`).
    ///
    /// # Errors
    /// The helper cannot be reached, or is not this client's.
    pub fn connect(
        address: &str,
        identity: &ClientIdentity,
        connect_timeout: Duration,
        stall_timeout: Duration,
    ) -> Result<Self, ClientError> {
        let end = Instant::now() + connect_timeout;
        let (host, _) = split_address(address)?;
        let mut tcp = TcpTransport::connect(address, connect_timeout)?;
        tcp.set_stall_timeout(stall_timeout).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
        tcp.set_deadline(Some(end));
        let tls = identity.tls.connect(tcp, host)?;
        let certificate = tls.peer_certificate().unwrap_or_default();
        match Role::from_certificate(certificate) {
            Role::Helper { owner } if owner == identity.fingerprint => {}
            role => {
                let what = format!("its certificate is that of a {role}, and not of a helper of this client");
                return Err(wrong(address, what));
            }
        }
        let helper = keys::fingerprint(certificate).ok_or_else(|| wrong(address, "its certificate cannot be read"))?;
        let mut channel = Channel::new(Box::new(tls));
        channel.set_deadline(Some(end));
        handshake(&mut channel, &Hello::without_model())?;
        channel.set_deadline(None);
        Ok(Self { address: address.to_owned(), channel, helper })
    }

    /// Fingerprint of the helper's key.
    #[must_use]
    pub fn helper(&self) -> ClientId {
        self.helper
    }

    /// Traffic of the connection, without TLS.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.channel.total_traffic()
    }

    pub(crate) fn wrong(&self, what: impl Into<String>) -> ClientError {
        wrong(&self.address, what)
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        send(&mut self.channel, ASK, ask)?;
        match recv(&mut self.channel, ANSWER)? {
            Answer::Refused { reason } => Err(self.wrong(reason)),
            other => Ok(other),
        }
    }

    pub(crate) fn misplaced(&self, answer: &Answer) -> ClientError {
        let answer: String = format!("{answer:?}").chars().take(200).collect();
        self.wrong(format!("it answered {answer}"))
    }

    /// Writes the bytes of a sealed material from byte `from` on to `out`; returns the size of the
    /// whole.
    pub(crate) fn fetch(&mut self, id: MaterialId, from: u64, out: &mut impl Write) -> Result<u64, ClientError> {
        let bytes = match self.ask(&Ask::Fetch { id, from })? {
            Answer::Bytes { bytes } if bytes <= MAX_SEALED && from <= bytes => bytes,
            other => return Err(self.misplaced(&other)),
        };
        let mut left = bytes - from;
        while left > 0 {
            let piece = self.channel.recv(BYTES, PIECE.min(left as usize))?;
            out.write_all(&piece).map_err(|e| ClientError::Usage(format!("writing sealed material: {e}")))?;
            left -= piece.len() as u64;
        }
        Ok(bytes)
    }
}

fn wrong(address: &str, what: impl Into<String>) -> ClientError {
    ClientError::Helper { address: address.to_owned(), what: what.into() }
}
