//! Comparison leaves by masked evaluation ([ABY2] style), for digits of a few bits. `(lt, eq)` of a digit
//! are polynomials in the *opened* masked bits of the server. Both parties share the coefficients from the
//! offline phase.
//!
//! The client knows the bits `x` of each digit (the complement of its number) offline. The server
//! masks its bits `b` with random `v` and opens `d = b ^ v` online. As polynomials in `b`
//! ```text
//! lt = sum_i x_i b_i prod_{j > i} (x_j ^ b_j)          eq = prod_i (x_i ^ b_i)
//! ```
//! have coefficients that are products of the client's bits. Substituting `b_j = d_j ^ v_j`, one
//! bit after the other, adds `v_j` times the coefficient of `S + {j}` to that of `S`, for every set
//! `S` of other bits. The server is the receiver of one OT for each of its bits, and the OT's
//! random choice **is** the mask `v_j`, so no correction is needed. The client's share of a
//! coefficient is a string of the OT; the server multiplies its own share's contribution itself.
//! Equal coefficients share one string ([`Program`]).
//!
//! Cost of a digit of m bits: m ROTs (server receives), and m bits server to client online. Offline the
//! client sends 1, 5, 16 or 43 bits for m = 1, 2, 3, 4 (1, 4, 12, 32 for the lowest digit, which needs no
//! `eq`).

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use super::node::Leaf;
use super::program::{Program, Value};
use super::spec::{CompareSpec, Digit};
use crate::planes::{self, xor_and};
use crate::{MpcError, Ots, Session};

const STRINGS: Tag = Tag::new(0x0314, "masked comparison strings");

fn program(digit: Digit) -> Program {
    Program::new(digit.bits as usize, digit.with_eq)
}

/// OTs of a digit: the server receives.
pub(super) fn ots(digit: Digit) -> usize {
    digit.bits as usize
}

pub(super) fn draws(digit: Digit) -> usize {
    program(digit).ot_factors.len()
}

/// Bits of a digit that the client sends offline.
pub(super) fn corrections(digit: Digit) -> usize {
    program(digit).corrections()
}

/// Planes of the client's material: its shares of coefficients that its number does not determine.
/// Excludes the constant of `lt` where a node has folded it in.
pub(super) fn client_planes(digit: Digit) -> usize {
    program(digit).material_sums.len() - usize::from(digit.folded)
}

/// Planes of the server's material: the same planes, and its masks.
pub(super) fn server_planes(digit: Digit) -> usize {
    client_planes(digit) + digit.bits as usize
}

struct Shares<'a> {
    program: &'a Program,
    known: Known<'a>,
    sums: Vec<Option<Bits>>,
}

