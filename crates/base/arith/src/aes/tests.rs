use super::*;
use crate::block::Block;
use crate::cpu::Cpu;
use crate::prg::{Prg, Seed};
use proptest::prelude::*;

fn hex(s: &str) -> Block {
    Block::from_bytes(std::array::from_fn(|i| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap()))
}

#[test]
fn fips_197_known_answers() {
    for cpu in Cpu::available() {
        let aes = Aes128::with_cpu(cpu, hex("000102030405060708090a0b0c0d0e0f"));
        let mut b = [hex("00112233445566778899aabbccddeeff"); 3];
        aes.encrypt(&mut b);
        assert_eq!(b, [hex("69c4e0d86a7b0430d8cdb78070b4c55a"); 3], "{cpu:?}");
        let aes = Aes128::with_cpu(cpu, hex("2b7e151628aed2a6abf7158809cf4f3c"));
        let mut b = [hex("3243f6a8885a308d313198a2e0370734")];
        aes.encrypt(&mut b);
        assert_eq!(b[0], hex("3925841d02dc09fbdc118597196a0b32"), "{cpu:?}");
    }
}

#[test]
fn counter_mode_is_the_encrypted_counter() {
    let aes = Aes128::new(Block(7));
    let mut out = [Block::ZERO; 3];
    aes.counter(5, u64::MAX, &mut out);
    let mut expected = [Block(5 << 64 | u64::MAX as u128), Block(5 << 64), Block(5 << 64 | 1)];
    aes.encrypt(&mut expected);
    assert_eq!(out, expected);
}

fn blocks(max: usize) -> impl Strategy<Value = Vec<Block>> {
    proptest::collection::vec(any::<u128>().prop_map(Block), 0..max)
}

proptest! {
    #[test]
    fn kernels_agree(key: u128, mask: u128, src in blocks(140)) {
        let mut want_enc = src.clone();
        Aes128::with_cpu(Cpu::available()[0], Block(key)).encrypt(&mut want_enc);
        let reference = CcrHash::with_cpu(Cpu::available()[0], Block(key));
        let mut want_hash = vec![Block::ZERO; src.len()];
        reference.hash(&src, Block(mask), &mut want_hash);
        let mut want_double = src.clone();
        let want_sum = reference.double(&mut want_double);
        for cpu in Cpu::available() {
            let mut enc = src.clone();
            Aes128::with_cpu(cpu, Block(key)).encrypt(&mut enc);
            prop_assert_eq!(&enc, &want_enc);
            let h = CcrHash::with_cpu(cpu, Block(key));
            let mut out = vec![Block::ZERO; src.len()];
            h.hash(&src, Block(mask), &mut out);
            prop_assert_eq!(&out, &want_hash);
            let mut d = src.clone();
            prop_assert_eq!(h.double(&mut d), want_sum);
            prop_assert_eq!(&d, &want_double);
        }
    }

    #[test]
    fn hash_and_double_follow_their_definition(key: u128, x: u128, y: u128, mask: u128) {
        let h = CcrHash::new(Block(key));
        let aes = Aes128::new(Block(key));
        let eval = |x: Block| { let s = x.sigma(); let mut b = [s]; aes.encrypt(&mut b); b[0] ^ s };
        let mut out = [Block::ZERO];
        h.hash(&[Block(x)], Block(mask), &mut out);
        prop_assert_eq!(out[0], eval(Block(x ^ mask)));
        let mut nodes = [Block(x), Block(y), Block::ZERO, Block::ZERO];
        let sum = h.double(&mut nodes);
        let (hx, hy) = (eval(Block(x)), eval(Block(y)));
        prop_assert_eq!(nodes, [hx, hy, hx ^ Block(x), hy ^ Block(y)]);
        prop_assert_eq!(sum, hx ^ hy);
    }

    #[test]
    fn levels_of_half_trees_follow_their_definition_on_every_kernel(key: u128, seed: u8, n in 0usize..140) {
        let mut prg = Prg::from_seed(Seed([seed; 16]));
        let mut draw = || { let mut b = vec![Block::ZERO; n]; prg.fill_blocks(&mut b); b };
        let (nodes, deltas, sums) = (draw(), draw(), draw());
        let sides: Vec<u64> = draw().iter().map(|b| b.0 as u64).take(n.div_ceil(64)).collect();
        let side = |i: usize| Block::mask(sides[i / 64] >> (i % 64) & 1);
        let not = |b: Block| b ^ Block(u128::MAX);
        let reference = CcrHash::with_cpu(Cpu::portable(), Block(key));
        let hash = |x: &[Block], mask| { let mut out = vec![Block::ZERO; n]; reference.hash(x, mask, &mut out); out };
        let shifted: Vec<Block> = nodes.iter().zip(&deltas).map(|(x, d)| *x ^ *d).collect();
        let (h, shifted_hashes) = (hash(&nodes, Block::ZERO), hash(&shifted, Block::ZERO));
        let expected: Vec<Block> = (0..n).map(|i| h[i] ^ shifted_hashes[i] ^ (deltas[i] & not(side(i)))).collect();
        let left: Vec<Block> = (0..n).map(|i| h[i] ^ (expected[i] & Block::mask(nodes[i].lsb()))).collect();
        let next: Vec<Block> = (0..n).map(|i| left[i] ^ (nodes[i] & side(i))).collect();
        let total: Vec<Block> = (0..n).map(|i| sums[i] ^ ((left[i] ^ nodes[i]) & not(side(i)))).collect();
        for cpu in Cpu::available() {
            let ccr = CcrHash::with_cpu(cpu, Block(key));
            let (mut x, mut c) = (nodes.clone(), vec![Block::ZERO; n]);
            ccr.correct(&mut x, &deltas, &sides, &mut c);
            prop_assert_eq!((&x, &c), (&next, &expected), "{:?}", cpu);
            let (mut x, mut sum) = (nodes.clone(), sums.clone());
            ccr.descend(&mut x, &expected, &sides, &mut sum);
            prop_assert_eq!((&x, &sum), (&next, &total), "{:?}", cpu);
        }
    }
}

/// Also across the end of the counter's range.
#[test]
fn streams_are_counted_blocks() {
    for cpu in Cpu::available() {
        let aes = Aes128::with_cpu(cpu, Block(77));
        for (counter, len) in [(0, 0), (5, 63), (5, 64), (u64::MAX - 20, 300), (9, 1000)] {
            let mut words = vec![1; len];
            let filled = aes.stream(counter, &mut words);
            assert!(filled <= len && filled.is_multiple_of(2) && words[filled..].iter().all(|&w| w == 1));
            let mut expected = vec![Block::ZERO; filled / 2];
            aes.counter(0, counter, &mut expected);
            let expected: Vec<u64> = expected.iter().flat_map(|b| [b.0 as u64, (b.0 >> 64) as u64]).collect();
            assert_eq!(words[..filled], expected);
        }
    }
}
