//! What ends a connection whose slot was given to another, in threads or in tasks.
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct State {
    is_evicted: bool,
    /// Of the task that waits.
    waker: Option<Waker>,
    /// Of a thread that reads.
    socket: Option<TcpStream>,
}

/// Whether a connection was evicted.
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

    /// This socket is closed by an eviction.
    pub(crate) fn closes(&self, socket: TcpStream) {
        let mut state = self.state();
        match state.is_evicted {
            true => close(&socket),
            false => state.socket = Some(socket),
        }
    }

    /// Whose connection has ended: no socket is held for it any more.
    pub(crate) fn forget(&self) {
        self.state().socket = None;
    }
}

fn close(socket: &TcpStream) {
    // Closed already is as good.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Ends when its connection is evicted.
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
