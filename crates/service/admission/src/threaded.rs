//! Accepts connections for programs with a thread for each connection.
use crate::admission::{Admission, ConnectionSlot, Refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// With fewer, a flood makes the system lose honest connections too.
const BACKLOG: i32 = 1024;
/// How long accepting pauses when the system is out of resources.
const PAUSE: Duration = Duration::from_millis(100);
/// Stack of a connection's thread; the system commits it page by page.
const STACK_BYTES: usize = 2 << 20;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether a program continues to accept.
pub enum Accepting {
    /// Continue, and ask again within this time.
    GoOn(Duration),
    /// Stop accepting.
    Over,
}

/// A connection whose peer is not authenticated.
pub struct Incoming {
    /// The socket, which an eviction closes.
    pub stream: TcpStream,
    /// The peer's address.
    pub from: SocketAddr,
    /// The handshake slot.
    pub slot: ConnectionSlot,
}

/// A listener with a thread for each connection.
pub struct ThreadedListener {
    listener: TcpListener,
    admission: Admission,
    thread: &'static str,
}

impl ThreadedListener {
    /// Listens; `thread` names the connections' threads.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(address: SocketAddr, admission: Admission, thread: &'static str) -> io::Result<Self> {
        Ok(Self { listener: listen(address)?, admission, thread })
    }

    /// The address that the listener is bound to.
    ///
    /// # Errors
    /// The system cannot tell the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts until [`Accepting::Over`]; `serve` runs each connection from its first byte on.
    pub fn run(&self, accepting: impl Fn() -> Accepting, serve: impl Fn(Incoming) + Send + Sync + 'static) {
        let serve = Arc::new(serve);
        while let Accepting::GoOn(within) = accepting() {
            self.admission.sum_up();
            match self.listener.accept() {
                Ok((stream, from)) => self.take(stream, from, &serve),
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(within),
                Err(e) => {
                    // Open connections continue, and closing ones free resources.
                    self.count_refusal(format!("accepting a connection: {e}"));
                    thread::sleep(PAUSE);
                }
            }
        }
        self.admission.close();
    }

    /// Waits for a connection or the next log line, for `within` at most.
    fn wait(&self, within: Duration) {
        let alarm = self.admission.alarm().map(|due| due.saturating_duration_since(Instant::now()));
        let wait = alarm.map_or(within, |alarm| within.min(alarm)).max(Duration::from_millis(1));
        let wait = Timespec { tv_sec: wait.as_secs().min(3600) as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        // An interrupted wait is harmless: the caller looks at the listener in any case.
        let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&wait));
    }

    fn count_refusal(&self, detail: String) {
        self.admission.count_refusal(Refusal { kind: "that could not be accepted", from: None, detail });
    }

    fn take(&self, stream: TcpStream, address: SocketAddr, serve: &Arc<impl Fn(Incoming) + Send + Sync + 'static>) {
        let socket = match stream.set_nonblocking(false).and_then(|()| stream.try_clone()) {
            Ok(socket) => socket,
            Err(e) => return self.count_refusal(format!("{address}: duplicating its connection: {e}")),
        };
        let slot = loop {
            match self.admission.admit(address.ip()) {
                Ok(slot) => break slot,
                Err(retry_at) => thread::sleep(retry_at.saturating_duration_since(Instant::now())),
            }
        };
        slot.close_on_eviction(socket);
        let (handler, incoming) = (Arc::clone(serve), Incoming { stream, from: address, slot });
        let builder = thread::Builder::new().name(self.thread.into()).stack_size(STACK_BYTES);
        if let Err(e) = builder.spawn(move || handler(incoming)) {
            self.count_refusal(format!("starting a thread: {e}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, PoolLimits};
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn silent_connections_make_room_for_others() {
        let pools = vec![PoolLimits { connections: 1, per_peer: 1 }];
        let admission = Admission::new(Limits { handshakes: 4, handshake_timeout: Duration::from_secs(60), pools });
        let listener = ThreadedListener::bind("127.0.0.1:0".parse().unwrap(), admission.clone(), "test").unwrap();
        let (address, over) = (listener.address().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&over);
        let running = thread::spawn(move || {
            let accepting = || match is_over.load(Ordering::Relaxed) {
                true => Accepting::Over,
                false => Accepting::GoOn(Duration::from_millis(5)),
            };
            listener.run(accepting, |mut incoming| {
                let mut byte = [0];
                if incoming.stream.read_exact(&mut byte).is_ok() && incoming.slot.authenticate(0, [1; 32]).is_ok() {
                    incoming.stream.write_all(&byte).unwrap();
                }
            });
        });
        let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut honest = TcpStream::connect(address).unwrap();
        honest.write_all(&[7]).unwrap();
        let mut answer = [0];
        honest.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [7]);
        assert!(admission.counts().handshakes <= 4);
        over.store(true, Ordering::Relaxed);
        running.join().unwrap();
        drop(silent);
    }
}
