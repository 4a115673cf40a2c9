//! Log lines leave through a thread of their own. Serving never waits for whoever reads them: lines that find
//! the queue full are dropped, and a reader that is gone is nobody's error.
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const QUEUE: usize = 1024;

/// Starts logging to stderr, as `TACIT_LOG` asks; warnings and errors without it.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start() -> io::Result<()> {
    let (sender, lines) = sync_channel(QUEUE);
    thread::Builder::new().name("tacit-log".into()).spawn(move || write_out(&lines, &mut io::stderr()))?;
    // What does not parse asks for nothing more than the usual.
    let filter = EnvFilter::try_from_env("TACIT_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(Queue(sender)).init();
    Ok(())
}

fn write_out(lines: &Receiver<Vec<u8>>, out: &mut impl Write) {
    for line in lines {
        // A reader may come back: the next line is tried again.
        let _ = out.write_all(&line);
    }
}

/// Where lines are put.
#[derive(Clone)]
struct Queue(SyncSender<Vec<u8>>);

impl Write for Queue {
    /// The subscriber hands over a whole line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Queue {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_lines_and_blocks_nobody() {
        let (sender, lines) = sync_channel(2);
        let mut queue = Queue(sender);
        for line in [b"one\n", b"two\n", b"six\n"] {
            assert_eq!(queue.write(line).unwrap(), 4);
        }
        drop(queue);
        let mut out = Vec::new();
        write_out(&lines, &mut out);
        assert_eq!(out, b"one\ntwo\n");
    }

    #[test]
    fn a_reader_that_is_gone_is_no_error() {
        let (sender, lines) = sync_channel(2);
        drop(lines);
        assert_eq!(Queue(sender).write(b"line\n").unwrap(), 5);
        let (sender, lines) = sync_channel(2);
        sender.send(b"line\n".to_vec()).unwrap();
        drop(sender);
        let mut closed = &mut [0u8; 0][..];
        write_out(&lines, &mut closed);
    }
}
