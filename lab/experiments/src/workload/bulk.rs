//! Bulk transfer: blocks of random data one way, confirmations the other way.
//!
//! A block is `number u32 | length u32 (bit 31: the last)` and its data; the data is written
//! directly from memory. For each [`ACK_BYTES`] bytes received the receiver sends the total so far (u64).
//! The sender has at most [`WINDOW_BYTES`] bytes unconfirmed, so that queues on the way do not hide the
//! duration of the transfer. With a time limit the sender stops when the sent bytes will fill it
//! at the rate so far (it always sends a first window). After the last block the
//! receiver sends `received u64 | wrong u64 | first wrong offset u64`.
use super::{Bulk, Check, Counts, send, step_error, words};
use crate::LabError;
use std::time::{Duration, Instant};
use tacit_net::Transport;

/// Bytes of data in a block, except the last.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// Bytes before a block's data.
const HEADER_BYTES: usize = 8;
const LAST_FLAG: u32 = 1 << 31;
/// Number of different blocks in memory, sent cyclically: more than the fastest caches hold.
const BLOCK_COUNT: usize = 16;
/// Bytes per confirmation of the receiver.
const ACK_BYTES: u64 = 256 << 10;
/// Most unconfirmed bytes: more than any link here has under way.
const WINDOW_BYTES: u64 = 4 << 20;

pub(super) struct Data(Vec<Vec<u8>>);

impl Data {
    pub(super) fn new(seed: u64) -> Self {
        let random = super::random(seed, BLOCK_COUNT * (BLOCK_BYTES + HEADER_BYTES));
        Self(random.chunks_exact(BLOCK_BYTES + HEADER_BYTES).map(<[u8]>::to_vec).collect())
    }

    fn block(&mut self, number: u64) -> &mut Vec<u8> {
        &mut self.0[(number % BLOCK_COUNT as u64) as usize]
    }

    /// Sends the bytes of `bulk`, or those that its limit allows, and waits for the receiver's
    /// verdict.
    pub(super) fn send(&mut self, transport: &mut dyn Transport, step: &str, bulk: Bulk) -> Result<Counts, LabError> {
        let (total, limit) = (bulk.bytes, bulk.seconds.map(Duration::from_secs));
        let (mut sent, mut heard, mut number, start) = (0u64, 0u64, 0u64, Instant::now());
        loop {
            let len = (total - sent).min(BLOCK_BYTES as u64);
            let is_over = limit.is_some_and(|limit| time_for(sent + len, heard, start.elapsed()) >= limit);
            let last = sent + len == total || is_over;
            let block = self.block(number);
            let word = len as u32 | if last { LAST_FLAG } else { 0 };
            block[..4].copy_from_slice(&(number as u32).to_le_bytes());
            block[4..HEADER_BYTES].copy_from_slice(&word.to_le_bytes());
            transport.write_all(&block[..HEADER_BYTES + len as usize]).map_err(step_error("sending bulk data"))?;
            (sent, number) = (sent + len, number + 1);
            if last {
                break;
            }
            while sent - heard > WINDOW_BYTES {
                heard = hear(transport, heard, sent)?;
            }
        }
        transport.flush().map_err(step_error("sending bulk data"))?;
        for _ in heard / ACK_BYTES..sent / ACK_BYTES {
            hear(transport, 0, sent)?;
        }
        let mut report = [0u8; 24];
        transport.read_exact(&mut report).map_err(step_error("waiting for the receiver's word"))?;
        let [received, wrong_bytes, first] = words(&report);
        Check { received, wrong: wrong_bytes, first }.verdict(step, sent)?;
        Ok((sent, 0, number))
    }

    /// Receives until the last block, at most `max` bytes, compares all data and reports the result.
    pub(super) fn receive(&mut self, transport: &mut dyn Transport, step: &str, max: u64) -> Result<Counts, LabError> {
        let (mut check, mut number, mut reported) = (Check::default(), 0u64, 0u64);
        let mut buffer = vec![0u8; BLOCK_BYTES];
        loop {
            let (len, last) = header(transport, step, number, max - check.received)?;
            transport.read_exact(&mut buffer[..len]).map_err(step_error("receiving bulk data"))?;
            check.compare(&buffer[..len], &self.block(number)[HEADER_BYTES..HEADER_BYTES + len]);
            number += 1;
            while check.received - reported >= ACK_BYTES {
                reported += ACK_BYTES;
                tell(transport, &[reported])?;
            }
            if last {
                break;
            }
        }
        tell(transport, &[check.received, check.wrong, check.first])?;
        check.verdict(step, check.received)?;
        Ok((0, check.received, number))
    }
}

/// Expected duration of `sent` bytes if `heard` of them took `elapsed`. Below one window of `heard`
/// bytes, while TCP still adapts to the link, only the elapsed time counts.
fn time_for(sent: u64, heard: u64, elapsed: Duration) -> Duration {
    if heard < WINDOW_BYTES {
        return elapsed;
    }
    // Any number far beyond the limits is equivalent.
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * sent as f64 / heard as f64).unwrap_or(Duration::MAX)
}

/// The receiver's next total, which must be larger than before and at most the sent bytes.
fn hear(transport: &mut dyn Transport, before: u64, sent_bytes: u64) -> Result<u64, LabError> {
    let mut word = [0u8; 8];
    transport.read_exact(&mut word).map_err(step_error("waiting for the receiver's word"))?;
    let [heard] = words(&word);
    if heard <= before || heard > sent_bytes {
        return Err(changed_error("the receiver's word"));
    }
    Ok(heard)
}

fn tell(transport: &mut dyn Transport, words: &[u64]) -> Result<(), LabError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    send(transport, &bytes, "telling the sender what came")
}

fn header(
    transport: &mut dyn Transport,
    step: &str,
    expected: u64,
    left_bytes: u64,
) -> Result<(usize, bool), LabError> {
    let mut bytes = [0u8; HEADER_BYTES];
    transport.read_exact(&mut bytes).map_err(step_error("receiving bulk data"))?;
    let [number, word] = [0, 4]
        .map(|offset| u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]]));
    let (len, last) = ((word & !LAST_FLAG) as usize, word & LAST_FLAG != 0);
    if number != expected as u32
        || len == 0
        || len > BLOCK_BYTES
        || len as u64 > left_bytes
        || (!last && len != BLOCK_BYTES)
    {
        return Err(changed_error(step));
    }
    Ok((len, last))
}

fn changed_error(step: &str) -> LabError {
    let detail = "a block's header makes no sense: bytes arrived changed, and this transport does not notice changes";
    LabError::failed(step)(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_looks_ahead_after_slow_start() {
        let (second, max) = (Duration::from_secs(1), Duration::MAX);
        // 40 ms of round trip: a confirmation of the first block, and a whole window under way.
        assert_eq!(time_for(WINDOW_BYTES, ACK_BYTES, second), second);
        assert_eq!(time_for(3 * WINDOW_BYTES, 2 * WINDOW_BYTES, 2 * second), 3 * second);
        assert_eq!(time_for(u64::MAX, WINDOW_BYTES, max), max);
    }
}
