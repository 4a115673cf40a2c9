//! Look-up functions: their tables, and the clipped input that is looked up.

use tacit_graph::{Function, NodeId};

use super::super::table;
use super::super::tabulated::{Argument, Scales, Tabulated};
use super::{Emitter, Size, Wire};
use crate::{Op, RingError};

impl Emitter<'_> {
    /// Adds a table of the function, behind clips if its input may leave the table.
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
            most_bits: self.options.table_bits,
        };
        let tabulated = table::tabulate(function, &scales).map_err(|what| {
            let what = format!("node `{name}` ({}): {what}", function.name());
            RingError::NoRing { what }
        })?;
        let x = self.with_frac_at_most(source, tabulated.frac);
        let half = 1i64 << (tabulated.table.bits() - 1);
        let units = scales.input.map(|size| size * f64::from(tabulated.frac).exp2() + 2.0 * half as f64 + 1.0);
        let (x, offset) = self.argument(id, name, x, &tabulated, units);
        let table = tabulated.table;
        let index = self.add(id, &format!("{name}.index"), Op::AddConst { value: offset }, &[x.id], x.frac);
        self.known_sizes.insert(index.id, Size::Ring(table.bits()));
        let (range, frac) = (table.range().ends(), table.frac_bits);
        let wire = self.add(id, name, Op::LookUp(table), &[index.id], frac);
        let largest = range.map(i64::unsigned_abs).into_iter().max().unwrap_or(0) as f64;
        self.known_sizes.insert(wire.id, Size::Units([largest; 2]));
        Ok(wire)
    }

    /// The looked-up part of `x`, clipped if it may leave the table, and the addend that makes it an index.
    fn argument(&mut self, id: usize, name: &str, x: Wire, tabulated: &Tabulated, units: [f64; 2]) -> (Wire, i64) {
        let mut step = |part: &str, op: Op, inputs: &[NodeId]| {
            let wire = self.add(id, &format!("{name}.{part}"), op, inputs, x.frac);
            self.known_sizes.insert(wire.id, Size::Units(units));
            wire
        };
        let (half, centre) = (1i64 << (tabulated.table.bits() - 1), tabulated.centre);
        // The numbers that lines reserve are above all inputs.
        let top = half - 1 - tabulated.table.reserved();
        let mut x = x;
        if tabulated.argument != Argument::Itself {
            let above = step("positive", Op::Relu, &[x.id]);
            x = step("below", Op::Sub, &[above.id, x.id]);
            if tabulated.argument == Argument::Magnitude {
                x = step("magnitude", Op::Add, &[above.id, x.id]);
            }
        }
        if !tabulated.clipped {
            return (x, -centre);
        }
        // max(x - centre, 1 - half) + half - 1, if x may be below the table.
        let mut offset = -centre;
        if tabulated.argument == Argument::Itself {
            let low = step("low", Op::AddConst { value: half - 1 - centre }, &[x.id]);
            (x, offset) = (step("above", Op::Relu, &[low.id]), 1 - half);
        }
        let high = step("high", Op::AddConst { value: offset - top }, &[x.id]);
        let excess = step("over", Op::Relu, &[high.id]);
        (step("clipped", Op::Sub, &[x.id, excess.id]), offset)
    }
}