/// A party's initial knowledge of a digit.
enum Known<'a> {
    /// The client's bits.
    Client(&'a [Bits]),
    /// The server's masks.
    Server(&'a [Bits]),
}

impl<'a> Shares<'a> {
    fn new(program: &'a Program, known: Known<'a>) -> Self {
        Self { program, known, sums: vec![None; program.sums.len()] }
    }

    /// The shares that the material stores.
    fn into_stored(self) -> impl Iterator<Item = Bits> {
        let Self { program, mut sums, .. } = self;
        program
            .material_sums
            .iter()
            .map(move |&i| sums[i].take().expect("every sum was made"))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Restores the shares from the material. A folded constant of `lt` counts as zero.
    fn restore(program: &'a Program, known: Known<'a>, planes: &[Bits], folded: bool) -> Self {
        let mut shares = Self::new(program, known);
        let mut sums = program.material_sums.iter();
        if folded {
            let n = match shares.known {
                Known::Client(bits) | Known::Server(bits) => bits[0].len(),
            };
            let &constant = sums.next().expect("`lt` has a constant");
            shares.sums[constant] = Some(Bits::zeros(n));
        }
        for (&i, plane) in sums.zip(planes) {
            shares.sums[i] = Some(plane.clone());
        }
        shares
    }

    /// The share of a value; `None` for zero.
    fn share_of(&self, value: Value) -> Option<Bits> {
        match (value, &self.known) {
            (Value::ClientProduct(set), Known::Client(x)) => {
                let mut factors = x.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, x)| x);
                let first = factors.next().expect("a product has a factor").clone();
                Some(factors.fold(first, |product, x| product.and(x)))
            }
            (Value::One, Known::Server(v)) => Some(Bits::zeros(v[0].len()).not()),
            (Value::Sum(i), _) if self.sums[i].is_some() => self.sums[i].clone(),
            (Value::Sum(i), known) => {
                let sum = &self.program.sums[i];
                debug_assert!(sum.factor == Value::One, "only such sums are left out of the material");
                let base = self.share_of(sum.base);
                match known {
                    Known::Client(_) => base,
                    Known::Server(v) => Some(xor(base, &v[sum.mask])),
                }
            }
            _ => None,
        }
    }

    /// The share of a polynomial in the opened bits `d`.
    fn evaluate(&self, coefficients: &[Value], d: &[Bits]) -> Bits {
        let mut monomials = vec![Bits::zeros(d[0].len()).not()];
        let mut out = Bits::zeros(d[0].len());
        for (set, &coefficient) in coefficients.iter().enumerate() {
            if set > 0 {
                let top = set.ilog2() as usize;
                monomials.push(monomials[set ^ (1 << top)].and(&d[top]));
            }
            if let Some(share) = self.share_of(coefficient) {
                xor_and(&mut out, &share, &monomials[set]);
            }
        }
        out
    }

    /// The party's leaf, from the opened bits `d`.
    fn leaf(&self, d: &[Bits]) -> Leaf {
        let functions = [&self.program.lt, &self.program.eq];
        let needed = functions.into_iter().filter(|f| !f.is_empty());
        Leaf::new(needed.map(|f| self.evaluate(f, d)).collect())
    }
}

/// `base ^ operand`, with `None` for zero.
fn xor(base: Option<Bits>, operand: &Bits) -> Bits {
    match base {
        Some(mut base) => {
            base.xor_assign(operand);
            base
        }
        None => operand.clone(),
    }
}

/// The digit's bits of the client's share: its numbers complemented.
fn complements(digit: Digit, numbers: &[Bits]) -> Vec<Bits> {
    digit.select(numbers).iter().map(Bits::not).collect()
}

#[derive(Default)]
pub(super) struct LeafMaterial {
    /// For each digit: the constant of `lt`, if a node may fold it in.
    pub(super) constants: Vec<Option<Bits>>,
    /// For each digit: the other stored planes.
    planes: Vec<Vec<Bits>>,
}

impl LeafMaterial {
    /// Adds the next digit's stored shares and masks.
    fn push(&mut self, stored: Vec<Bits>, masks: Vec<Bits>) {
        let mut stored = stored.into_iter();
        self.constants.push(stored.next());
        self.planes.push(stored.chain(masks).collect());
    }

    /// Leaves without constants for a node to fold in.
    pub(super) fn without_constants(planes: Vec<Bits>, digits: usize) -> Self {
        let (mut by_digit, constants) = (vec![Vec::new(); digits], vec![None; digits]);
        if let Some(first) = by_digit.first_mut() {
            *first = planes;
        }
        Self { constants, planes: by_digit }
    }

    /// All planes, digit by digit: the constant first if no node folded it in.
    pub(super) fn planes(self) -> Vec<Bits> {
        self.constants
            .into_iter()
            .zip(self.planes)
            .flat_map(|(constant, planes)| constant.into_iter().chain(planes))
            .collect()
    }
}

