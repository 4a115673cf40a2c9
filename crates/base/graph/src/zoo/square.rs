//! Networks whose only activation is the square, for back ends that compute on encrypted numbers.

use super::builder::{Builder, Tensor};

fn conv_square(b: &mut Builder, x: &Tensor, out: usize, k: usize, stride: usize, pad: usize) -> Tensor {
    let c = b.conv(x, out, k, stride, pad, true);
    b.square(&c)
}

fn dense_square(b: &mut Builder, x: &Tensor, out: usize) -> Tensor {
    let d = b.dense(x, out, 0.5);
    b.square(&d)
}

/// The network of CryptoNets (Gilad-Bachrach et al. 2016, figure 2) as used there for inference,
/// with its linear layers joined.
pub(super) fn cryptonets(b: &mut Builder) {
    let x = b.input();
    let mut x = conv_square(b, &x, 5, 5, 2, 1);
    x = b.flatten(&x);
    x = dense_square(b, &x, 100);
    b.dense(&x, 10, 0.5);
}

pub(super) fn mlp(b: &mut Builder) {
    let x = b.input();
    let mut x = b.flatten(&x);
    x = dense_square(b, &x, 64);
    b.dense(&x, 10, 0.5);
}

pub(super) fn cnn(b: &mut Builder) {
    let x = b.input();
    let mut x = conv_square(b, &x, 6, 3, 2, 1);
    x = b.average_pool(&x, 2, 2);
    x = conv_square(b, &x, 12, 3, 2, 1);
    x = b.flatten(&x);
    b.dense(&x, 10, 0.5);
}

/// The smallest network of this kind.
pub(super) fn tiny(b: &mut Builder) {
    let x = b.input();
    let mut x = conv_square(b, &x, 4, 3, 1, 0);
    x = b.flatten(&x);
    b.dense(&x, 10, 0.5);
}
