//! Hashes of byte strings, for keys.
use ring::digest::{Context, SHA256};
use tacit_arith::block::Block;

/// Returns the first 16 bytes of the SHA-256 of `parts`, one after another.
pub(crate) fn hash(parts: &[&[u8]]) -> Block {
    let mut hash = Context::new(&SHA256);
    parts.iter().for_each(|part| hash.update(part));
    Block::from_bytes(*hash.finish().as_ref().first_chunk().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_hashed_as_one_string() {
        // FIPS 180-2, appendix B.1.
        let expected = *b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23";
        assert_eq!(hash(&[b"a", b"", b"bc"]), Block::from_bytes(expected));
    }
}
