//! Tables `[u < z]` of one digit, bit-sliced: entry `u` is a plane of a block's elements.

/// Looks a shared table up at a public index. `table` holds the party's share of the entries `u = 0
/// .. 2^m - 2` (entry `2^m - 1` is 0), `index` the `m` planes of the index, lowest first. `first`
/// is the party's share of the entry before the first one, which is 1. Returns the entries at `u`
/// and at `u - 1`.
pub(super) fn look_up(table: &[u64], index: &[&[u64]], first: u64, words: usize) -> [Vec<u64>; 2] {
    let count = table.len() / words + 1;
    let plane = |k: usize| &table[k * words..][..words];
    let (zeros, first) = (vec![0; words], vec![first; words]);
    let plane_at = |k: usize| if k + 1 < count { plane(k) } else { &zeros[..] };
    let plane_before = |k: usize| if k > 0 { plane(k - 1) } else { &first[..] };
    [fold(&plane_at, count, index, words), fold(&plane_before, count, index, words)]
}

/// Selects the plane at the index among `count`, element by element: each bit halves the list.
fn fold<'a>(plane: &dyn Fn(usize) -> &'a [u64], count: usize, index: &[&[u64]], words: usize) -> Vec<u64> {
    let Some((bit, higher_bits)) = index.split_first() else { return plane(0).to_vec() };
    let mut planes = vec![0; count / 2 * words];
    for (k, out) in planes.chunks_exact_mut(words).enumerate() {
        let (low, high) = (plane(2 * k), plane(2 * k + 1));
        for (((out, low), high), bit) in out.iter_mut().zip(low).zip(high).zip(*bit) {
            *out = low ^ ((low ^ high) & bit);
        }
    }
    let mut count = count / 2;
    for bit in higher_bits {
        count /= 2;
        for k in 0..count {
            let (folded, pair) = planes.split_at_mut(2 * k * words);
            let (low, high) = pair.split_at_mut(words);
            if k == 0 {
                low.iter_mut().zip(high).zip(*bit).for_each(|((a, b), s)| *a ^= (*a ^ *b) & s);
                continue;
            }
            let out = &mut folded[k * words..][..words];
            for (((out, low), high), bit) in out.iter_mut().zip(low).zip(high).zip(*bit) {
                *out = *low ^ ((*low ^ *high) & bit);
            }
        }
    }
    planes.truncate(words);
    planes
}

/// The plain table of a secret digit given as `m` planes, lowest first: planes of `[u < z]`,
/// `u = 0 .. 2^m - 2`.
pub(super) fn thermometer(digit: &[&[u64]], words: usize) -> Vec<u64> {
    // Adds one more bit on top, b: [u < z] = b | [u < z'] for u below the half, and b & [u - half <
    // z'] above; at the half's last entry the result is b.
    let mut table: Vec<u64> = Vec::new();
    for bit in digit {
        let mut next = Vec::with_capacity(2 * table.len() + words);
        for plane in table.chunks(words) {
            next.extend(plane.iter().zip(*bit).map(|(t, b)| t | b));
        }
        next.extend_from_slice(bit);
        for plane in table.chunks(words) {
            next.extend(plane.iter().zip(*bit).map(|(t, b)| t & b));
        }
        table = next;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_up_compares_with_the_secret() {
        for m in 1..=6usize {
            let size = 1u64 << m;
            // 64 elements at a time: all pairs of secret and index.
            for secret in 0..size {
                let digit: Vec<Vec<u64>> =
                    (0..m).map(|b| vec![if secret >> b & 1 == 1 { u64::MAX } else { 0 }]).collect();
                let table = thermometer(&digit.iter().map(Vec::as_slice).collect::<Vec<_>>(), 1);
                assert_eq!(table.len() as u64, size - 1);
                let index: Vec<Vec<u64>> =
                    (0..m).map(|b| vec![(0..size).fold(0, |w, u| w | (u >> b & 1) << u)]).collect();
                let index: Vec<&[u64]> = index.iter().map(Vec::as_slice).collect();
                let [current, previous] = look_up(&table, &index, u64::MAX, 1);
                for u in 0..size {
                    assert_eq!(current[0] >> u & 1 == 1, u < secret, "{u} < {secret}");
                    assert_eq!((current[0] ^ previous[0]) >> u & 1 == 1, u == secret, "{u} == {secret}");
                }
            }
        }
    }
}