pub(super) fn client_offline(
    spec: &CompareSpec,
    numbers: &[Bits],
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<LeafMaterial, MpcError> {
    let (mut fixes, mut out) = (Vec::new(), LeafMaterial::default());
    for digit in spec.digits() {
        let (program, x) = (program(digit), complements(digit, numbers));
        let mut shares = Shares::new(&program, Known::Client(&x));
        for (mask, factors) in program.ot_factors.iter().enumerate().rev() {
            let strings = ots.sender.planes(session.channel, spec.n, factors.len())?;
            for ((m0, m1), &factor) in strings.m0.iter().zip(&strings.m1).zip(factors) {
                fixes.push(xor(shares.share_of(factor), &m0.xor(m1)));
            }
            for (i, sum) in program.sums_with(mask) {
                let pad = factors.iter().position(|&f| f == sum.factor).map(|index| &strings.m0[index]);
                let base = shares.share_of(sum.base);
                let share = pad.map_or_else(|| base.clone(), |pad| Some(xor(base.clone(), pad)));
                shares.sums[i] = Some(share.unwrap_or_else(|| Bits::zeros(spec.n)));
            }
        }
        out.push(shares.into_stored().collect(), Vec::new());
    }
    planes::send(session.channel, STRINGS, &fixes)?;
    Ok(out)
}

pub(super) fn server_offline(
    spec: &CompareSpec,
    session: &mut Session<'_>,
    ots: &mut Ots,
) -> Result<LeafMaterial, MpcError> {
    let mut received = Vec::new();
    for digit in spec.digits() {
        for factors in program(digit).ot_factors.iter().rev() {
            received.push(ots.receiver.planes(session.channel, spec.n, factors.len())?);
        }
    }
    let count = spec.digits().map(corrections).sum();
    let mut fixes = planes::recv(session.channel, STRINGS, count, spec.n)?.into_iter();
    let mut received = received.into_iter();
    let mut out = LeafMaterial::default();
    for digit in spec.digits() {
        let program = program(digit);
        let (mut masks, mut strings): (Vec<Bits>, Vec<_>) =
            received.by_ref().take(digit.bits as usize).map(|ot| (ot.choice, ot.m)).unzip();
        // The list has the highest bit first.
        masks.reverse();
        let mut shares = Shares::new(&program, Known::Server(&masks));
        for (mask, factors) in program.ot_factors.iter().enumerate().rev() {
            let v = &masks[mask];
            let mut products = std::mem::take(&mut strings[masks.len() - 1 - mask]);
            for (product, &factor) in products.iter_mut().zip(factors) {
                xor_and(product, v, &fixes.next().expect("`corrections` counts the strings of all digits"));
                if let Some(own_share) = shares.share_of(factor) {
                    xor_and(product, v, &own_share);
                }
            }
            for (i, sum) in program.sums_with(mask) {
                let product = factors.iter().position(|&f| f == sum.factor).map_or(v, |index| &products[index]);
                shares.sums[i] = Some(xor(shares.share_of(sum.base), product));
            }
        }
        let stored: Vec<Bits> = shares.into_stored().collect();
        out.push(stored, masks);
    }
    Ok(out)
}

/// The client's leaf, from its material and the opened bits.
pub(super) fn client_leaf(digit: Digit, numbers: &[Bits], planes: &[Bits], d: &[Bits]) -> Leaf {
    let (program, x) = (program(digit), complements(digit, numbers));
    Shares::restore(&program, Known::Client(&x), planes, digit.folded).leaf(d)
}

/// The server's leaf and the masked bits that it opens.
pub(super) fn server_leaf(digit: Digit, numbers: &[Bits], planes: &[Bits]) -> (Leaf, Vec<Bits>) {
    let (planes, v) = planes.split_at(client_planes(digit));
    let d: Vec<Bits> = digit.select(numbers).iter().zip(v).map(|(b, v)| b.xor(v)).collect();
    let program = program(digit);
    (Shares::restore(&program, Known::Server(v), planes, digit.folded).leaf(&d), d)
}
