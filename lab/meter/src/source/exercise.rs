//! A machine under a controlled load while a source is read; tests replace its clock and load.
use super::{Source, Usage, Value};
use crate::MeterError;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tacit_measure::usage::{HostReader, ProcessLimits, Roots, busy_s};

/// A load for the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Cores kept busy with arithmetic.
    pub cores: u32,
    /// Whether one TCP stream runs over the loopback interface as fast as it can.
    pub network: bool,
}

/// A machine with a clock and a load.
pub trait Exercise {
    /// Number of cores.
    fn cores(&self) -> u32;

    /// Ends the present load and begins another.
    ///
    /// # Errors
    /// [`MeterError::io`] if the loopback connection cannot be made.
    fn load(&mut self, load: Load) -> Result<(), MeterError>;

    /// Lets time pass.
    fn wait(&mut self, time: Duration);

    /// Use so far; `bytes` are those of the load's own network stream, both ways.
    ///
    /// # Errors
    /// [`MeterError::io`] if processor times cannot be read.
    fn usage(&mut self) -> Result<Usage, MeterError>;
}

/// This machine.
pub struct ThisMachine {
    host: HostReader,
    started: Instant,
    cores: u32,
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl ThisMachine {
    /// An idle machine with its clock at 0.
    ///
    /// # Errors
    /// [`MeterError::io`] if `/proc/stat` cannot be read.
    pub fn new() -> Result<Self, MeterError> {
        let cores = u32::try_from(ProcessLimits::read(&Roots::default()).threads()).unwrap_or(u32::MAX);
        Ok(Self {
            host: HostReader::open(&Roots::default())?,
            started: Instant::now(),
            cores,
            stop: Arc::default(),
            bytes: Arc::default(),
            threads: Vec::new(),
        })
    }

    fn rest(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A load that panicked has ended, as required.
            let _ = thread.join();
        }
        self.stop = Arc::default();
    }

    fn network(&mut self) -> Result<(), MeterError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(loopback_error)?;
        let address = listener.local_addr().map_err(loopback_error)?;
        let mut sender = TcpStream::connect(address).map_err(loopback_error)?;
        let (mut receiver, _) = listener.accept().map_err(loopback_error)?;
        let (stop, sent, received) = (self.stop.clone(), self.bytes.clone(), self.bytes.clone());
        self.threads.push(std::thread::spawn(move || {
            let block = [0x5a; 64 << 10];
            while !stop.load(Ordering::Relaxed) && sender.write_all(&block).is_ok() {
                sent.fetch_add(block.len() as u64, Ordering::Relaxed);
            }
        }));
        self.threads.push(std::thread::spawn(move || {
            let mut block = [0; 64 << 10];
            while let Ok(read @ 1..) = receiver.read(&mut block) {
                received.fetch_add(read as u64, Ordering::Relaxed);
            }
        }));
        Ok(())
    }
}

fn loopback_error(error: std::io::Error) -> MeterError {
    MeterError::io("127.0.0.1")(error)
}

/// Multiplications that depend on each other and cannot be optimised away.
fn spin(stop: &AtomicBool) {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            x = std::hint::black_box(x.wrapping_mul(x | 1).rotate_left(17));
        }
    }
}

impl Exercise for ThisMachine {
    fn cores(&self) -> u32 {
        self.cores
    }

    fn load(&mut self, load: Load) -> Result<(), MeterError> {
        self.rest();
        for _ in 0..load.cores {
            let stop = self.stop.clone();
            self.threads.push(std::thread::spawn(move || spin(&stop)));
        }
        if load.network { self.network() } else { Ok(()) }
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn usage(&mut self) -> Result<Usage, MeterError> {
        let cpu_s = busy_s(&self.host.cores()?);
        Ok(Usage { elapsed: self.started.elapsed(), cpu_s, bytes: self.bytes.load(Ordering::Relaxed) })
    }
}

impl Drop for ThisMachine {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Readings of a source's counted rails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Mean watts of each interval.
    pub(crate) watts: Vec<f64>,
    /// CPU seconds, bytes and seconds of the whole stretch.
    pub(crate) used: Usage,
    pub(crate) error: Option<String>,
}

/// Reads a source `count` times; skips intervals in which a counted rail has no value.
///
/// # Errors
/// [`MeterError::io`] if processor times cannot be read; errors of the source are in the result.
pub(crate) fn watch(
    source: &mut dyn Source,
    machine: &mut dyn Exercise,
    interval: Duration,
    count: u32,
) -> Result<Watched, MeterError> {
    let start = machine.usage()?;
    let mut watched = Watched::default();
    let mut last = (start, source.read(&start).ok());
    for _ in 0..count {
        machine.wait(interval);
        let usage = machine.usage()?;
        let values = source.read(&usage).map_err(|e| watched.error.get_or_insert(e.to_string()).len()).ok();
        let passed = usage.elapsed.saturating_sub(last.0.elapsed).as_secs_f64();
        if let (Some(previous), Some(current)) = (&last.1, &values) {
            watched.watts.extend(total(source, previous, current, passed));
        }
        last = (usage, values);
    }
    watched.used = Usage {
        elapsed: last.0.elapsed.saturating_sub(start.elapsed),
        cpu_s: last.0.cpu_s - start.cpu_s,
        bytes: last.0.bytes.saturating_sub(start.bytes),
    };
    Ok(watched)
}

/// Watts of the counted rails between two readings.
fn total(source: &dyn Source, previous: &[Value], current: &[Value], passed: f64) -> Option<f64> {
    let pairs = source.info().rails.iter().zip(previous.iter().zip(current)).filter(|(rail, _)| rail.counted);
    pairs
        .map(|(_, pair)| match pair {
            (_, Value::Watts(watts)) => Some(*watts),
            (Value::Joules(previous), Value::Joules(current)) if passed > 0.0 => Some((current - previous) / passed),
            _ => None,
        })
        .sum()
}
