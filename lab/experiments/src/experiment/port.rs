//! A free TCP port of this host, for a server that starts later.
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Above the ports of most services, and below the ephemeral ports of Linux (from 32768 on).
const FIXED_PORTS: Range<u16> = 10_000..32_768;

/// A free port of 127.0.0.1, chosen at random, so that parallel campaigns hardly ever collide. If
/// all tried ports are taken, the system chooses one, and may give it to another program before the
/// server starts.
pub(super) fn find() -> io::Result<u16> {
    for _ in 0..1000 {
        let port = fastrand::u16(FIXED_PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_free_port_below_ephemeral_ones() {
        let port = find().unwrap();
        assert!(FIXED_PORTS.contains(&port));
        // A child that another test is just starting holds the listener until its `exec`.
        let bound = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        assert!(bound, "port {port} stays taken");
    }
}
