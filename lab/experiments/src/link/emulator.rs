//! The user-space part of a link: one thread per direction moves packets from one TUN device to the
//! other, each at its due time.
use super::queue::{DelayLine, REPLAY_AFTER, Treatment};
use crate::LabError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tun_rs::SyncDevice;

/// Most packets moved before the thread reads the clock and serves the other side.
const MAX_BATCH_PACKETS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) treatment: Treatment,
    /// Most bytes of packets under way.
    pub(super) capacity: usize,
    /// Longest packet, bytes.
    pub(super) slot: usize,
    pub(super) seed: u64,
}

/// Counters of one direction of a link, since its start. All zero for a link without delay or
/// impairments: its packets bypass the emulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Delivered packets, replays included; TCP segments that travel together count once.
    pub delivered: u64,
    /// Bytes delivered, IP headers included.
    pub bytes: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets with a byte changed on purpose.
    pub corrupted: u64,
    /// Packets sent again on purpose.
    pub replayed: u64,
    /// Packets dropped because too many bytes were under way.
    pub overflowed: u64,
    /// Processor time of the emulator.
    pub cpu: Duration,
}

/// Counters of both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Client to server.
    pub up: LinkCounters,
    /// Server to client.
    pub down: LinkCounters,
}

#[derive(Default)]
struct Shared {
    delivered: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    corrupted: AtomicU64,
    replayed: AtomicU64,
    overflowed: AtomicU64,
    thread: AtomicI32,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Shared {
    fn read(&self) -> LinkCounters {
        let schedstat = format!("/proc/self/task/{}/schedstat", self.thread.load(Ordering::Relaxed));
        let schedstat = std::fs::read_to_string(schedstat).unwrap_or_default();
        let cpu = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        LinkCounters {
            delivered: get(&self.delivered),
            bytes: get(&self.bytes),
            lost: get(&self.lost),
            corrupted: get(&self.corrupted),
            replayed: get(&self.replayed),
            overflowed: get(&self.overflowed),
            cpu: Duration::from_nanos(cpu),
        }
    }
}

fn start_error(error: impl std::fmt::Display) -> LabError {
    LabError::failed("starting the link emulator")(error)
}

/// Both directions between two TUN devices; dropping it ends them.
pub(super) struct Emulator {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    shared: [Arc<Shared>; 2],
}

impl Emulator {
    /// Starts moving packets from the first device to the second by `directions[0]`, and back by
    /// `directions[1]`.
    pub(super) fn start(devices: [SyncDevice; 2], directions: [Direction; 2]) -> Result<Self, LabError> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(start_error)?);
        let devices = devices.map(Arc::new);
        let mut emulator = Self { stop, threads: Vec::new(), shared: Default::default() };
        for (i, direction) in directions.into_iter().enumerate() {
            devices[i].set_nonblocking(true).map_err(start_error)?;
            let (source, target) = (devices[i].clone(), devices[1 - i].clone());
            let (stop, shared) = (emulator.stop.clone(), emulator.shared[i].clone());
            let thread = std::thread::Builder::new().name(format!("link-pump-{i}"));
            let pump = thread.spawn(move || Pump::new(&source, &target, &stop, direction, &shared).run());
            emulator.threads.push(pump.map_err(start_error)?);
        }
        Ok(emulator)
    }

    pub(super) fn counters(&self) -> Counters {
        Counters { up: self.shared[0].read(), down: self.shared[1].read() }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Cannot fail: the counter is far from its limit.
        _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

struct Pump<'a> {
    source: &'a SyncDevice,
    target: &'a SyncDevice,
    stop: &'a OwnedFd,
    direction: Direction,
    shared: &'a Shared,
    start: Instant,
    random: fastrand::Rng,
    line: DelayLine,
    replays: DelayLine,
    buffer: Vec<u8>,
}

impl<'a> Pump<'a> {
    fn new(
        source: &'a SyncDevice,
        target: &'a SyncDevice,
        stop: &'a OwnedFd,
        direction: Direction,
        shared: &'a Shared,
    ) -> Self {
        let replays = if direction.treatment.duplicate > 0.0 { direction.capacity } else { 0 };
        Self {
            source,
            target,
            stop,
            direction,
            shared,
            start: Instant::now(),
            random: fastrand::Rng::with_seed(direction.seed),
            line: DelayLine::new(direction.capacity),
            replays: DelayLine::new(replays),
            buffer: vec![0; direction.slot],
        }
    }

    fn run(mut self) {
        let thread = rustix::thread::gettid();
        self.shared.thread.store(thread.as_raw_nonzero().get(), Ordering::Relaxed);
        // Both improve the timing and may be refused: 1 ns timer slack instead of 50 us, and
        // precedence over the programs under test.
        _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        _ = rustix::process::setpriority_process(Some(thread), -15);
        loop {
            let has_sent = self.send_due();
            let Some(read) = self.read_batch() else { return };
            if !has_sent && !read && !self.wait() {
                return;
            }
        }
    }

    fn now(&self) -> u64 {
        // 584 years of nanoseconds.
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends due packets; returns whether there were any.
    fn send_due(&mut self) -> bool {
        let mut any = false;
        for line in [&mut self.line, &mut self.replays] {
            if line.next_due().is_none() {
                continue;
            }
            let now = self.start.elapsed().as_nanos() as u64;
            for _ in 0..MAX_BATCH_PACKETS {
                let Some(packet) = line.take_due(now) else { break };
                any = true;
                // A refused packet (the other side is shutting down, or out of memory) is lost.
                if let Ok(len) = rustix::io::write(self.target, &packet) {
                    add(&self.shared.delivered, 1);
                    add(&self.shared.bytes, len as u64);
                }
            }
        }
        any
    }

    /// Reads packets that have arrived; returns whether there were any, `None` if the device is gone.
    fn read_batch(&mut self) -> Option<bool> {
        for i in 0..MAX_BATCH_PACKETS {
            let packet = match rustix::io::read(self.source, &mut self.buffer[..]) {
                Ok(len) => &mut self.buffer[..len],
                Err(Errno::AGAIN | Errno::INTR) => return Some(i > 0),
                Err(_) => return None,
            };
            if !self.line.has_room(packet.len()) {
                add(&self.shared.overflowed, 1);
                continue;
            }
            let now = self.start.elapsed().as_nanos() as u64;
            let fate = self.direction.treatment.decide(now, packet, &mut self.random);
            if fate.replayed && self.replays.push(packet, fate.due + REPLAY_AFTER) {
                add(&self.shared.replayed, 1);
            }
            add(&self.shared.corrupted, u64::from(fate.corrupted));
            add(&self.shared.lost, u64::from(fate.lost));
            if !fate.lost {
                self.line.push(packet, fate.due);
            }
        }
        Some(true)
    }

    /// Sleeps until a packet arrives or is due; false at the end.
    fn wait(&self) -> bool {
        let next = [self.line.next_due(), self.replays.next_due()].into_iter().flatten().min();
        let timeout = next.map(|due| {
            let wait = Duration::from_nanos(due.saturating_sub(self.now()));
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
        });
        let mut fds = [PollFd::new(self.source, PollFlags::IN), PollFd::new(self.stop, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => fds[1].revents().is_empty(),
            Err(_) => false,
        }
    }
}
