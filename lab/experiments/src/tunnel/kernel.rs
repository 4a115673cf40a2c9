//! The kernel's WireGuard, set up by `ip` and `wg`. No process has its CPU time.
use super::core::EndConfig;
use crate::LabError;
use crate::link::{Link, Side};
use std::io::Write;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

const PROBE_INTERFACE: &str = "tacit-probe";

/// The kernel's version of WireGuard, or why it cannot be used here.
pub(super) fn probe(link: &Link) -> Result<Result<String, String>, LabError> {
    link.within(Side::Client, || {
        command("ip", &["link", "add", PROBE_INTERFACE, "type", "wireguard"], None)
            .map_err(|reason| format!("this kernel has no WireGuard ({reason})"))?;
        // Disappears with the namespace at the latest.
        let _ = command("ip", &["link", "del", PROBE_INTERFACE], None);
        if let Err(reason) = command("wg", &["--version"], None) {
            return Err(format!("the `wg` program of wireguard-tools is missing ({reason})"));
        }
        let module = std::fs::read_to_string("/sys/module/wireguard/version");
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Ok(module.map_or_else(|_| format!("Linux {kernel}"), |v| format!("Linux {kernel}, module {}", v.trim())))
    })
}

pub(super) fn up(link: &Link, side: Side, config: EndConfig) -> Result<(), LabError> {
    let result = link.within(side, move || {
        let name = config.interface.as_str();
        command("ip", &["link", "add", name, "type", "wireguard"], None)?;
        command("wg", &["setconf", name, "/dev/stdin"], Some(&settings(&config)))?;
        command("ip", &["address", "add", &format!("{}/30", config.inner), "dev", name], None)?;
        command("ip", &["link", "set", name, "mtu", &config.mtu.to_string(), "up"], None)
    })?;
    result.map_err(LabError::failed("setting up the kernel's WireGuard"))
}

/// Whether the end on `side` has a session with its peer.
pub(super) fn connected(link: &Link, side: Side, interface: String) -> Result<bool, LabError> {
    let handshakes = link.within(side, move || output("wg", &["show", &interface, "latest-handshakes"], None))?;
    let text = handshakes.map_err(LabError::failed("asking the kernel's WireGuard"))?;
    Ok(text.split_whitespace().nth(1).is_some_and(|time| time != "0"))
}

/// Input of `wg setconf`, passed on standard input, since other users can see arguments and files.
fn settings(config: &EndConfig) -> Zeroizing<String> {
    // The client's end starts the handshake, so that both are connected before any measurement.
    Zeroizing::new(format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {}\n[Peer]\nPublicKey = {}\nEndpoint = {}\nAllowedIPs = {}/32\n\
         PersistentKeepalive = 25\n",
        base64(config.secret.bytes()).as_str(),
        config.local.port(),
        base64(&config.peer).as_str(),
        config.remote,
        config.peer_inner
    ))
}

/// Base64 of a key, as `wg` writes it.
fn base64(key: &[u8; 32]) -> Zeroizing<String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Zeroizing::new(String::with_capacity(44));
    for three in key.chunks(3) {
        let word = three.iter().fold(0u32, |w, &b| w << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

fn command(program: &str, arguments: &[&str], input: Option<&str>) -> Result<(), String> {
    output(program, arguments, input).map(|_| ())
}

fn output(program: &str, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|e| format!("{program}: {e}"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).map_err(|e| format!("{program}: {e}"))?;
    }
    let output = child.wait_with_output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::SecretKey;

    #[test]
    fn keys_are_written_as_wg_reads_them() {
        assert_eq!(base64(&[0; 32]).as_str(), format!("{}=", "A".repeat(43)));
        let key: [u8; 32] = std::array::from_fn(|i| (i * 7 + 250) as u8);
        assert_eq!(base64(&key).as_str(), "+gEIDxYdJCsyOUBHTlVcY2pxeH+GjZSboqmwt77FzNM=");
    }

    #[test]
    fn settings_name_both_ends() {
        let config = EndConfig {
            secret: SecretKey::random().unwrap(),
            peer: [0; 32],
            local: "198.18.0.1:51820".parse().unwrap(),
            remote: "198.18.0.2:51821".parse().unwrap(),
            inner: [10, 0, 0, 1].into(),
            peer_inner: [10, 0, 0, 2].into(),
            mtu: 1420,
            interface: "wg".into(),
        };
        let text = settings(&config);
        for part in ["ListenPort = 51820", "Endpoint = 198.18.0.2:51821", "AllowedIPs = 10.0.0.2/32"] {
            assert!(text.contains(part), "{part} is not in the settings");
        }
    }
}
