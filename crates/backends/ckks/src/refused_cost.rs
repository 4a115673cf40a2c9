//! The least cost of a network that is refused for its maxima or its size.

use tacit_graph::FloatGraph;
use tacit_graph::float::FloatOp;

use tacit_backend_api::BackendError;

const SLOTS: usize = 1 << 15;
/// Seconds of one thread for a bootstrap of the largest set: three quarters of 130.6 s for 19 of
/// them (ResNet-20 MPCNN, docs/keysets.md).
const BOOTSTRAP_SECONDS: f64 = 5.2;

/// Adds the network's cost, if the reason is maxima or tensors of many ciphertexts.
pub(super) fn add_cost(error: BackendError, graph: &FloatGraph) -> BackendError {
    match error {
        BackendError::Unsupported { node, name, op, what } if matches!(graph.nodes[node].op, FloatOp::MaxPool(_)) => {
            BackendError::Unsupported { node, name, op, what: what + &cost_sentence(graph) }
        }
        BackendError::Option { backend, key, what } if key == "set" => {
            BackendError::Option { backend, key, what: what + &cost_sentence(graph) }
        }
        error => error,
    }
}

/// The number of ciphertexts that comparisons fill: one for a ReLU, one less than the window's places for a
/// maximum. Each comparison takes the levels between two bootstraps, so at least one bootstrap.
fn comparison_ciphertexts(graph: &FloatGraph) -> usize {
    let counts = graph.nodes.iter().map(|node| {
        let per_ciphertext = match &node.op {
            FloatOp::Relu => 1,
            FloatOp::MaxPool(window) => window.kernel[0] * window.kernel[1] - 1,
            _ => 0,
        };
        per_ciphertext * node.elements().div_ceil(SLOTS)
    });
    counts.sum()
}

/// An empty sentence without comparisons.
fn cost_sentence(graph: &FloatGraph) -> String {
    match comparison_ciphertexts(graph) {
        0 => String::new(),
        count => format!(
            ". Cut into ciphertexts of {SLOTS} slots its comparisons would take {count} bootstraps at least, about {:.0} s of one thread \
             an input, layers not counted",
            count as f64 * BOOTSTRAP_SECONDS
        ),
    }
}

#[cfg(test)]
mod tests {
    use tacit_graph::geometry::Window;

    use super::*;

    /// 3 x 224 x 224 values are five ciphertexts, eight times 3 x 112 x 112 are two each.
    #[test]
    fn counts_comparisons_by_ciphertexts() {
        let mut graph = FloatGraph::new("x", vec![3, 224, 224]).unwrap();
        let relu = graph.push("relu", FloatOp::Relu, &[0], &[]).unwrap();
        let window = Window { kernel: [3, 3], stride: [2, 2], pads: [1, 1, 0, 0] };
        let pool = graph.push("pool", FloatOp::MaxPool(window), &[relu], &[]).unwrap();
        graph.output = pool;
        assert_eq!(comparison_ciphertexts(&graph), 5 + 8 * 2);
        let refused = |node: usize, op| {
            let error = BackendError::Unsupported { node, name: "it".into(), op, what: "no".into() };
            add_cost(error, &graph).to_string()
        };
        assert!(refused(pool, "MaxPool").contains("21 bootstraps at least, about 109 s"));
        assert!(refused(relu, "Relu").ends_with(": no"));
    }
}
