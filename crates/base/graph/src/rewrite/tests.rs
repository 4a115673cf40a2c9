use super::*;
use crate::float::run::run;
use crate::geometry::{ConvGeometry, Window};
use crate::rng::SplitMix;

struct Net {
    graph: FloatGraph,
    rng: SplitMix,
}

impl Net {
    fn new(shape: &[usize]) -> Self {
        Self { graph: FloatGraph::new("x", shape.to_vec()).unwrap(), rng: SplitMix::new(3) }
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        self.rng.floats(n, -1.0, 1.0)
    }

    fn add(&mut self, op: FloatOp, inputs: &[usize], shape: &[usize]) -> usize {
        self.graph.output = self.graph.push("n", op, inputs, shape).unwrap();
        self.graph.output
    }

    fn conv(&mut self, x: usize, out: usize, k: usize, pad: usize) -> usize {
        let channels = self.graph.nodes[x].shape[0];
        let geometry = ConvGeometry { kernel: [k, k], pads: [pad; 4], ..ConvGeometry::pointwise(out) };
        let (weights, bias) = (self.floats(out * channels * k * k), self.floats(out));
        self.add(FloatOp::Conv { geometry, weights, bias }, &[x], &[])
    }

    fn affine(&mut self, x: usize) -> usize {
        let c = self.graph.nodes[x].shape[0];
        let (scale, shift) = (self.floats(c), self.floats(c));
        self.add(FloatOp::Affine { scale, shift }, &[x], &[])
    }

    fn scale(&mut self, x: usize, factor: f32) -> usize {
        let c = self.graph.nodes[x].shape[0];
        self.add(FloatOp::Affine { scale: vec![factor; c], shift: vec![0.0; c] }, &[x], &[])
    }

    fn window(k: usize, s: usize, pad: usize) -> Window {
        Window { kernel: [k, k], stride: [s, s], pads: [pad; 4] }
    }

    /// Simplifies, checks that the function is the same, and returns the result.
    fn check(mut self) -> Rewritten {
        let x = self.floats(self.graph.nodes[0].elements());
        let before = run(&self.graph, &x).unwrap();
        let rewritten = simplify(&self.graph).unwrap();
        let client_input = rewritten.input_affine.as_ref().map_or(x.clone(), |affine| affine.apply(&x));
        let after = run(&rewritten.graph, &client_input).unwrap();
        assert_eq!(before.len(), after.len());
        for (b, a) in before.iter().zip(&after) {
            let a = a * rewritten.output_multiplier as f32;
            assert!((b - a).abs() < 1e-4 * (1.0 + b.abs()), "{b} became {a}: {:?}", rewritten.notes);
        }
        rewritten
    }
}

fn count(r: &Rewritten, is: impl Fn(&FloatOp) -> bool) -> usize {
    r.graph.nodes.iter().filter(|n| is(&n.op)).count()
}

fn affines(r: &Rewritten) -> usize {
    count(r, |op| matches!(op, FloatOp::Affine { .. }))
}

fn layers(r: &Rewritten) -> usize {
    count(r, FloatOp::is_linear)
}

#[test]
fn batch_norm_folds_into_the_conv_before() {
    let mut net = Net::new(&[3, 6, 6]);
    let c = net.conv(0, 4, 3, 1);
    let a = net.affine(c);
    net.affine(a);
    let r = net.check();
    assert_eq!((affines(&r), layers(&r), r.graph.nodes.len()), (0, 1, 2));
}

#[test]
fn batch_norm_folds_into_the_conv_behind_only_without_padding() {
    for (pad, layers_left) in [(0, 2), (1, 3)] {
        let mut net = Net::new(&[3, 6, 6]);
        let c = net.conv(0, 4, 3, 1);
        let relu = net.add(FloatOp::Relu, &[c], &[]);
        let a = net.affine(relu);
        net.conv(a, 2, 3, pad);
        let r = net.check();
        assert_eq!((affines(&r), layers(&r)), (0, layers_left), "padding {pad}");
    }
}

#[test]
fn input_normalisation_goes_to_the_client() {
    for pad in [0, 1] {
        let mut net = Net::new(&[3, 6, 6]);
        let a = net.affine(0);
        net.conv(a, 2, 3, pad);
        let r = net.check();
        assert!(r.input_affine.is_some());
        assert_eq!((affines(&r), layers(&r)), (0, 1));
    }
}

