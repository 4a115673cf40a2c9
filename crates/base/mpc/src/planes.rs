//! Bit-sliced helpers: a plane holds one bit of each of `n` elements, so that one word operation serves 64
//! elements.

use tacit_arith::bits::Bits;
use tacit_net::{Channel, Tag};

use crate::MpcError;
use crate::error::misbehaviour;

/// `acc ^= a & b`.
pub(crate) fn xor_and(acc: &mut Bits, a: &Bits, b: &Bits) {
    for ((x, y), z) in acc.words_mut().iter_mut().zip(a.words()).zip(b.words()) {
        *x ^= y & z;
    }
}

/// Swaps `a` and `b` where `swap` is set, without a branch.
pub(crate) fn conditional_swap(a: &mut Bits, b: &mut Bits, swap: &Bits) {
    for ((x, y), s) in a.words_mut().iter_mut().zip(b.words_mut()).zip(swap.words()) {
        let t = (*x ^ *y) & s;
        *x ^= t;
        *y ^= t;
    }
}

/// `planes[index]` where bit `t` of the index is `choice[t]`, element by element and without secret-dependent
/// access. `planes` has `2^choice.len()` entries.
pub(crate) fn mux(mut planes: Vec<Bits>, choice: &[&Bits]) -> Bits {
    for bit in choice {
        planes = planes
            .chunks_exact(2)
            .map(|pair| {
                let mut out = pair[0].clone();
                let differ = pair[0].xor(&pair[1]);
                xor_and(&mut out, &differ, bit);
                out
            })
            .collect();
    }
    planes.pop().expect("there are 2^choice.len() planes")
}

/// For each value `j < 2^bits.len()` the plane of `[value == j]`; at least one bit.
pub(crate) fn one_hot(bits: &[Bits]) -> Vec<Bits> {
    let (low, higher_bits) = (&bits[0], &bits[1..]);
    let mut out = vec![low.not(), low.clone()];
    for bit in higher_bits {
        let inverse = bit.not();
        let high: Vec<Bits> = out.iter().map(|p| p.and(bit)).collect();
        out = out.iter().map(|p| p.and(&inverse)).collect();
        out.extend(high);
    }
    out
}

/// Bit `position` of every value.
pub(crate) fn bit_plane(values: &[u64], position: u32) -> Bits {
    let mut out = Bits::zeros(values.len());
    for (word, chunk) in out.words_mut().iter_mut().zip(values.chunks(64)) {
        *word = chunk.iter().enumerate().fold(0, |w, (i, v)| w | ((v >> position) & 1) << i);
    }
    out
}

/// Sends planes one after the other, each in `ceil(n / 8)` bytes.
pub(crate) fn send(channel: &mut Channel, tag: Tag, planes: &[Bits]) -> Result<(), MpcError> {
    let mut bytes = Vec::with_capacity(planes.iter().map(|p| p.len().div_ceil(8)).sum());
    for plane in planes {
        put(&mut bytes, plane);
    }
    Ok(channel.send(tag, &bytes)?)
}

pub(crate) fn recv(channel: &mut Channel, tag: Tag, count: usize, n: usize) -> Result<Vec<Bits>, MpcError> {
    let plane_len = n.div_ceil(8);
    let bytes = channel.recv(tag, count * plane_len)?;
    if plane_len == 0 {
        return Ok(vec![Bits::zeros(0); count]);
    }
    Ok(bytes.chunks_exact(plane_len).map(|c| get(c, n)).collect())
}

/// Sends planes and receives as many, before or after.
pub(crate) fn exchange(
    channel: &mut Channel,
    tag: Tag,
    own_planes: &[Bits],
    n: usize,
    sends_first: bool,
) -> Result<Vec<Bits>, MpcError> {
    if sends_first {
        send(channel, tag, own_planes)?;
    }
    let peer_planes = recv(channel, tag, own_planes.len(), n)?;
    if !sends_first {
        send(channel, tag, own_planes)?;
    }
    Ok(peer_planes)
}

pub(crate) fn send_one(channel: &mut Channel, tag: Tag, plane: &Bits) -> Result<(), MpcError> {
    send(channel, tag, std::slice::from_ref(plane))
}

/// Receives one plane of `n` bits; refuses set bits beyond the last one.
pub(crate) fn recv_one(channel: &mut Channel, tag: Tag, n: usize) -> Result<Bits, MpcError> {
    let bytes = channel.recv(tag, n.div_ceil(8))?;
    if !n.is_multiple_of(8) && bytes.last().is_some_and(|last| last >> (n % 8) != 0) {
        return misbehaviour("a plane of bits", "a set bit behind the last one");
    }
    Ok(get(&bytes, n))
}

/// Appends a plane in `ceil(n / 8)` bytes.
pub(crate) fn put(out: &mut Vec<u8>, plane: &Bits) {
    let end = out.len() + plane.len().div_ceil(8);
    for word in plane.words() {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(end);
}

/// Reads a plane of `n` bits from `ceil(n / 8)` bytes; ignores bits beyond the last one.
pub(crate) fn get(bytes: &[u8], n: usize) -> Bits {
    Bits::from_bytes(n, bytes).expect("a plane has `ceil(n / 8)` bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hot_and_mux_follow_the_index() {
        let values: Vec<u64> = (0..100).map(|i| (i * 7) % 8).collect();
        let index: Vec<Bits> = (0..3).map(|p| bit_plane(&values, p)).collect();
        for (j, plane) in one_hot(&index).iter().enumerate() {
            for (i, v) in values.iter().enumerate() {
                assert_eq!(plane.get(i), *v == j as u64);
            }
        }
        let table: Vec<Bits> =
            (0..8).map(|j| bit_plane(&(0..100).map(|i| (i ^ j) & 1).collect::<Vec<_>>(), 0)).collect();
        let chosen = mux(table.clone(), &index.iter().collect::<Vec<_>>());
        for (i, v) in values.iter().enumerate() {
            assert_eq!(chosen.get(i), table[*v as usize].get(i));
        }
    }

    #[test]
    fn bytes_round_trip_and_ignore_the_tail() {
        let plane = bit_plane(&(0..70).map(|i| i % 3).collect::<Vec<_>>(), 0);
        let mut bytes = Vec::new();
        put(&mut bytes, &plane);
        assert_eq!(bytes.len(), 9);
        assert_eq!(get(&bytes, 70), plane);
        bytes[8] |= 0xc0;
        assert_eq!(get(&bytes, 70), plane);
    }
}
