//! Packet transfer of the user-space tunnel: a TUN interface on one side, a UDP socket on the
//! other.
//!
//! Batches reduce system calls, as in kernel WireGuard. The TUN interface delivers TCP in pieces of
//! up to 64 KiB (segmentation offload), which leave as one UDP call with a segment size (GSO);
//! received datagrams pass to the TUN interface likewise (GRO).
use super::core::{Core, EndConfig, Incoming, Stats};
use crate::LabError;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt,
    sockopt::{RcvBuf, RcvBufForce, UdpGroSegment},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use tun_rs::{DeviceBuilder, GROTable, IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

/// Pieces handled in one direction before the other has its turn.
const PIECES_PER_TURN: usize = 16;
/// Largest UDP payload, and so the largest batch.
const MAX_BATCH_BYTES: usize = 65_507;
/// Receive buffer of the socket, bytes with the kernel's own: some 20 ms at 1 Gbit/s.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Most segments of one UDP call (in older kernels; newer take 128).
const MAX_SEGMENTS: usize = 64;
/// Size of every packet buffer: a full coalesced packet, so that the TUN side can merge in place.
const PACKET_ROOM: usize = VIRTIO_NET_HDR_LEN * 2 + 65_535;

/// The interface and the socket of an end.
pub struct Io {
    device: SyncDevice,
    socket: UdpSocket,
}

impl Io {
    /// Creates both in this thread's network namespace; dropping this removes the interface.
    pub(super) fn open(config: &EndConfig) -> Result<Self, LabError> {
        let device = DeviceBuilder::new()
            .name(&config.interface)
            .ipv4(config.inner, 30, None)
            .mtu(config.mtu)
            .offload(true)
            .build_sync()
            .map_err(|e| match e.kind() {
                ErrorKind::PermissionDenied => LabError::unavailable(
                    "a WireGuard tunnel in user space",
                    format!("the TUN interface was refused: {e}"),
                    "run as root, or give CAP_NET_ADMIN",
                ),
                _ => LabError::failed("making the tunnel's interface")(e),
            })?;
        device.set_nonblocking(true).map_err(LabError::failed("preparing the tunnel's interface"))?;
        let socket = UdpSocket::bind(config.local).map_err(LabError::failed("opening the tunnel's socket"))?;
        socket.connect(config.remote).map_err(LabError::failed("opening the tunnel's socket"))?;
        // A few milliseconds without a core must not lose datagrams. Refused without rights beyond
        // this namespace; then the system's limit applies.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER);
        }
        // Without it (before Linux 5.0) datagrams arrive one by one, which costs time.
        let _ = setsockopt(&socket, UdpGroSegment, &true);
        Ok(Self { device, socket })
    }
}

/// Datagrams to send, one after the other.
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// The sent part: bytes, datagrams.
    sent: (usize, usize),
}

impl Batch {
    fn is_sent(&self) -> bool {
        self.sent.1 >= self.lengths.len()
    }
}

pub(super) struct Wire {
    core: Core,
    io: Io,
    /// Data from the interface, before it is cut into packets.
    raw: Vec<u8>,
    packets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    batch: Batch,
    /// Received datagrams, and one answer.
    received: Vec<u8>,
    answer: Vec<u8>,
    merge: GROTable,
    segmentation: bool,
    room: usize,
}

