//! Look-up functions: their tables, and the clipped input that is looked up.

use tacit_graph::{Function, NodeId};

use super::super::table;
use super::super::tabulated::{Argument, Scales, Tabulated};
use super::{Emitter, Size, Wire};
use crate::{Op, RingError};

impl Emitter<'_> {
    /// Adds a table of the function, and clips the input in front of it if the input may leave the
    /// table.
    pub(super) fn function(
        &mut self,
        id: usize,
        name: &str,
        source: usize,
        function: Function,
    ) -> Result<Wire, RingError> {
        let scales = Scales {
            input: self.sizes(source),
            finest: self.wires[source].frac,
            result: self.sizes(id)[0],
            frac_bits: self.target[id],
            most_bits: self.table_bits,
        };
        let made = table::tabulate(function, &scales).map_err(|what| {
            let what = format!("node `{name}` ({}): {what}", function.name());
            RingError::NoRing { what }
        })?;
        let x = self.at_most(source, made.frac);
        let half = 1i64 << (made.table.bits() - 1);
        let units = scales.input.map(|size| size * f64::from(made.frac).exp2() + 2.0 * half as f64 + 1.0);
        let (x, offset) = self.argument(id, name, x, &made, units);
        let table = made.table;
        let index = self.add(id, &format!("{name}.index"), Op::AddConst { value: offset }, &[x.id], x.frac);
        self.sized.insert(index.id, Size::Ring(table.bits()));
        let (range, frac) = (table.range(), table.frac_bits);
        let made = self.add(id, name, Op::LookUp(table), &[index.id], frac);
        let largest = range.map(i64::unsigned_abs).into_iter().max().unwrap_or(0) as f64;
        self.sized.insert(made.id, Size::Units([largest; 2]));
        Ok(made)
    }

    /// Returns the looked-up part of `x`, clipped if it may leave the table, and the addend that
    /// makes it an index.
    fn argument(&mut self, id: usize, name: &str, x: Wire, made: &Tabulated, units: [f64; 2]) -> (Wire, i64) {
        let mut step = |part: &str, op: Op, inputs: &[NodeId]| {
            let made = self.add(id, &format!("{name}.{part}"), op, inputs, x.frac);
            self.sized.insert(made.id, Size::Units(units));
            made
        };
        let (half, centre) = (1i64 << (made.table.bits() - 1), made.centre);
        // The numbers that lines reserve are above all inputs.
        let top = half - 1 - made.table.reserved();
        let mut x = x;
        if made.of != Argument::Itself {
            let above = step("positive", Op::Relu, &[x.id]);
            x = step("below", Op::Sub, &[above.id, x.id]);
            if made.of == Argument::Magnitude {
                x = step("magnitude", Op::Add, &[above.id, x.id]);
            }
        }
        if !made.clipped {
            return (x, -centre);
        }
        // max(x - centre, 1 - half) + half - 1, if x may be below the table.
        let mut from = -centre;
        if made.of == Argument::Itself {
            let low = step("low", Op::AddConst { value: half - 1 - centre }, &[x.id]);
            (x, from) = (step("above", Op::Relu, &[low.id]), 1 - half);
        }
        // Clip to the top.
        let high = step("high", Op::AddConst { value: from - top }, &[x.id]);
        let over = step("over", Op::Relu, &[high.id]);
        (step("clipped", Op::Sub, &[x.id, over.id]), from)
    }
}
