//! WireGuard without I/O: packets in, datagrams out, and a count of everything refused. The protocol is
//! `boringtun`'s.
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Version of the `boringtun` crate, for records.
pub const BORINGTUN: &str = "0.7.1";
/// Bytes that a datagram is longer than its packet: header 16, tag 16. A handshake message needs 148 in all.
pub const OVERHEAD: usize = 32;
/// Least length of the buffers that datagrams are written to, beyond what their packet needs.
const HANDSHAKE: usize = 148;

/// A private key: 32 bytes from the operating system. Never printed, wiped when dropped.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// If the operating system has no random numbers to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        PublicKey::from(&StaticSecret::from(self.0)).to_bytes()
    }

    /// The key itself.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// All that an end needs to know.
#[derive(Clone, Serialize, Deserialize)]
pub struct EndConfig {
    /// Its private key.
    pub secret: SecretKey,
    /// The peer's public key.
    pub peer: [u8; 32],
    /// Where it sends from and listens, on the link.
    pub local: SocketAddr,
    /// Where the peer listens, on the link.
    pub remote: SocketAddr,
    /// Its address in the tunnel.
    pub inner: Ipv4Addr,
    /// The peer's address in the tunnel.
    pub peer_inner: Ipv4Addr,
    /// Largest packet in the tunnel, bytes.
    pub mtu: u16,
    /// Name of the interface.
    pub interface: String,
}

/// What went through a tunnel's end, and what was refused there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Packets of the parties sealed and sent.
    pub sent_packets: u64,
    /// Packets of the parties received and opened.
    pub received_packets: u64,
    /// Datagrams refused because they had come before, or are too old to tell: the replay window.
    pub replayed: u64,
    /// Datagrams refused because a tag, key or format is wrong: changed on the way, or not the peer's.
    pub forged: u64,
    /// Datagrams refused for other reasons: no session yet, an answer that nothing waits for (any more), too
    /// many handshakes.
    pub other_refused: u64,
    /// Packets refused because their inner source address is not the peer's.
    pub wrong_source: u64,
    /// Handshake messages sent.
    pub handshakes: u64,
    /// Seconds since the session's keys were agreed on; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_age_s: Option<f64>,
}

/// What a datagram turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Nothing to do, or refused (see [`Stats`]).
    Nothing,
    /// Its packet is in the first bytes of the buffer, this many.
    Packet(usize),
    /// The first bytes of the buffer, this many, are an answer for the peer; then [`Core::queued`] wants to
    /// be called until it has nothing.
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

    /// Counters up to now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { session_age_s: self.tunn.time_since_last_handshake().map(|d| d.as_secs_f64()), ..self.stats }
    }

    /// Length of buffer that any of the calls needs for a packet or datagram of `len` bytes.
    #[must_use]
    pub fn room_for(len: usize) -> usize {
        (len + OVERHEAD).max(HANDSHAKE)
    }

    /// Seals a packet; how many bytes of `out` to send. 0 before the first handshake: the packet waits, and a
    /// handshake may go out instead. A packet for which `out` is too short is dropped.
    pub fn outgoing(&mut self, packet: &[u8], out: &mut [u8]) -> usize {
        if packet.is_empty() || out.len() < Self::room_for(packet.len()) {
            return 0;
        }
        let result = self.tunn.encapsulate(packet, out);
        let len = self.datagram_len(&result);
        if len == packet.len() + OVERHEAD {
            self.stats.sent_packets += 1;
        }
        len
    }

    /// Opens a datagram into `out`. One for which `out` is too short is refused.
    pub fn incoming(&mut self, datagram: &[u8], out: &mut [u8]) -> Incoming {
        if datagram.is_empty() || out.len() < Self::room_for(datagram.len()) {
            self.stats.forged += 1;
            return Incoming::Nothing;
        }
        match self.tunn.decapsulate(Some(self.peer_outer), datagram, out) {
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
                // A data message of an empty packet (keep-alive) is shorter than a handshake's.
                self.stats.handshakes += u64::from(len > OVERHEAD);
                Incoming::Answer(len)
            }
            TunnResult::Done => Incoming::Nothing,
        }
    }

    /// The next packet that waited for the handshake, sealed; 0 when there is none.
    pub fn queued(&mut self, out: &mut [u8]) -> usize {
        let result = self.tunn.decapsulate(None, &[], out);
        let len = self.datagram_len(&result);
        self.stats.sent_packets += u64::from(len > 0);
        len
    }

    /// Does what is due by the clock (resending handshakes, new keys every two minutes, keep-alives): how
    /// many bytes of `out` to send. Wants to be called about four times a second.
    pub fn tick(&mut self, out: &mut [u8]) -> usize {
        if out.len() < HANDSHAKE {
            return 0;
        }
        let result = self.tunn.update_timers(out);
        self.datagram_len(&result)
    }

    /// Starts a handshake, again if one is under way: how many bytes of `out` to send.
    pub fn handshake(&mut self, out: &mut [u8]) -> usize {
        if out.len() < HANDSHAKE {
            return 0;
        }
        let result = self.tunn.format_handshake_initiation(out, true);
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
