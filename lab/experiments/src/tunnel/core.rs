//! WireGuard without I/O: packets in, datagrams out, and counters of refused ones. The protocol
//! code is `boringtun`'s.
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Version of the `boringtun` crate, for records.
pub const BORINGTUN: &str = "0.7.1";
/// Extra bytes of a datagram over its packet: header 16, tag 16.
pub const OVERHEAD: usize = 32;
/// Length of a handshake message, the smallest of a buffer for datagrams.
const HANDSHAKE_BYTES: usize = 148;

/// A private key: 32 bytes from the operating system. Never printed, wiped when dropped.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// If the operating system has no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The matching public key.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        PublicKey::from(&StaticSecret::from(self.0)).to_bytes()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Configuration of an end.
#[derive(Clone, Serialize, Deserialize)]
pub struct EndConfig {
    /// The end's private key.
    pub secret: SecretKey,
    /// The peer's public key.
    pub peer: [u8; 32],
    /// The end's address on the link.
    pub local: SocketAddr,
    /// The peer's address on the link.
    pub remote: SocketAddr,
    /// The end's address in the tunnel.
    pub inner: Ipv4Addr,
    /// The peer's address in the tunnel.
    pub peer_inner: Ipv4Addr,
    /// Largest packet in the tunnel, bytes.
    pub mtu: u16,
    /// Name of the interface.
    pub interface: String,
}

/// Counters of a tunnel's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Packets of the parties sealed and sent.
    pub sent_packets: u64,
    /// Packets of the parties received and opened.
    pub received_packets: u64,
    /// Datagrams refused as duplicates or as older than the replay window.
    pub replayed: u64,
    /// Datagrams refused because a tag, key or format is wrong: changed in transit, or from another
    /// sender.
    pub forged: u64,
    /// Datagrams refused for other reasons: no session yet, an answer without a pending request,
    /// too many handshakes.
    pub other_refused: u64,
    /// Packets refused because their inner source address is not the peer's.
    pub wrong_source: u64,
    /// Handshake messages sent.
    pub handshakes: u64,
    /// Seconds since the key agreement of the session; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_age_s: Option<f64>,
}

/// Result of opening a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// No output, or refused (see [`Stats`]).
    Nothing,
    /// Length of the packet at the start of the buffer.
    Packet(usize),
    /// Length of an answer for the peer at the start of the buffer. Then call [`Core::queued`]
    /// until it returns 0.
    Answer(usize),
}

/// One end of a tunnel to one peer.
pub struct Core {
    tunn: Tunn,
    peer_inner: Ipv4Addr,
    peer_outer: IpAddr,
    stats: Stats,
}

impl Core {
    /// An end with its private key; `peer_inner` is the only address that the peer may use in the tunnel.
    #[must_use]
    pub fn new(secret: &SecretKey, peer: [u8; 32], peer_inner: Ipv4Addr, peer_outer: IpAddr) -> Self {
        let tunn = Tunn::new(StaticSecret::from(secret.0), PublicKey::from(peer), None, None, 1, None);
        Self { tunn, peer_inner, peer_outer, stats: Stats::default() }
    }

    /// The present counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { session_age_s: self.tunn.time_since_last_handshake().map(|d| d.as_secs_f64()), ..self.stats }
    }

    /// Buffer length that any of the calls needs for a packet or datagram of `len` bytes.
    #[must_use]
    pub fn room_for(len: usize) -> usize {
        (len + OVERHEAD).max(HANDSHAKE_BYTES)
    }

    /// Seals a packet; returns the number of bytes of `output` to send. 0 before the first handshake:
    /// the packet waits, and a handshake may be sent instead. Drops a packet if `output` is too short.
    pub fn outgoing(&mut self, packet: &[u8], output: &mut [u8]) -> usize {
        if packet.is_empty() || output.len() < Self::room_for(packet.len()) {
            return 0;
        }
        let result = self.tunn.encapsulate(packet, output);
        let len = self.datagram_len(&result);
        if len == packet.len() + OVERHEAD {
            self.stats.sent_packets += 1;
        }
        len
    }

    /// Opens a datagram into `output`. Refuses it if `output` is too short.
    pub fn incoming(&mut self, datagram: &[u8], output: &mut [u8]) -> Incoming {
        if datagram.is_empty() || output.len() < Self::room_for(datagram.len()) {
            self.stats.forged += 1;
            return Incoming::Nothing;
        }
        match self.tunn.decapsulate(Some(self.peer_outer), datagram, output) {
            TunnResult::WriteToTunnelV4(packet, source) if source == self.peer_inner => {
                self.stats.received_packets += 1;
                Incoming::Packet(packet.len())
            }
            TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {
                self.stats.wrong_source += 1;
                Incoming::Nothing
            }
            TunnResult::Err(error) => {
                self.refuse(&error);
                Incoming::Nothing
            }
            TunnResult::WriteToNetwork(answer) => {
                let len = answer.len();
                // A data message with an empty packet (keep-alive) is shorter than a handshake's.
                self.stats.handshakes += u64::from(len > OVERHEAD);
                Incoming::Answer(len)
            }
            TunnResult::Done => Incoming::Nothing,
        }
    }

    /// Seals the next packet that waited for the handshake; 0 if there is none.
    pub fn queued(&mut self, output: &mut [u8]) -> usize {
        let result = self.tunn.decapsulate(None, &[], output);
        let len = self.datagram_len(&result);
        self.stats.sent_packets += u64::from(len > 0);
        len
    }

    /// Performs timed actions (repeated handshakes, new keys every two minutes, keep-alives);
    /// returns the number of bytes of `output` to send. Call about four times a second.
    pub fn tick(&mut self, output: &mut [u8]) -> usize {
        if output.len() < HANDSHAKE_BYTES {
            return 0;
        }
        let result = self.tunn.update_timers(output);
        self.datagram_len(&result)
    }

    /// Starts or restarts a handshake; returns the number of bytes of `output` to send.
    pub fn handshake(&mut self, output: &mut [u8]) -> usize {
        if output.len() < HANDSHAKE_BYTES {
            return 0;
        }
        let result = self.tunn.format_handshake_initiation(output, true);
        self.datagram_len(&result)
    }

    fn datagram_len(&mut self, result: &TunnResult<'_>) -> usize {
        match result {
            TunnResult::WriteToNetwork(datagram) => {
                // Type 1 is the initiation of a handshake.
                self.stats.handshakes += u64::from(datagram.first() == Some(&1));
                datagram.len()
            }
            _ => 0,
        }
    }

    fn refuse(&mut self, error: &WireGuardError) {
        let count = match error {
            WireGuardError::DuplicateCounter
            | WireGuardError::InvalidCounter
            | WireGuardError::WrongTai64nTimestamp => &mut self.stats.replayed,
            WireGuardError::NoCurrentSession
            | WireGuardError::UnexpectedPacket
            | WireGuardError::ConnectionExpired
            | WireGuardError::UnderLoad
            | WireGuardError::LockFailed
            | WireGuardError::DestinationBufferTooSmall => &mut self.stats.other_refused,
            _ => &mut self.stats.forged,
        };
        *count += 1;
    }
}
