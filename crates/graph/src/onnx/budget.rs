//! How much the constants of a file may become. A few bytes name a node that doubles a constant, and
//! any number of nodes may use it: what folding makes, and what the network then holds, is bounded by
//! what the file stores.

use std::cell::Cell;

use super::node::fail;
use super::proto::NodeProto;
use super::{GraphError, file};
use crate::MAX_STORED_ELEMENTS;
use crate::geometry::checked_elements;

/// Elements that folding may make for each that the file stores: exporters cast, reshape, transpose and
/// dequantise weights one after the other.
const FOLDED_FOR_STORED: usize = 16;
/// Elements that folding may make beside that: of shapes, grids and positions.
const FOLDED: usize = 1 << 22;
/// Numbers that the network may hold for each element that the file stores.
const NUMBERS_FOR_STORED: usize = 16;
/// Numbers that it may hold beside that: an unrolled layer has its weights once for each step.
const NUMBERS: usize = 1 << 26;
/// Most axes of a constant.
pub(super) const MAX_AXES: usize = 64;

/// What is left.
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
        Self { stored: Cell::new(MAX_STORED_ELEMENTS), folded: Cell::new(FOLDED), numbers: Cell::new(NUMBERS) }
    }
}

impl Budget {
    /// The file stores a tensor of so many elements.
    ///
    /// # Errors
    /// All of them are too many: tensors may lie over each other in a file of external data.
    pub fn stored(&self, count: usize) -> Result<(), GraphError> {
        let left = self.stored.get().checked_sub(count);
        self.stored.set(
            left.ok_or_else(|| file(format!("its tensors have more than {MAX_STORED_ELEMENTS} elements together")))?,
        );
        self.folded.set(self.folded.get().saturating_add(FOLDED_FOR_STORED * count));
        self.numbers.set(self.numbers.get().saturating_add(NUMBERS_FOR_STORED * count));
        Ok(())
    }

    /// The elements of a constant of this shape, if folding may still make so many. Nothing is taken
    /// yet.
    ///
    /// # Errors
    /// They are too many.
    pub fn elements(&self, n: &NodeProto, dims: &[usize]) -> Result<usize, GraphError> {
        let count = checked_elements(dims).filter(|&count| count <= self.folded.get() && dims.len() <= MAX_AXES);
        count.ok_or_else(|| fail(n, TOO_LARGE))
    }

    /// A node has made a constant of this shape.
    ///
    /// # Errors
    /// As [`elements`](Self::elements).
    pub fn folded(&self, n: &NodeProto, dims: &[usize]) -> Result<(), GraphError> {
        // A constant without elements takes something, too.
        let count = self.elements(n, dims)?.max(1);
        self.folded.set(self.folded.get().saturating_sub(count));
        Ok(())
    }

    /// A node has made a layer with so many numbers.
    ///
    /// # Errors
    /// They are too many.
    pub fn numbers(&self, n: &NodeProto, count: usize) -> Result<(), GraphError> {
        let left = self.numbers.get().checked_sub(count).ok_or_else(|| fail(n, TOO_LARGE))?;
        self.numbers.set(left);
        Ok(())
    }
}

const TOO_LARGE: &str =
    "its shape is too large: the constants that the nodes of this file make are many times what it stores";
