//! IPv4 packets: changes a payload byte such that every checksum still holds.

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Offsets in an IPv4 packet with a TCP or UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    protocol: u8,
    transport: usize,
    payload: usize,
    /// End of the packet according to the IP header.
    end: usize,
}

impl Layout {
    /// `None` for anything except an unfragmented IPv4 packet with TCP or UDP and a payload.
    fn parse(packet: &[u8]) -> Option<Self> {
        let version = *packet.first()?;
        let transport = usize::from(version & 15) * 4;
        let end = usize::from(read16(packet, 2)?);
        // No fragment offset, and no more fragments.
        let is_whole = read16(packet, 6)? & 0x3fff == 0;
        let protocol = *packet.get(9)?;
        let header = match protocol {
            TCP => usize::from(*packet.get(transport + 12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
        let payload = transport + header;
        let sound = version >> 4 == 4 && transport >= 20 && header >= 8 && end <= packet.len() && payload < end;
        (sound && is_whole).then_some(Self { protocol, transport, payload, end })
    }

    fn checksum(self) -> usize {
        self.transport + if self.protocol == TCP { 16 } else { 6 }
    }
}

fn read16(packet: &[u8], offset: usize) -> Option<u16> {
    packet.get(offset..offset + 2)?.try_into().map(u16::from_be_bytes).ok()
}

/// Changes one byte of the payload of `packet` and corrects the transport checksum, so that only
/// cryptography (or the application) can detect it. Returns false without a change if there is no
/// TCP or UDP payload.
pub(super) fn corrupt(packet: &mut [u8], random: &mut fastrand::Rng) -> bool {
    let Some(layout) = Layout::parse(packet) else { return false };
    let offset = random.usize(layout.payload..layout.end);
    let flip = random.u8(1..);
    packet[offset] ^= flip;
    let place = layout.checksum();
    let Some(old) = read16(packet, place) else { return true };
    // UDP over IPv4 may omit the checksum.
    if layout.protocol == UDP && old == 0 {
        return true;
    }
    // The byte is the high or the low half of a 16-bit word counted from the transport header.
    let shift = if (offset - layout.transport).is_multiple_of(2) { 8 } else { 0 };
    let (new_word, old_word) = (u16::from(packet[offset]) << shift, u16::from(packet[offset] ^ flip) << shift);
    let new = update_checksum(old, old_word, new_word);
    // A computed UDP checksum of zero is sent as ones.
    let new = if layout.protocol == UDP && new == 0 { 0xffff } else { new };
    packet[place..place + 2].copy_from_slice(&new.to_be_bytes());
    true
}

/// The Internet checksum after a word changed (RFC 1624, equation 3).
fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The transport checksum over everything (RFC 793, RFC 768); 0 if the packet's own is right.
    fn residue(packet: &[u8]) -> u16 {
        let transport = usize::from(packet[0] & 15) * 4;
        let segment = &packet[transport..];
        let mut sum = u32::from(packet[9]) + segment.len() as u32;
        for pair in packet[12..20].chunks(2).chain(segment.chunks(2)) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        !fold(sum)
    }

    fn build(protocol: u8, options: usize, payload: &[u8]) -> Vec<u8> {
        let header = if protocol == TCP { 20 } else { 8 };
        let transport = 20 + 4 * options;
        let mut packet = vec![0x11; transport + header];
        packet[0] = 0x40 | (5 + options as u8);
        packet.extend_from_slice(payload);
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[6..8].copy_from_slice(&[0x40, 0]);
        packet[9] = protocol;
        if protocol == TCP {
            packet[transport + 12] = 0x50;
        }
        let place = transport + if protocol == TCP { 16 } else { 6 };
        packet[place..place + 2].fill(0);
        let checksum = residue(&packet);
        let checksum = if protocol == UDP && checksum == 0 { 0xffff } else { checksum };
        packet[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    proptest! {
        #[test]
        fn one_payload_byte_changes_and_the_checksum_holds(
            tcp: bool, options in 0usize..=10, payload in proptest::collection::vec(any::<u8>(), 1..200), seed: u64
        ) {
            let before = build(if tcp { TCP } else { UDP }, options, &payload);
            prop_assert_eq!(residue(&before), 0);
            let mut after = before.clone();
            prop_assert!(corrupt(&mut after, &mut fastrand::Rng::with_seed(seed)));
            prop_assert_eq!(residue(&after), 0);
            let body = before.len() - payload.len();
            let changed = (body..before.len()).filter(|&i| before[i] != after[i]).count();
            prop_assert_eq!(changed, 1);
            let place = 20 + 4 * options + if tcp { 16 } else { 6 };
            prop_assert!((0..body).all(|i| before[i] == after[i] || (place..place + 2).contains(&i)));
        }

        #[test]
        fn any_bytes_are_accepted(mut packet in proptest::collection::vec(any::<u8>(), 0..80), seed: u64) {
            let before = packet.clone();
            let changed = corrupt(&mut packet, &mut fastrand::Rng::with_seed(seed));
            prop_assert_eq!(changed, packet != before);
        }
    }

    #[test]
    fn fragments_and_packets_without_payload_are_unchanged() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut ack = build(TCP, 3, &[]);
        assert!(!corrupt(&mut ack, &mut random));
        let mut fragment = build(UDP, 0, b"payload");
        fragment[6..8].copy_from_slice(&[0x20, 0]);
        assert!(!corrupt(&mut fragment, &mut random));
        let mut icmp = build(UDP, 0, b"payload");
        icmp[9] = 1;
        assert!(!corrupt(&mut icmp, &mut random));
    }

    #[test]
    fn udp_without_a_checksum_gets_none() {
        let mut packet = build(UDP, 0, b"payload");
        packet[26..28].fill(0);
        assert!(corrupt(&mut packet, &mut fastrand::Rng::with_seed(3)));
        assert_eq!(packet[26..28], [0, 0]);
    }
}
