//! Ends a connection whose slot was given to another, in threads or in tasks.
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct State {
    is_evicted: bool,
    /// Waker of the task that waits for the eviction.
    waker: Option<Waker>,
    /// Socket of a thread that reads.
    socket: Option<TcpStream>,
}

#[derive(Default)]
pub(crate) struct Eviction(Mutex<State>);

impl Eviction {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn evict(&self) {
        let mut state = self.state();
        state.is_evicted = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        if let Some(socket) = state.socket.take() {
            close(&socket);
        }
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.state().is_evicted
    }

    pub(crate) fn close_on_eviction(&self, socket: TcpStream) {
        let mut state = self.state();
        match state.is_evicted {
            true => close(&socket),
            false => state.socket = Some(socket),
        }
    }

    pub(crate) fn forget(&self) {
        self.state().socket = None;
    }
}

fn close(socket: &TcpStream) {
    // The only failure is a socket that is closed already.
    let _ = socket.shutdown(Shutdown::Both);
}

/// A future that completes when its connection is evicted.
pub struct Evicted(pub(crate) Arc<Eviction>);

impl Future for Evicted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state();
        if state.is_evicted {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
