//! Rewrites for fewer comparisons and fewer nodes: max pools before ReLUs, one ReLU for joined
//! tensors, merged paddings, removed identities.

use super::Work;
use crate::GraphError;
use crate::float::FloatOp;

impl Work {
    pub(super) fn reorder(&mut self) -> Result<(), GraphError> {
        let mut users = self.graph.users();
        for id in 0..self.graph.nodes.len() {
            let changed = match self.graph.nodes[id].op {
                FloatOp::MaxPool(_) | FloatOp::Relu => self.move_behind_relu(id, &users)?,
                FloatOp::Concat => self.join_relus(id, &users)?,
                FloatOp::Reshape => self.merge_reshape(id),
                FloatOp::Pad { .. } => self.merge_pad(id, &users),
                FloatOp::SumPool(_) => self.drop_unit_window(id),
                _ => false,
            };
            if changed {
                users = self.graph.users();
            }
        }
        Ok(())
    }

    /// `MaxPool(Relu(x)) = Relu(MaxPool(x))` with fewer ReLUs; `Relu(Relu(x)) = Relu(x)`. Padding
    /// never wins a maximum.
    fn move_behind_relu(&mut self, id: usize, users: &[Vec<usize>]) -> Result<bool, GraphError> {
        if self.drop_unit_window(id) {
            return Ok(true);
        }
        let Some(&source) = self.graph.nodes[id].inputs.first() else { return Ok(false) };
        if !matches!(self.graph.nodes[source].op, FloatOp::Relu) {
            return Ok(false);
        }
        if matches!(self.graph.nodes[id].op, FloatOp::Relu) {
            self.bypass(id);
            self.count("double ReLU removed");
            return Ok(true);
        }
        if users[source].len() != 1 || self.graph.output == source {
            return Ok(false);
        }
        self.swap(source, id)?;
        self.count("max pool moved before ReLU");
        Ok(true)
    }

    /// `Concat(Relu(a), Relu(b)) = Relu(Concat(a, b))`: one comparison layer (and round) instead of
    /// several.
    fn join_relus(&mut self, id: usize, users: &[Vec<usize>]) -> Result<bool, GraphError> {
        let inputs = self.graph.nodes[id].inputs.clone();
        if let [only] = inputs[..] {
            self.redirect(id, only);
            self.count("concatenation of one tensor removed");
            return Ok(true);
        }
        let are_relus = inputs
            .iter()
            .all(|&i| matches!(self.graph.nodes[i].op, FloatOp::Relu) && users[i].len() == 1 && self.graph.output != i);
        if !are_relus || inputs.is_empty() {
            return Ok(false);
        }
        let sources: Vec<usize> = inputs.iter().map(|&i| self.graph.nodes[i].inputs[0]).collect();
        let name = self.graph.nodes[id].name.clone();
        let concat = self.push(&name, FloatOp::Concat, &sources, &[])?;
        let relu = self.push(&format!("{name}.relu"), FloatOp::Relu, &[concat], &[])?;
        self.redirect(id, relu);
        self.graph.nodes[id].inputs.clear();
        self.count("ReLUs joined behind a concatenation");
        Ok(true)
    }

    fn merge_reshape(&mut self, id: usize) -> bool {
        let Some(&source) = self.graph.nodes[id].inputs.first() else { return false };
        if self.graph.nodes[source].shape == self.graph.nodes[id].shape {
            self.bypass(id);
            self.count("reshape without effect removed");
            return true;
        }
        if matches!(self.graph.nodes[source].op, FloatOp::Reshape) {
            self.graph.nodes[id].inputs = self.graph.nodes[source].inputs.clone();
            self.count("reshapes merged");
            return true;
        }
        false
    }

    /// Moves zero padding of the spatial axes into convolutions, if only convolutions read it.
    fn merge_pad(&mut self, id: usize, users: &[Vec<usize>]) -> bool {
        let FloatOp::Pad { before, after } = self.graph.nodes[id].op.clone() else { return false };
        let readers = &users[id];
        let spatial = before.len() == 3 && before[0] == 0 && after[0] == 0;
        let only_convs = readers.iter().all(|&u| matches!(self.graph.nodes[u].op, FloatOp::Conv { .. }));
        if !spatial || !only_convs || readers.is_empty() || self.graph.output == id {
            return false;
        }
        let source = self.graph.nodes[id].inputs[0];
        for &u in readers {
            let node = &mut self.graph.nodes[u];
            node.inputs = vec![source];
            if let FloatOp::Conv { geometry, .. } = &mut node.op {
                let pads = [before[1], before[2], after[1], after[2]];
                geometry.pads.iter_mut().zip(pads).for_each(|(p, m)| *p += m);
            }
        }
        self.graph.nodes[id].inputs.clear();
        self.graph.nodes[id].op = FloatOp::Input;
        self.count("padding merged into convolutions");
        true
    }

    /// Removes a window of one element, which changes nothing.
    fn drop_unit_window(&mut self, id: usize) -> bool {
        let unit = match &self.graph.nodes[id].op {
            FloatOp::MaxPool(w) | FloatOp::SumPool(w) => w.kernel == [1, 1] && w.stride == [1, 1] && w.pads == [0; 4],
            _ => false,
        };
        if unit {
            self.bypass(id);
            self.graph.nodes[id].inputs.clear();
            self.graph.nodes[id].op = FloatOp::Input;
            self.count("pooling of single elements removed");
        }
        unit
    }
}
