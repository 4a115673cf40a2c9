//! Comparison leaves by masked evaluation ([ABY2] style): digits of two bits whose `(lt, eq)` are polynomials
//! in the *opened* masked bits of the server, with coefficients that both parties share from the offline
//! phase.
//!
//! Per digit the client knows the complements `x1, x0` of its bits offline, the server masks its bits `b`
//! with random `v` and opens `d = b ^ v` online. With `b = d ^ v`:
//! ```text
//! lt = x1 b1 ^ (x1 ^ b1) x0 b0 = [x1 v1 ^ x1 x0 v0 ^ x0 v0 v1] ^ d0 [x1 x0 ^ x0 v1] ^ d1 [x1 ^ x0 v0] ^ d0 d1 x0
//! eq = (x1 ^ b1)(x0 ^ b0)      = [x1 x0 ^ x1 v0 ^ x0 v1 ^ v1 v0] ^ d0 (x1 ^ v1) ^ d1 (x0 ^ v0) ^ d0 d1
//! ```
//! The cross products come from three OTs with the client as receiver: choice `x0` with strings
//! `(v0, v1, v0 v1)`, choice `x1` with `(v1, v0)`, choice `x1 x0` with `(v0)`. The first OT's random strings
//! *define* `v0, v1`, so only the others are corrected.
//!
//! Cost per digit: 3 ROTs; offline 3 bits client to server, 4 bits server to client; online 2 bits server to
//! client. The lowest digit needs no `eq` (one correction less); a lowest digit of one bit takes 1 ROT, 1 bit
//! offline and 1 bit online.

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use super::spec::{CompareSpec, Digit};
use super::tree::Leaf;
use crate::planes::{self, conditional_swap, xor_and};
use crate::{MpcError, Ots, Session};

const CHOICES: Tag = Tag::new(0x0313, "masked comparison choices");
const STRINGS: Tag = Tag::new(0x0314, "masked comparison strings");

/// OTs of a digit: string lengths, in bits.
fn strings(digit: Digit) -> Vec<usize> {
    match (digit.bits, digit.with_eq) {
        (1, _) => vec![1],
        (_, true) => vec![3, 2, 1],
        (_, false) => vec![3, 1, 1],
    }
}

/// OTs of a digit.
pub(super) fn ots(digit: Digit) -> usize {
    strings(digit).len()
}

/// Corrected string bits of a digit: all but those that define the masks.
pub(super) fn corrections(digit: Digit) -> usize {
    strings(digit).iter().sum::<usize>() - digit.bits as usize
}

/// Planes of the client's material: coefficients of `lt` (and the constant one of `eq`).
pub(super) fn client_planes(digit: Digit) -> usize {
    if digit.bits == 1 { 1 } else { 3 + usize::from(digit.with_eq) }
}

/// Planes of the server's material: the same, and its masks.
pub(super) fn server_planes(digit: Digit) -> usize {
    client_planes(digit) + digit.bits as usize
}

/// The client's choices in a digit: `x0, x1, x1 x0`.
fn choices(x: &[Bits]) -> Vec<Bits> {
    match x {
        [x0, x1] => vec![x0.clone(), x1.clone(), x0.and(x1)],
        _ => x.to_vec(),
    }
}

/// A digit's numbers complemented.
fn complements(digit: Digit, numbers: &[Bits]) -> Vec<Bits> {
    digit.of(numbers).iter().map(Bits::not).collect()
}

