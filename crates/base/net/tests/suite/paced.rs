//! The token bucket on an injected clock, and the rate as it is measured.
use proptest::prelude::*;
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};
use tacit_net::{Bucket, Channel, MemTransport, NetError, PacedTransport, Rate, Tag, Transport, burst_bytes};

const TAG: Tag = Tag::new(0x0901, "paced test");

proptest! {
    /// No interval carries more than burst + rate * t, for any requests; and the announced wait is
    /// enough.
    #[test]
    fn bucket_bounds_every_interval(
        rate in 1_000u64..2_000_000_000,
        steps in prop::collection::vec((0u64..20_000_000, 1usize..400_000), 1..200),
    ) {
        let rate = Rate::new(rate).unwrap();
        let mut bucket = Bucket::new(rate, Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut grants: Vec<(Duration, usize)> = Vec::new();
        for (pause, wanted_bytes) in steps {
            now += Duration::from_nanos(pause);
            let granted = bucket.take(now, wanted_bytes);
            prop_assert!(granted <= wanted_bytes);
            if granted == 0 {
                let wait = bucket.wait(wanted_bytes);
                prop_assert!(wait > Duration::ZERO);
                now += wait;
                let after = bucket.take(now, wanted_bytes);
                prop_assert!(after > 0, "nothing after the promised wait");
                grants.push((now, after));
            } else {
                grants.push((now, granted));
            }
        }
        for start in 0..grants.len() {
            let mut sum = 0u128;
            for (time, bytes) in &grants[start..] {
                sum += *bytes as u128;
                let nanos = (*time - grants[start].0).as_nanos();
                let allowed = u128::from(burst_bytes(rate)) * 8_000_000_000 + nanos * u128::from(rate.bits_per_second());
                prop_assert!(sum * 8_000_000_000 <= allowed, "{sum} bytes in {nanos} ns at {rate}");
            }
        }
    }

    /// A writer that waits for the time of `wait` loses no throughput: over a long run it gets the rate.
    #[test]
    fn bucket_gives_the_rate(rate in 10_000u64..2_000_000_000, late in 0u64..500_000) {
        let rate = Rate::new(rate).unwrap();
        let mut bucket = Bucket::new(rate, Duration::ZERO);
        let (mut now, mut sum) = (Duration::ZERO, 0u64);
        for _ in 0..400 {
            match bucket.take(now, 1 << 20) {
                // Timers fire late, by less than half a bucket at the full rate.
                0 => now += bucket.wait(1 << 20) + Duration::from_nanos(late),
                n => sum += n as u64,
            }
        }
        let fair = rate.bits_per_second() as f64 / 8.0 * now.as_secs_f64();
        prop_assert!(sum as f64 >= fair * 0.999 - 1.0, "{sum} bytes instead of {fair}");
    }
}

/// Two megabit-seconds of bytes over memory at 16 Mbit/s: never early, and not much late.
#[test]
fn measured_rate_holds() {
    let rate: Rate = "16mbit".parse().unwrap();
    let (writer, mut reader) = MemTransport::pair();
    let bytes = 500_000usize;
    let received = thread::spawn(move || {
        let mut buffer = Vec::new();
        reader.read_to_end(&mut buffer).map(|_| buffer)
    });
    let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    let start = Instant::now();
    let mut paced = PacedTransport::new(writer, rate);
    paced.write_all(&data).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    drop(paced);
    assert_eq!(received.join().unwrap().unwrap(), data);
    let min_seconds = (bytes as f64 - burst_bytes(rate) as f64) * 8.0 / 16e6;
    assert!(seconds >= min_seconds * 0.999, "sent in {seconds} s what takes {min_seconds} s");
    // Only an upper bound that a loaded machine keeps too.
    assert!(seconds < min_seconds * 4.0 + 20.0, "{seconds} s instead of {min_seconds} s");
}

#[test]
fn channel_works_over_a_boxed_paced_transport() {
    let (a, b) = MemTransport::pair();
    let boxed: Box<dyn Transport> = Box::new(a);
    let paced = PacedTransport::new(boxed, "8mbit".parse().unwrap());
    assert_eq!(paced.peer(), "memory (at most 8mbit)");
    let mut sender = Channel::new(Box::new(paced));
    let mut receiver = Channel::new(Box::new(b));
    let payload = vec![7u8; 150_000];
    let expected = payload.clone();
    let receiving = thread::spawn(move || receiver.recv(TAG, 150_000));
    sender.send(TAG, &payload).unwrap();
    sender.flush().unwrap();
    assert_eq!(receiving.join().unwrap().unwrap(), expected);
}

#[test]
fn deadline_ends_a_paced_write_and_a_read() {
    let (a, _b) = MemTransport::pair();
    let mut paced = PacedTransport::new(a, "8kbit".parse().unwrap());
    let start = Instant::now();
    paced.set_deadline(Some(start + Duration::from_millis(50)));
    let error = paced.write_all(&[0; 20_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("8kbit"), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(paced.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    paced.set_deadline(None);
    paced.set_stall_timeout(Duration::from_millis(10)).unwrap();
    assert_eq!(paced.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_slow_sender_is_a_stall_for_an_impatient_peer() {
    let (a, b) = MemTransport::pair();
    let mut receiver = Channel::new(Box::new(b));
    receiver.set_stall_timeout(Duration::from_millis(100)).unwrap();
    let sender = thread::spawn(move || {
        let mut channel = Channel::new(Box::new(PacedTransport::new(a, "8kbit".parse().unwrap())));
        channel.set_deadline(Some(Instant::now() + Duration::from_secs(4)));
        channel.send(TAG, &[1; 100_000])
    });
    assert!(matches!(receiver.recv(TAG, 100_000), Err(NetError::Stalled { .. })));
    assert!(matches!(sender.join().unwrap(), Err(NetError::Stalled { .. })));
}