impl Wire {
    pub(super) fn new(core: Core, io: Io, mtu: u16) -> Self {
        let room = Core::room_for(usize::from(mtu));
        Self {
            core,
            io,
            raw: vec![0; VIRTIO_NET_HDR_LEN + 65_535],
            packets: (0..IDEAL_BATCH_SIZE).map(|_| Vec::with_capacity(PACKET_ROOM)).collect(),
            sizes: vec![0; IDEAL_BATCH_SIZE],
            batch: Batch {
                bytes: vec![0; IDEAL_BATCH_SIZE * room],
                lengths: Vec::with_capacity(IDEAL_BATCH_SIZE),
                sent: (0, 0),
            },
            received: vec![0; 65_536],
            answer: vec![0; room],
            merge: GROTable::default(),
            segmentation: true,
            room,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        self.core.stats()
    }

    pub(super) fn tick(&mut self) -> Result<(), LabError> {
        let len = self.core.tick(&mut self.answer);
        self.send_answer(len)
    }

    pub(super) fn handshake(&mut self) -> Result<(), LabError> {
        let len = self.core.handshake(&mut self.answer);
        self.send_answer(len)
    }

    fn send_answer(&mut self, len: usize) -> Result<(), LabError> {
        if len > 0 { forgive(self.io.socket.send(&self.answer[..len]).map(|_| ())) } else { Ok(()) }
    }

    /// Waits at most `timeout` for packets, datagrams or a command and moves the packets and
    /// datagrams; returns whether there is a command to read.
    pub(super) fn wait(&mut self, commands: BorrowedFd<'_>, timeout: Duration) -> Result<bool, LabError> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // While a batch waits for room in the socket, no more is read from the interface, whose
        // queue then slows the parties down.
        let (device, socket) = if self.batch.is_sent() {
            (PollFlags::IN, PollFlags::IN)
        } else {
            (PollFlags::empty(), PollFlags::IN | PollFlags::OUT)
        };
        let mut polled = [
            PollFd::new(&self.io.device, device),
            PollFd::new(&self.io.socket, socket),
            PollFd::from_borrowed_fd(commands, PollFlags::IN),
        ];
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(tunnel_error(e.into())),
        }
        let [device, socket, command] = polled.map(|p| p.revents());
        if device.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return Err(tunnel_error(io::Error::new(ErrorKind::NotConnected, "its interface is gone")));
        }
        if device.contains(PollFlags::IN) || socket.contains(PollFlags::OUT) {
            self.turn(Self::move_out)?;
        }
        if !(socket - PollFlags::OUT).is_empty() {
            self.turn(Self::move_in)?;
        }
        Ok(!command.is_empty())
    }

    fn turn(&mut self, step: fn(&mut Self) -> io::Result<bool>) -> Result<(), LabError> {
        for _ in 0..PIECES_PER_TURN {
            match step(self) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                other => {
                    forgive(other.map(|_| ()))?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sends the rest of the last batch, or seals and sends a new one from the interface; false if
    /// there is nothing or no room.
    fn move_out(&mut self) -> io::Result<bool> {
        if !self.send_batch()? {
            return Ok(false);
        }
        for packet in &mut self.packets {
            packet.resize(self.room, 0);
        }
        let count = match self.io.device.recv_multiple(&mut self.raw, &mut self.packets, &mut self.sizes, 0) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        let mut used = 0;
        self.batch.lengths.clear();
        for (packet, &size) in self.packets.iter().zip(&self.sizes).take(count) {
            let len = self.core.outgoing(&packet[..size], &mut self.batch.bytes[used..]);
            if len > 0 {
                self.batch.lengths.push(len);
                used += len;
            }
        }
        self.batch.sent = (0, 0);
        self.send_batch()
    }

    /// Sends the rest of the batch: runs of equal lengths (the last of a run may be shorter) in one
    /// call each. Returns whether all is sent.
    fn send_batch(&mut self) -> io::Result<bool> {
        while !self.batch.is_sent() {
            let (offset, next) = self.batch.sent;
            let (end, len) = self.run_from(next);
            let segment = (end - next > 1).then_some(self.batch.lengths[next]);
            match self.send_run(offset, len, segment) {
                Ok(()) => {}
                Err(Errno::EAGAIN) => return Ok(false),
                // An interface that cannot segment: sends one by one from now on.
                Err(Errno::EIO | Errno::EINVAL) if segment.is_some() => {
                    self.segmentation = false;
                    continue;
                }
                Err(error) => {
                    self.batch.sent = (0, self.batch.lengths.len());
                    return Err(error.into());
                }
            }
            self.batch.sent = (offset + len, end);
        }
        Ok(true)
    }

    /// End of the run that begins with datagram `next`, and its bytes.
    fn run_from(&self, next: usize) -> (usize, usize) {
        let size = self.batch.lengths[next];
        let (mut end, mut len) = (next, 0);
        for &datagram_len in &self.batch.lengths[next..] {
            let has_more = end > next;
            if datagram_len > size
                || len + datagram_len > MAX_BATCH_BYTES
                || end - next == MAX_SEGMENTS
                || (has_more && !self.segmentation)
            {
                break;
            }
            (end, len) = (end + 1, len + datagram_len);
            if datagram_len < size {
                break;
            }
        }
        (end, len)
    }

    fn send_run(&self, offset: usize, len: usize, segment: Option<usize>) -> Result<(), Errno> {
        let bytes = [IoSlice::new(&self.batch.bytes[offset..offset + len])];
        let segment = segment.and_then(|s| u16::try_from(s).ok());
        let control: Vec<ControlMessage<'_>> = segment.iter().map(ControlMessage::UdpGsoSegments).collect();
        sendmsg::<()>(self.io.socket.as_raw_fd(), &bytes, &control, MsgFlags::MSG_DONTWAIT, None).map(|_| ())
    }

    /// Opens the datagrams in the socket and passes them to the interface in one call, which merges
    /// packets of one connection.
    fn move_in(&mut self) -> io::Result<bool> {
        let mut opened = 0;
        let mut has_more = true;
        while opened + MAX_SEGMENTS <= self.packets.len() {
            let Some((len, segment)) = self.receive()? else {
                has_more = false;
                break;
            };
            opened = self.open_datagrams(len, segment, opened)?;
        }
        if opened > 0 {
            self.io.device.send_multiple(&mut self.merge, &mut self.packets[..opened], VIRTIO_NET_HDR_LEN)?;
        }
        Ok(has_more)
    }

    /// Opens `len` received bytes, datagrams of `segment` bytes, into the packets from index
    /// `opened` on; returns the new number of packets.
    fn open_datagrams(&mut self, len: usize, segment: usize, mut opened: usize) -> io::Result<usize> {
        let Self { core, io, received, packets, answer, .. } = self;
        for datagram in received[..len].chunks(segment.max(1)) {
            let Some(packet) = packets.get_mut(opened) else { break };
            packet.resize(VIRTIO_NET_HDR_LEN + Core::room_for(datagram.len()), 0);
            match core.incoming(datagram, &mut packet[VIRTIO_NET_HDR_LEN..]) {
                Incoming::Nothing => {}
                Incoming::Packet(size) => {
                    packet.truncate(VIRTIO_NET_HDR_LEN + size);
                    opened += 1;
                }
                Incoming::Answer(size) => {
                    io.socket.send(&packet[VIRTIO_NET_HDR_LEN..][..size])?;
                    send_queued(core, &io.socket, answer)?;
                }
            }
        }
        Ok(opened)
    }

    /// Length of the received data and of each datagram in it; `None` if there is nothing.
    fn receive(&mut self) -> io::Result<Option<(usize, usize)>> {
        let mut control = nix::cmsg_space!(i32);
        let mut bytes = [IoSliceMut::new(&mut self.received)];
        let socket = self.io.socket.as_raw_fd();
        match recvmsg::<()>(socket, &mut bytes, Some(&mut control), MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => Ok(None),
            Err(e) => Err(e.into()),
            Ok(message) => {
                let segment = message.cmsgs()?.find_map(|c| match c {
                    ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
                    _ => None,
                });
                Ok(Some((message.bytes, segment.unwrap_or(message.bytes))))
            }
        }
    }
}

fn send_queued(core: &mut Core, socket: &UdpSocket, answer: &mut [u8]) -> io::Result<()> {
    loop {
        match core.queued(answer) {
            0 => return Ok(()),
            len => socket.send(&answer[..len])?,
        };
    }
}

fn tunnel_error(error: io::Error) -> LabError {
    LabError::failed("tunnel")(error)
}

/// Ignores errors that packets can cause: an absent peer, a full queue, a packet that one side
/// refuses. TCP inside repeats the data.
fn forgive(result: io::Result<()>) -> Result<(), LabError> {
    let Err(error) = result else {
        return Ok(());
    };
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::WouldBlock
        | ErrorKind::Interrupted
        | ErrorKind::InvalidInput
        | ErrorKind::OutOfMemory
        | ErrorKind::Other => Ok(()),
        _ if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::NOBUFS) => Ok(()),
        _ => Err(tunnel_error(error)),
    }
}
