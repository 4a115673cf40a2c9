//! Bytes and packets by network interface, from `/proc/net/dev` of any network namespace.
use super::{Kept, lines};
use crate::MeasureError;
use crate::sample::InterfaceSample;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Interfaces of one network namespace.
pub struct NetReader {
    file: Kept,
    /// By name: raw counters as last seen, and the sums since the start.
    interfaces: BTreeMap<String, (InterfaceSample, InterfaceSample)>,
}

impl NetReader {
    /// Opens a `net/dev` file, such as `/proc/PID/net/dev` for the namespace of a process. The counters
    /// stay readable after the end of the process. Counting starts now.
    ///
    /// # Errors
    /// [`MeasureError::Io`] if the file cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, MeasureError> {
        let mut reader = Self { file: Kept::open(path)?, interfaces: BTreeMap::new() };
        for line in lines(reader.file.read()?) {
            if let Some((name, current)) = interface_line(line) {
                reader.interfaces.insert(name.to_owned(), (current, InterfaceSample::default()));
            }
        }
        Ok(reader)
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Traffic since the start, by interface; a vanished interface has its last figures.
    ///
    /// # Errors
    /// [`MeasureError::Io`] if the file cannot be read.
    pub fn read(&mut self) -> Result<impl Iterator<Item = (&str, InterfaceSample)>, MeasureError> {
        for line in lines(self.file.read()?) {
            let Some((name, current)) = interface_line(line) else { continue };
            if !self.interfaces.contains_key(name) {
                // An interface that is new since the start: all its traffic counts.
                self.interfaces.insert(name.to_owned(), Default::default());
            }
            if let Some((previous, sum)) = self.interfaces.get_mut(name) {
                add(sum, previous, &current);
                *previous = current;
            }
        }
        Ok(self.interfaces.iter().map(|(name, (_, sum))| (name.as_str(), *sum)))
    }
}

/// Adds the difference to the last reading. A lower counter belongs to a recreated interface and
/// counts from 0.
fn add(sum: &mut InterfaceSample, previous: &InterfaceSample, current: &InterfaceSample) {
    sum.rx_bytes = sum.rx_bytes.saturating_add(step(current.rx_bytes, previous.rx_bytes));
    sum.tx_bytes = sum.tx_bytes.saturating_add(step(current.tx_bytes, previous.tx_bytes));
    sum.rx_packets = sum.rx_packets.saturating_add(step(current.rx_packets, previous.rx_packets));
    sum.tx_packets = sum.tx_packets.saturating_add(step(current.tx_packets, previous.tx_packets));
}

fn step(current: u64, previous: u64) -> u64 {
    if current >= previous { current - previous } else { current }
}

fn interface_line(line: &str) -> Option<(&str, InterfaceSample)> {
    let (name, counters) = line.rsplit_once(':')?;
    let name = name.trim();
    let values: Vec<u64> = counters.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
    if name.is_empty() || values.len() < 10 {
        return None;
    }
    let sample =
        InterfaceSample { rx_bytes: values[0], rx_packets: values[1], tx_bytes: values[8], tx_packets: values[9] };
    Some((name, sample))
}

/// Bytes both ways over a namespace's link: all interfaces except `lo`. Tunnels count only without
/// other interfaces, since their traffic also passes another interface.
pub fn link_bytes<'a>(interfaces: impl Iterator<Item = (&'a str, InterfaceSample)>) -> u64 {
    let (mut link, mut tunnel, mut has_link) = (0_u64, 0_u64, false);
    for (name, sample) in interfaces.filter(|(name, _)| *name != "lo") {
        let bytes = sample.rx_bytes.saturating_add(sample.tx_bytes);
        if ["tun", "tap", "wg"].iter().any(|prefix| name.starts_with(prefix)) {
            tunnel = tunnel.saturating_add(bytes);
        } else {
            has_link = true;
            link = link.saturating_add(bytes);
        }
    }
    if has_link { link } else { tunnel }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";

    fn line(name: &str, rx: u64, tx: u64) -> String {
        format!("{name:>6}: {rx} {} 0 0 0 0 0 0 {tx} {} 0 0 0 0 0 0\n", rx / 1000, tx / 1000)
    }

    #[test]
    fn traffic_counts_new_and_recreated_interfaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dev");
        let write = |lines: &[String]| std::fs::write(&path, format!("{HEAD}{}", lines.concat())).unwrap();
        write(&[line("eth0", 5_000_000, 7_000_000)]);
        let mut reader = NetReader::open(&path).unwrap();
        write(&[line("eth0", 5_001_000, 7_002_000), line("wg0", 300, 400)]);
        let mut sums = || -> BTreeMap<String, InterfaceSample> {
            reader.read().unwrap().map(|(name, sum)| (name.to_owned(), sum)).collect()
        };
        let first = sums();
        let eth0 = InterfaceSample { rx_bytes: 1000, tx_bytes: 2000, rx_packets: 1, tx_packets: 2 };
        assert_eq!(first["eth0"], eth0);
        assert_eq!((first["wg0"].rx_bytes, first["wg0"].tx_bytes), (300, 400));
        // eth0 was recreated, wg0 is gone.
        write(&[line("eth0", 50, 60)]);
        let second = sums();
        assert_eq!((second["eth0"].rx_bytes, second["eth0"].tx_bytes), (1050, 2060));
        assert_eq!(second["wg0"].rx_bytes, 300);
    }

    #[test]
    fn parses_names_with_colons_and_skips_broken_lines() {
        assert_eq!(interface_line(&line("eth0:1", 1, 2)).unwrap().0, "eth0:1");
        for broken in ["", "eth0:", "eth0: 1 2 3", ": 1 2 3 4 5 6 7 8 9 10", "eth0: a b c d e f g h i j"] {
            assert!(interface_line(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn bytes_in_a_tunnel_are_not_counted_twice() {
        let sample_with = |bytes| InterfaceSample { rx_bytes: bytes, tx_bytes: 1, ..Default::default() };
        assert_eq!(
            link_bytes([("lo", sample_with(9)), ("veth0", sample_with(100)), ("wg0", sample_with(80))].into_iter()),
            101
        );
        assert_eq!(link_bytes([("lo", sample_with(9)), ("tun0", sample_with(80))].into_iter()), 81);
    }
}
