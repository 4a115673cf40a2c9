//! Symbolic derivation of less-than and equality for one digit, the same at both parties; see
//! [`super::masked`].

/// A bit that both parties share, classified by public knowledge. Equal expressions stand for equal
/// values with equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Both shares are zero.
    Zero,
    /// The server's share is one, the client's zero.
    One,
    /// The product of the client's bits in this non-empty set. The server's share is zero.
    ClientProduct(u32),
    /// A sum of the program.
    Sum(usize),
}

/// `base ^ v_mask factor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) base: Value,
    pub(super) mask: usize,
    pub(super) factor: Value,
}

/// The polynomials `lt` and `eq` of a digit in its opened bits, and the sums that compute their
/// coefficients.
pub(super) struct Program {
    /// Each after its base and factor.
    pub(super) sums: Vec<Sum>,
    /// `ot_factors[i]`: the values other than 1 that the server's mask `v_i` is multiplied with.
    /// `v_i` is the choice bit of one OT, which has a pair of strings for each of these values. The highest
    /// mask is substituted first.
    pub(super) ot_factors: Vec<Vec<Value>>,
    /// Coefficient of each set of opened bits in `lt`.
    pub(super) lt: Vec<Value>,
    /// The same for `eq`; empty if it is not needed.
    pub(super) eq: Vec<Value>,
    /// Indices of the sums whose shares are material. The first is the constant of `lt`, on which no other
    /// sum depends.
    pub(super) material_sums: Vec<usize>,
}

fn product(set: usize) -> Value {
    if set == 0 { Value::One } else { Value::ClientProduct(set as u32) }
}

impl Program {
    /// The program for a digit of `bits` bits (1 to 4), with or without its `eq`.
    pub(super) fn new(bits: usize, with_eq: bool) -> Self {
        let full_set = (1usize << bits) - 1;
        // Coefficient of a set S of b's. In `eq`: the x's of all other bits. In `lt`: the x of the
        // lowest bit of S, and those of the other bits above it.
        let mut program = Self {
            sums: Vec::new(),
            ot_factors: vec![Vec::new(); bits],
            lt: (0..=full_set).map(|set| lt(set, full_set)).collect(),
            eq: if with_eq { (0..=full_set).map(|set| product(full_set & !set)).collect() } else { Vec::new() },
            material_sums: Vec::new(),
        };
        for mask in (0..bits).rev() {
            program.eq = program.mask_coefficients(mask, &program.eq.clone());
            program.lt = program.mask_coefficients(mask, &program.lt.clone());
        }
        for value in [program.lt.clone(), program.eq.clone()].concat() {
            program.add_to_material(value);
        }
        program
    }

    /// The coefficients after the substitution `b_mask = d_mask ^ v_mask`.
    fn mask_coefficients(&mut self, mask: usize, coefficients: &[Value]) -> Vec<Value> {
        let values = coefficients.iter().enumerate().map(|(set, &base)| match coefficients.get(set | 1 << mask) {
            Some(&factor) if set >> mask & 1 == 0 => self.sum(Sum { base, mask, factor }),
            _ => base,
        });
        values.collect()
    }

    fn sum(&mut self, sum: Sum) -> Value {
        if sum.factor == Value::Zero {
            return sum.base;
        }
        let ot_factors = &mut self.ot_factors[sum.mask];
        if sum.factor != Value::One && !ot_factors.contains(&sum.factor) {
            ot_factors.push(sum.factor);
        }
        let known = self.sums.iter().position(|s| *s == sum);
        Value::Sum(known.unwrap_or_else(|| {
            self.sums.push(sum);
            self.sums.len() - 1
        }))
    }

    /// Makes a value's shares material, unless they follow from others: shares of sums with a
    /// factor of one follow from the base and the mask.
    fn add_to_material(&mut self, value: Value) {
        let Value::Sum(i) = value else { return };
        match self.sums[i] {
            Sum { factor: Value::One, base, .. } => self.add_to_material(base),
            _ if self.material_sums.contains(&i) => {}
            _ => self.material_sums.push(i),
        }
    }

    /// Number of bits that the client sends.
    pub(super) fn corrections(&self) -> usize {
        self.ot_factors.iter().map(Vec::len).sum()
    }

    /// The sums of a mask, with their index. Their bases and factors have higher masks.
    pub(super) fn sums_with(&self, mask: usize) -> impl Iterator<Item = (usize, Sum)> + '_ {
        self.sums.iter().copied().enumerate().filter(move |(_, sum)| sum.mask == mask)
    }
}

/// Returns the coefficient in `lt` of a set among `full_set` bits.
fn lt(set: usize, full_set: usize) -> Value {
    if set == 0 {
        return Value::Zero;
    }
    let lowest = 1 << set.trailing_zeros();
    product(lowest | (full_set & !set & !(lowest - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value for the client's bits `x` and the server's masks `v`.
    fn value(program: &Program, value: Value, x: usize, v: usize) -> bool {
        match value {
            Value::Zero => false,
            Value::One => true,
            Value::ClientProduct(set) => x & set as usize == set as usize,
            Value::Sum(i) => {
                let Sum { base, mask, factor } = program.sums[i];
                self::value(program, base, x, v) ^ (v >> mask & 1 == 1 && self::value(program, factor, x, v))
            }
        }
    }

    fn polynomial(program: &Program, coefficients: &[Value], x: usize, v: usize, d: usize) -> bool {
        coefficients.iter().enumerate().filter(|&(s, &c)| s & !d == 0 && value(program, c, x, v)).count() % 2 == 1
    }

    #[test]
    fn polynomials_compare_for_all_bits_and_masks() {
        for bits in 1..=4 {
            let program = Program::new(bits, true);
            let full_set = (1 << bits) - 1;
            for (x, b) in (0..=full_set).flat_map(|x| (0..=full_set).map(move |b| (x, b))) {
                for v in 0..=full_set {
                    let evaluate = |f: &[Value]| polynomial(&program, f, x, v, b ^ v);
                    assert_eq!(evaluate(&program.lt), (!x & full_set) < b, "{bits} bits, x = {x}, b = {b}, v = {v}");
                    assert_eq!(evaluate(&program.eq), (!x & full_set) == b, "{bits} bits, x = {x}, b = {b}, v = {v}");
                }
            }
        }
    }

    #[test]
    fn constant_of_lt_is_first_and_used_once() {
        for (bits, with_eq) in (1..=4).flat_map(|bits| [(bits, false), (bits, true)]) {
            let program = Program::new(bits, with_eq);
            let constant = Value::Sum(program.material_sums[0]);
            assert_eq!(program.lt[0], constant);
            assert!(!program.lt[1..].contains(&constant) && !program.eq.contains(&constant));
            // Sums that follow from others when the material is read.
            let derived = program.sums.iter().filter(|sum| sum.factor == Value::One);
            assert!(derived.into_iter().all(|sum| sum.base != constant));
        }
    }

    #[test]
    fn costs_are_as_documented() {
        let costs = |with_eq| {
            [1, 2, 3, 4].map(|bits| {
                let program = Program::new(bits, with_eq);
                (program.corrections(), program.material_sums.len())
            })
        };
        assert_eq!(costs(true), [(1, 1), (5, 4), (16, 11), (43, 26)]);
        assert_eq!(costs(false), [(1, 1), (4, 3), (12, 7), (32, 15)]);
    }
}
