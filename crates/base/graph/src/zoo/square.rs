//! Networks whose only activation is the square, for back ends that compute on encrypted numbers.

use super::builder::Builder;

fn conv_square(b: &mut Builder, out: usize, k: usize, stride: usize, pad: usize) {
    b.conv(out, k, stride, pad, true);
    b.square();
}

fn dense_square(b: &mut Builder, out: usize) {
    b.dense(out, 0.5);
    b.square();
}

/// The network of CryptoNets (Gilad-Bachrach et al. 2016, figure 2) as used there for inference,
/// with its linear layers joined.
pub(super) fn cryptonets(b: &mut Builder) {
    conv_square(b, 5, 5, 2, 1);
    b.flatten();
    dense_square(b, 100);
    b.dense(10, 0.5);
}

pub(super) fn mlp(b: &mut Builder) {
    b.flatten();
    dense_square(b, 64);
    b.dense(10, 0.5);
}

pub(super) fn cnn(b: &mut Builder) {
    conv_square(b, 6, 3, 2, 1);
    b.average_pool(2, 2);
    conv_square(b, 12, 3, 2, 1);
    b.flatten();
    b.dense(10, 0.5);
}

/// The smallest network of this kind.
pub(super) fn tiny(b: &mut Builder) {
    conv_square(b, 4, 3, 1, 0);
    b.flatten();
    b.dense(10, 0.5);
}