pub(super) fn client_offline(
    spec: &CompareSpec,
    numbers: &[Bits],
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Bits>, MpcError> {
    let (mut received, mut flips) = (Vec::new(), Vec::new());
    for digit in spec.digits() {
        for (choice, bits) in choices(&complements(digit, numbers)).iter().zip(strings(digit)) {
            let ot = ots.receiver.planes(session.channel, spec.n(), bits)?;
            flips.push(ot.choice.xor(choice));
            received.push(ot.m);
        }
    }
    planes::send(session.channel, CHOICES, &flips)?;
    let corrections: usize = spec.digits().map(corrections).sum();
    let mut corrections = planes::recv(session.channel, STRINGS, corrections, spec.n())?.into_iter();
    let mut received = received.into_iter();
    let mut out = Vec::new();
    for digit in spec.digits() {
        let x = complements(digit, numbers);
        let mut products = Vec::new();
        for (ot, choice) in choices(&x).iter().enumerate() {
            let strings = received.next().expect("an OT was drawn for every choice of every digit");
            for (bit, mut share) in strings.into_iter().enumerate() {
                let defining = ot == 0 && bit < digit.bits as usize;
                if !defining {
                    let fix = corrections.next().expect("`corrections` counts the strings that define no mask");
                    xor_and(&mut share, choice, &fix);
                }
                products.push(share);
            }
        }
        let mut planes = coefficients(products);
        if let [x0, x1] = &x[..] {
            let both = x0.and(x1);
            planes[1].xor_assign(&both);
            planes[2].xor_assign(x1);
            if let Some(eq) = planes.get_mut(3) {
                eq.xor_assign(&both);
            }
        }
        out.append(&mut planes);
    }
    Ok(out)
}

pub(super) fn server_offline(
    spec: &CompareSpec,
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<Vec<Bits>, MpcError> {
    let (mut sent, mut fixes, mut masks) = (Vec::new(), Vec::new(), Vec::new());
    for digit in spec.digits() {
        let mut v: Vec<Bits> = Vec::new();
        for (ot, bits) in strings(digit).into_iter().enumerate() {
            let strings = ots.sender.planes(session.channel, spec.n(), bits)?;
            let steps: Vec<Bits> = strings.m0.iter().zip(&strings.m1).map(|(a, b)| a.xor(b)).collect();
            if ot == 0 {
                v = steps[..digit.bits as usize].to_vec();
            }
            let wanted = match (ot, &v[..]) {
                (0, [v0, v1]) => vec![v0.clone(), v1.clone(), v0.and(v1)],
                (1, [v0, v1]) => vec![v1.clone(), v0.clone()],
                _ => v[..1].to_vec(),
            };
            let skip = if ot == 0 { digit.bits as usize } else { 0 };
            fixes.extend(steps.iter().zip(&wanted).skip(skip).map(|(step, want)| step.xor(want)));
            sent.push(strings);
        }
        masks.push(v);
    }
    planes::send(session.channel, STRINGS, &fixes)?;
    let flips = planes::recv(session.channel, CHOICES, sent.len(), spec.n())?;
    for (strings, flip) in sent.iter_mut().zip(&flips) {
        strings.m0.iter_mut().zip(&mut strings.m1).for_each(|(a, b)| conditional_swap(a, b, flip));
    }
    let mut sent = sent.into_iter();
    let mut out = Vec::new();
    for (digit, v) in spec.digits().zip(masks) {
        let products = sent.by_ref().take(self::ots(digit)).flat_map(|o| o.m0).collect();
        let mut planes = coefficients(products);
        if let ([v0, v1], Some(eq)) = (&v[..], planes.get_mut(3)) {
            eq.xor_assign(&v0.and(v1));
        }
        out.append(&mut planes);
        out.extend(v);
    }
    Ok(out)
}

/// From shares of the products `x0 v0, x0 v1, x0 v0 v1, x1 v1 (, x1 v0), x1 x0 v0` to those of the
/// coefficients `lt: 1, d0, d1 (, eq: 1)`.
fn coefficients(products: Vec<Bits>) -> Vec<Bits> {
    match &products[..] {
        [a, b, c, d, e, f] => vec![d.xor(f).xor(c), b.clone(), a.clone(), e.xor(b)],
        [a, b, c, d, f] => vec![d.xor(f).xor(c), b.clone(), a.clone()],
        _ => products,
    }
}

/// Adds `d0 c1 ^ d1 c2` to the constant coefficient of `lt`.
fn lt_share(planes: &[Bits], d: &[Bits]) -> Bits {
    let mut lt = planes[0].clone();
    for (coefficient, d) in planes[1..].iter().zip(d).take(2) {
        xor_and(&mut lt, coefficient, d);
    }
    lt
}

pub(super) fn client_leaf(digit: Digit, numbers: &[Bits], planes: &[Bits], d: &[Bits]) -> Leaf {
    let x = complements(digit, numbers);
    let ([x0, x1], [d0, d1]) = (&x[..], d) else {
        let mut lt = planes[0].clone();
        xor_and(&mut lt, &x[0], &d[0]);
        return Leaf::new(vec![lt]);
    };
    let mut lt = lt_share(planes, d);
    xor_and(&mut lt, &d0.and(d1), x0);
    let mut shares = vec![lt];
    if let Some(eq) = planes.get(3) {
        let mut eq = eq.clone();
        xor_and(&mut eq, d0, x1);
        xor_and(&mut eq, d1, x0);
        shares.push(eq);
    }
    Leaf::new(shares)
}

/// The server's leaf and the masked bits it opens.
pub(super) fn server_leaf(digit: Digit, numbers: &[Bits], planes: &[Bits]) -> (Leaf, Vec<Bits>) {
    let (planes, v) = planes.split_at(client_planes(digit));
    let d: Vec<Bits> = digit.of(numbers).iter().zip(v).map(|(b, v)| b.xor(v)).collect();
    let mut shares = vec![lt_share(planes, if digit.bits == 2 { &d } else { &[] })];
    if let (Some(eq), [d0, d1], [v0, v1]) = (planes.get(3), &d[..], v) {
        let mut eq = eq.clone();
        xor_and(&mut eq, d0, v1);
        xor_and(&mut eq, d1, v0);
        xor_and(&mut eq, d0, d1);
        shares.push(eq);
    }
    (Leaf::new(shares), d)
}