#[test]
fn max_pool_moves_before_relu_through_concat() {
    let mut net = Net::new(&[3, 9, 9]);
    let a = net.conv(0, 4, 1, 0);
    let b = net.conv(0, 2, 3, 1);
    let (ra, rb) = (net.add(FloatOp::Relu, &[a], &[]), net.add(FloatOp::Relu, &[b], &[]));
    let concat = net.add(FloatOp::Concat, &[ra, rb], &[]);
    net.add(FloatOp::MaxPool(Net::window(3, 2, 1)), &[concat], &[]);
    let r = net.check();
    let relus: Vec<usize> =
        r.graph.nodes.iter().filter(|n| n.op == FloatOp::Relu).map(crate::float::FloatNode::elements).collect();
    assert_eq!(relus, [6 * 5 * 5]);
}

#[test]
fn a_relu_with_two_readers_stays() {
    let mut net = Net::new(&[2, 4, 4]);
    let c = net.conv(0, 2, 1, 0);
    let relu = net.add(FloatOp::Relu, &[c], &[]);
    let pool = net.add(FloatOp::MaxPool(Net::window(3, 1, 1)), &[relu], &[]);
    net.add(FloatOp::Add, &[relu, pool], &[]);
    let r = net.check();
    assert!(r.notes.is_empty(), "{:?}", r.notes);
}

#[test]
fn the_division_of_an_average_is_folded() {
    // The division moves into the fully connected layer behind, through the flattening.
    let mut net = Net::new(&[3, 4, 4]);
    let sum = net.add(FloatOp::SumPool(Net::window(4, 1, 0)), &[0], &[]);
    let mean = net.scale(sum, 1.0 / 16.0);
    let flat = net.add(FloatOp::Reshape, &[mean], &[3]);
    let (weights, bias) = (net.floats(6), net.floats(2));
    net.add(FloatOp::Dense { weights, bias }, &[flat], &[]);
    let r = net.check();
    assert_eq!((affines(&r), r.output_multiplier), (0, 1.0));
    // The division moves into the convolution in front.
    let mut net = Net::new(&[3, 4, 4]);
    let c = net.conv(0, 2, 1, 0);
    let sum = net.add(FloatOp::SumPool(Net::window(2, 2, 0)), &[c], &[]);
    let mean = net.scale(sum, 0.25);
    net.add(FloatOp::Concat, &[mean, mean], &[]);
    assert_eq!(affines(&net.check()), 0);
    // The division moves to the client at the end, past the flattening.
    let mut net = Net::new(&[3, 4, 4]);
    let c = net.conv(0, 2, 1, 0);
    let relu = net.add(FloatOp::Relu, &[c], &[]);
    let sum = net.add(FloatOp::SumPool(Net::window(4, 1, 0)), &[relu], &[]);
    let mean = net.scale(sum, 1.0 / 16.0);
    net.add(FloatOp::Reshape, &[mean], &[2]);
    let r = net.check();
    assert_eq!((affines(&r), r.output_multiplier), (0, 1.0 / 16.0));
}

#[test]
fn spatial_padding_merges_into_convolutions() {
    let mut net = Net::new(&[2, 5, 5]);
    let p = net.add(FloatOp::Pad { before: vec![0, 1, 0], after: vec![0, 2, 1] }, &[0], &[]);
    net.conv(p, 2, 3, 0);
    let r = net.check();
    assert_eq!(r.graph.nodes.len(), 2);
}

#[test]
fn affine_maps_that_cannot_fold_become_depthwise_layers() {
    let mut net = Net::new(&[2, 5, 5]);
    let c = net.conv(0, 2, 1, 0);
    let a = net.affine(c);
    let relu = net.add(FloatOp::Relu, &[a], &[]);
    net.add(FloatOp::Concat, &[c, relu], &[]);
    let r = net.check();
    assert_eq!((affines(&r), layers(&r)), (0, 2));
    // Also on flat tensors.
    let mut net = Net::new(&[6]);
    let relu = net.add(FloatOp::Relu, &[0], &[]);
    let a = net.affine(relu);
    net.add(FloatOp::Relu, &[a], &[]);
    assert_eq!(layers(&net.check()), 1);
}

#[test]
fn dead_and_double_nodes_are_removed() {
    let mut net = Net::new(&[2, 4, 4]);
    net.conv(0, 2, 1, 0);
    let c = net.conv(0, 3, 1, 0);
    let a = net.add(FloatOp::Relu, &[c], &[]);
    let b = net.add(FloatOp::Relu, &[a], &[]);
    let flat = net.add(FloatOp::Reshape, &[b], &[3, 16]);
    net.add(FloatOp::Reshape, &[flat], &[48]);
    let r = net.check();
    assert_eq!(r.graph.nodes.len(), 4, "{:?}", r.graph);
}
