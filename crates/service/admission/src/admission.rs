//! Handshake slots, pools and refusals under one lock, for threads and tasks.
use crate::ConnectionId;
use crate::deadline::HandshakeDeadline;
use crate::eviction::{Evicted, Eviction};
use crate::handshakes::HandshakeSlots;
use crate::pools::{ConnectionPool, Full, Peer, PoolLimits};
use crate::refusals::{RefusalReason, RefusalSummary};
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const GAVE_WAY: RefusalReason = "that gave way to newer ones before they had said who they are";
const IDLE_GAVE_WAY: RefusalReason = "of known peers that were idle and gave way to others";

/// How many connections a program admits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections whose peer is not authenticated.
    pub handshakes: usize,
    /// How long an unauthenticated peer may send nothing after its connection is accepted
    /// ([`HandshakeDeadline`]).
    pub handshake_timeout: Duration,
    /// Connections of authenticated peers, by kind.
    pub pools: Vec<PoolLimits>,
}

type Observer = Box<dyn Fn(RefusalReason) + Send + Sync>;

struct State {
    next: ConnectionId,
    handshakes: HandshakeSlots,
    pools: Vec<ConnectionPool>,
    evictions: HashMap<ConnectionId, Arc<Eviction>>,
    refusals: RefusalSummary,
}

struct Shared {
    handshake_timeout: Duration,
    observer: Option<Observer>,
    state: Mutex<State>,
}

/// The connections of a program, and the log of its refusals.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

/// Numbers of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Connections whose peer is not authenticated.
    pub handshakes: usize,
    /// Number of handshake slots.
    pub handshake_slots: usize,
    /// Connections of authenticated peers, by pool.
    pub pools: Vec<usize>,
}

/// A refused or broken connection, or a refused request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Reason, worded to follow its count in the line that sums up.
    pub kind: RefusalReason,
    /// The peer's address, if known.
    pub from: Option<IpAddr>,
    /// Description of this refusal.
    pub detail: String,
}

