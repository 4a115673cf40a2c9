//! A free TCP port of this host, for a server that is started later.
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Ports below are often those of services.
const FIRST: u16 = 10_000;
/// Fewer are not worth looking among.
const FEWEST: u16 = 1_000;

/// A port that was free at 127.0.0.1. Nobody is given it unasked: it is not of those that the system hands out for outgoing connections
/// and to whoever asks for any port, and as long as this lives no other campaign chooses it.
pub(super) struct Port {
    number: u16,
    // An abstract socket: only its name matters, and the kernel forgets that with us.
    _claim: Option<UnixListener>,
}

impl Port {
    /// Looks for one. Where the system hands out nearly all ports, it is one of those, and may be gone before the server is there.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn find() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        if let Some(range) = unasked(&text) {
            for _ in 0..1000 {
                let number = fastrand::u16(range.clone());
                let name = format!("tacit-lab-port-{number}");
                let claim = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
                if let (Ok(claim), Ok(_)) = (claim, TcpListener::bind((Ipv4Addr::LOCALHOST, number))) {
                    return Ok(Self { number, _claim: Some(claim) });
                }
            }
        }
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self { number: any.local_addr()?.port(), _claim: None })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

/// Ports that the system does not hand out by itself, given the range that it does: `32768\t60999`.
fn unasked(handed_out: &str) -> Option<Range<u16>> {
    let mut ends = handed_out.split_ascii_whitespace().map(|end| end.parse::<u16>().ok());
    let (low, high) = (ends.next()??, ends.next()??);
    let ranges = [FIRST..low, high.saturating_add(1).max(FIRST)..u16::MAX];
    ranges.into_iter().find(|range| range.len() >= usize::from(FEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_from_outside_the_range_that_the_system_hands_out() {
        assert_eq!(unasked("32768\t60999\n"), Some(10_000..32_768));
        assert_eq!(unasked("1024 50000"), Some(50_001..65_535));
        assert_eq!(unasked("1024\t65535"), None);
        assert_eq!(unasked("9000 9100"), Some(10_000..65_535));
        for odd in ["", "1", "x y", "60000 99999"] {
            assert_eq!(unasked(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_port_is_free_and_nobody_elses() {
        let ports: Vec<Port> = (0..50).map(|_| Port::find().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().filter(|p| p._claim.is_some()).map(Port::number).collect();
        let claimed = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), claimed);
        assert!(ports.iter().all(|p| p.number() >= 1024));
    }
}
