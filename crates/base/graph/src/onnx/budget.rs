//! Limits on the constants of a file. A few bytes name a node that doubles a constant, and any
//! number of nodes may use it. The elements that the file stores therefore bound the elements that
//! folding makes and the numbers that the network holds.

use std::cell::Cell;

use super::node::fail;
use super::proto::NodeProto;
use super::{GraphError, file_error};
use crate::MAX_STORED_ELEMENTS;
use crate::geometry::checked_elements;

/// Elements that folding may make per stored element: exporters cast, reshape, transpose and
/// dequantise weights one after the other.
const FOLDED_FOR_STORED: usize = 16;
/// Elements that folding may make in addition, for shapes, grids and positions.
const FREE_FOLDED_ELEMENTS: usize = 1 << 22;
/// Numbers that the network may hold per stored element.
const NUMBERS_FOR_STORED: usize = 16;
/// Numbers that the network may hold in addition: an unrolled layer has its weights once for each
/// step.
const FREE_NUMBERS: usize = 1 << 26;
/// Largest number of axes of a constant.
pub(super) const MAX_AXES: usize = 64;

/// The remaining budget.
#[derive(Debug)]
pub(super) struct Budget {
    /// Elements that the file may still store.
    stored: Cell<usize>,
    /// Elements that folding may still make.
    folded: Cell<usize>,
    /// Numbers that the network may still hold.
    numbers: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            stored: Cell::new(MAX_STORED_ELEMENTS),
            folded: Cell::new(FREE_FOLDED_ELEMENTS),
            numbers: Cell::new(FREE_NUMBERS),
        }
    }
}

impl Budget {
    /// Counts a stored tensor of `count` elements.
    ///
    /// # Errors
    /// If the file stores too many elements: tensors may overlap in a file of external data.
    pub fn count_stored(&self, count: usize) -> Result<(), GraphError> {
        let remaining = self.stored.get().checked_sub(count);
        self.stored.set(remaining.ok_or_else(|| {
            file_error(format!("its tensors have more than {MAX_STORED_ELEMENTS} elements together"))
        })?);
        self.folded.set(self.folded.get().saturating_add(FOLDED_FOR_STORED * count));
        self.numbers.set(self.numbers.get().saturating_add(NUMBERS_FOR_STORED * count));
        Ok(())
    }

    /// Returns the number of elements of a constant of this shape, if folding may still make so
    /// many. Does not change the budget.
    ///
    /// # Errors
    /// If they exceed the budget.
    pub fn elements(&self, n: &NodeProto, dims: &[usize]) -> Result<usize, GraphError> {
        let count = checked_elements(dims).filter(|&count| count <= self.folded.get() && dims.len() <= MAX_AXES);
        count.ok_or_else(|| fail(n, TOO_LARGE))
    }

    pub fn count_folded(&self, n: &NodeProto, dims: &[usize]) -> Result<(), GraphError> {
        // A constant without elements counts as one.
        let count = self.elements(n, dims)?.max(1);
        self.folded.set(self.folded.get().saturating_sub(count));
        Ok(())
    }

    /// Counts the numbers of a layer, made by a node.
    ///
    /// # Errors
    /// If they exceed the budget.
    pub fn numbers(&self, n: &NodeProto, count: usize) -> Result<(), GraphError> {
        let remaining = self.numbers.get().checked_sub(count).ok_or_else(|| fail(n, TOO_LARGE))?;
        self.numbers.set(remaining);
        Ok(())
    }
}

const TOO_LARGE: &str =
    "its shape is too large: the constants that the nodes of this file make are many times what it stores";