impl Admission {
    /// An admission without connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::build(limits, None)
    }

    /// As [`new`](Self::new); calls `observer` for each refusal.
    #[must_use]
    pub fn with_observer(limits: Limits, observer: impl Fn(RefusalReason) + Send + Sync + 'static) -> Self {
        Self::build(limits, Some(Box::new(observer)))
    }

    fn build(limits: Limits, observer: Option<Observer>) -> Self {
        let Limits { handshakes, handshake_timeout, pools } = limits;
        let state = State {
            next: 0,
            handshakes: HandshakeSlots::new(handshakes, handshake_timeout),
            pools: pools.into_iter().map(ConnectionPool::new).collect(),
            evictions: HashMap::new(),
            refusals: RefusalSummary::default(),
        };
        Self(Arc::new(Shared { handshake_timeout, observer, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves no half-made change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a handshake slot for a connection that was accepted.
    ///
    /// # Errors
    /// When to try again; until then new connections wait in the system's queue.
    pub fn admit(&self, address: IpAddr) -> Result<ConnectionSlot, Instant> {
        let (now, mut state) = (Instant::now(), self.state());
        let id = state.next;
        let evicted = state.handshakes.enter(id, address, now)?;
        state.next += 1;
        let eviction = Arc::new(Eviction::default());
        state.evictions.insert(id, Arc::clone(&eviction));
        if let Some((evicted_id, _)) = evicted {
            state.evict(evicted_id);
        }
        drop(state);
        if let Some((_, evicted_address)) = evicted {
            let detail =
                format!("a connection from {evicted_address} gave way to a newer one before it had said who it is");
            self.count_refusal(Refusal { kind: GAVE_WAY, from: Some(evicted_address), detail });
        }
        let deadline = HandshakeDeadline::new(now, self.0.handshake_timeout);
        Ok(ConnectionSlot { admission: self.clone(), id, deadline, eviction })
    }

    /// As [`ConnectionSlot::authenticate`], for the connection with this id.
    ///
    /// # Errors
    /// [`Full`]; the connection then has no slot any more.
    pub fn authenticate(&self, id: ConnectionId, pool: usize, peer: Peer) -> Result<(), Full> {
        let mut state = self.state();
        if !state.handshakes.leave(id) {
            return Err(Full::Evicted);
        }
        let Some(evicted_id) = state.pools[pool].enter(id, peer, Instant::now())? else { return Ok(()) };
        state.evict(evicted_id);
        drop(state);
        let detail = "an idle connection of the peer that has most gave way to another peer's".into();
        self.count_refusal(Refusal { kind: IDLE_GAVE_WAY, from: None, detail });
        Ok(())
    }

    /// As [`ConnectionSlot::begin_request`], for the connection with this id.
    #[must_use]
    pub fn begin_request(&self, id: ConnectionId) -> Busy {
        self.state().pools.iter_mut().for_each(|pool| pool.begin_request(id));
        Busy { admission: self.clone(), id }
    }

    /// Counts a refusal or a broken connection. The first after a quiet minute is logged at once,
    /// later ones once a minute.
    pub fn count_refusal(&self, refusal: Refusal) {
        let Refusal { kind, from, detail } = refusal;
        tracing::debug!("refused: {detail}");
        let line = self.state().refusals.count(Instant::now(), kind, from, detail);
        log(line);
        if let Some(observer) = &self.0.observer {
            observer(kind);
        }
    }

    /// When [`sum_up`](Self::sum_up) is due.
    #[must_use]
    pub fn alarm(&self) -> Option<Instant> {
        self.state().refusals.alarm()
    }

    /// Logs the counted refusals, if a line is due.
    pub fn sum_up(&self) {
        let line = self.state().refusals.sum_up(Instant::now());
        log(line);
    }

    /// Logs the counted refusals at the end of the program.
    pub fn close(&self) {
        let line = self.state().refusals.take_line();
        log(line);
    }

    /// Returns the numbers of connections.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts {
            handshakes: state.handshakes.taken(),
            handshake_slots: state.handshakes.slots(),
            pools: state.pools.iter().map(ConnectionPool::taken).collect(),
        }
    }
}

fn log(line: Option<String>) {
    if let Some(line) = line {
        tracing::warn!("{line}");
    }
}

impl State {
    fn evict(&mut self, id: ConnectionId) {
        if let Some(eviction) = self.evictions.get(&id) {
            eviction.evict();
        }
    }

    fn leave(&mut self, id: ConnectionId) {
        self.handshakes.leave(id);
        for pool in &mut self.pools {
            pool.leave(id);
        }
        if let Some(eviction) = self.evictions.remove(&id) {
            eviction.forget();
        }
    }
}

/// The slot of a connection, from its acceptance until the drop of this value.
pub struct ConnectionSlot {
    admission: Admission,
    id: ConnectionId,
    deadline: HandshakeDeadline,
    eviction: Arc<Eviction>,
}

impl ConnectionSlot {
    /// The connection's id.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The deadline for authenticating the peer, as it is before the first byte.
    #[must_use]
    pub fn deadline(&self) -> HandshakeDeadline {
        self.deadline
    }

    /// The admission that the slot belongs to.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Moves the connection from its handshake slot to a pool, when its peer is authenticated.
    ///
    /// # Errors
    /// [`Full`]; the connection then has no slot any more.
    pub fn authenticate(&self, pool: usize, peer: Peer) -> Result<(), Full> {
        self.admission.authenticate(self.id, pool, peer)
    }

    /// Completes when the slot is given to another: then the connection must end.
    #[must_use]
    pub fn wait_for_eviction(&self) -> Evicted {
        Evicted(Arc::clone(&self.eviction))
    }

    /// Whether the slot was given to another.
    #[must_use]
    pub fn is_evicted(&self) -> bool {
        self.eviction.is_evicted()
    }

    /// Sets the socket that an eviction closes while the slot exists.
    pub fn close_on_eviction(&self, socket: TcpStream) {
        self.eviction.close_on_eviction(socket);
    }

    /// Marks a request as in work until the result is dropped. Meanwhile, the connection is not
    /// evicted.
    #[must_use]
    pub fn begin_request(&self) -> Busy {
        self.admission.begin_request(self.id)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.admission.state().leave(self.id);
    }
}

/// A request that is in work.
pub struct Busy {
    admission: Admission,
    id: ConnectionId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now = Instant::now();
        self.admission.state().pools.iter_mut().for_each(|pool| pool.end_request(self.id, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    fn limits(handshakes: usize, connections: usize) -> Limits {
        let pool = PoolLimits { connections, per_peer: connections };
        Limits { handshakes, handshake_timeout: Duration::from_secs(10), pools: vec![pool; 2] }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn slot_moves_from_handshake_to_pool_and_is_given_back() {
        let counted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&counted);
        let admission = Admission::with_observer(limits(2, 1), move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let first = admission.admit(address(1)).unwrap();
        assert!(first.deadline().end() > Instant::now());
        first.authenticate(0, [1; 32]).unwrap();
        let second = admission.admit(address(1)).unwrap();
        assert_eq!(second.authenticate(0, [2; 32]), Err(Full::Pool));
        let third = admission.admit(address(1)).unwrap();
        third.authenticate(1, [2; 32]).unwrap();
        assert_eq!(admission.counts(), Counts { handshakes: 0, handshake_slots: 2, pools: vec![1, 1] });
        drop((first, second, third));
        assert_eq!(admission.counts().pools, [0, 0]);
        assert!(admission.state().evictions.is_empty());
        admission.count_refusal(Refusal { kind: "of a test", from: None, detail: "one".into() });
        assert_eq!(counted.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn eviction_wakes_its_task_and_closes_its_socket() {
        let admission = Admission::new(limits(1, 1));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let old = admission.admit(address(1)).unwrap();
        old.close_on_eviction(listener.accept().unwrap().0);
        let mut evicted = pin!(old.wait_for_eviction());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(evicted.as_mut().poll(&mut context), Poll::Pending);
        // This address holds all slots, so it hoards.
        let new = admission.admit(address(2)).unwrap();
        assert!(old.is_evicted());
        assert!(!new.is_evicted());
        assert_eq!(evicted.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(std::io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
        assert_eq!(old.authenticate(0, [1; 32]), Err(Full::Evicted));
        assert_eq!(admission.counts().handshakes, 1);
    }
}
