//! Sends a half to a party with little of it buffered in this process.
use tacit_backends::BackendError;
use tacit_client::dealer::wire::{BYTES, PIECE};
use tacit_net::Channel;
use zeroize::Zeroizing;

type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + 'a;

/// Most bytes of a half that wait in this process for a slow reader; a transport would queue more.
const MAX_UNSENT_BYTES: usize = 4 * PIECE;

/// Sends the bytes from `produce` in messages of [`PIECE`] bytes.
pub(super) fn send_in_pieces(
    channel: &mut Channel,
    produce: impl FnOnce(&mut Sink<'_>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let (mut buffer, mut unsent) = (Zeroizing::new(Vec::with_capacity(PIECE)), 0);
    produce(&mut |mut bytes| {
        while !bytes.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(PIECE - buffer.len()));
            buffer.extend_from_slice(head);
            bytes = tail;
            if buffer.len() == PIECE {
                channel.send(BYTES, &buffer)?;
                buffer.clear();
                unsent += PIECE;
            }
            if unsent == MAX_UNSENT_BYTES {
                channel.settle()?;
                unsent = 0;
            }
        }
        Ok(())
    })?;
    if !buffer.is_empty() {
        channel.send(BYTES, &buffer)?;
    }
    Ok(channel.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};
    use tacit_net::Transport;

    /// A transport that queues all writes, as those with a writer thread do. Its peer reads only
    /// during `settle`.
    struct Queue {
        waiting: usize,
        max_waiting: Arc<AtomicUsize>,
    }

    impl Read for Queue {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Queue {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.waiting += bytes.len();
            self.max_waiting.fetch_max(self.waiting, Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Transport for Queue {
        fn peer(&self) -> String {
            "a slow party".into()
        }

        fn set_stall_timeout(&mut self, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn set_deadline(&mut self, _: Option<Instant>) {}

        fn settle(&mut self) -> io::Result<()> {
            self.waiting = 0;
            Ok(())
        }
    }

    #[test]
    fn bounds_bytes_that_wait_for_slow_reader() {
        let max_waiting = Arc::new(AtomicUsize::new(0));
        let mut channel = Channel::new(Box::new(Queue { waiting: 0, max_waiting: Arc::clone(&max_waiting) }));
        let half = vec![7; 1 << 20];
        send_in_pieces(&mut channel, |sink| (0..64).try_for_each(|_| sink(&half))).unwrap();
        let (total, max_waiting) = (channel.total_traffic().sent, max_waiting.load(Relaxed));
        assert!(total > 64 << 20, "{max_waiting} of {total} bytes waited");
        assert!(
            (MAX_UNSENT_BYTES..=MAX_UNSENT_BYTES + PIECE).contains(&max_waiting),
            "{max_waiting} of {total} bytes waited"
        );
    }
}
