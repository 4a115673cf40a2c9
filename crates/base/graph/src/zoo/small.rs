//! Small networks for MNIST and CIFAR-10, and tiny ones for tests.
//!
//! `m1`, `m2` and `hinet` have the kinds and numbers of layers that [SS26] states, and its
//! parameter memory at four bytes a number (1.6, 4, 2.4 MB). We do not know its widths and kernels;
//! ours are our own choice. The public code of [Shark25] has other networks in their place:
//! `minionn-mnist`, `minionn-cifar`, `shark-hinet`.

use super::builder::Builder;

/// M1 of [SS26]: 2 convolutions, 1 fully connected layer, 2 ReLU, 2 max pools. Kernels as in
/// MiniONN's.
pub(super) fn m1(b: &mut Builder) {
    b.conv_relu(64, 5, 1, 0);
    b.max_pool(2, 2, 0);
    b.conv_relu(224, 5, 1, 0);
    b.max_pool(2, 2, 0);
    b.flatten();
    b.dense(10, 1.0);
}

/// M2 of [SS26]: 4 convolutions, 1 fully connected layer, 4 ReLU, 2 max pools. Wide layers see few
/// positions.
pub(super) fn m2(b: &mut Builder) {
    b.conv_relu(48, 3, 1, 1);
    b.max_pool(2, 2, 0);
    b.conv_relu(96, 3, 1, 1);
    b.max_pool(2, 2, 0);
    b.conv_relu(192, 3, 1, 0);
    b.conv_relu(416, 3, 1, 0);
    b.flatten();
    b.dense(10, 1.0);
}

/// HiNet of [SS26]: 2 convolutions, 1 fully connected layer, 2 ReLU, 1 max pool. Kernels, first
/// width and pool are those of the public code.
pub(super) fn hinet(b: &mut Builder) {
    b.conv_relu(64, 5, 1, 1);
    b.max_pool(3, 2, 0);
    b.conv_relu(192, 5, 1, 1);
    b.flatten();
    b.dense(10, 1.0);
}

/// HiNet in the public code of [Shark25]: 3 convolutions, each with a max pool.
pub(super) fn shark_hinet(b: &mut Builder) {
    for _ in 0..3 {
        b.conv_relu(64, 5, 1, 1);
        b.max_pool(3, 2, 0);
    }
    b.flatten();
    b.dense(10, 1.0);
}

/// MiniONN's MNIST network of fully connected layers (Liu et al. 2017, figure 10; also SecureML's).
pub(super) fn minionn_mlp(b: &mut Builder) {
    b.flatten();
    b.dense_relu(128);
    b.dense_relu(128);
    b.dense(10, 1.0);
}

/// MiniONN's convolutional MNIST network (Liu et al. 2017, figure 12); `simc1` in the public code
/// of [Shark25], which also puts a ReLU behind the last layer.
pub(super) fn minionn_mnist(b: &mut Builder) {
    for _ in 0..2 {
        b.conv_relu(16, 5, 1, 0);
        b.max_pool(2, 2, 0);
    }
    b.flatten();
    b.dense_relu(100);
    b.dense(10, 1.0);
}

/// MiniONN's CIFAR-10 network (Liu et al. 2017, figure 13); `simc2` in the public code of
/// [Shark25].
pub(super) fn minionn_cifar(b: &mut Builder) {
    b.conv_relu(64, 3, 1, 1);
    b.conv_relu(64, 3, 1, 1);
    b.average_pool(2, 2);
    b.conv_relu(64, 3, 1, 1);
    b.conv_relu(64, 3, 1, 1);
    b.average_pool(2, 2);
    b.conv_relu(64, 3, 1, 1);
    b.conv_relu(64, 1, 1, 0);
    b.conv_relu(16, 1, 1, 0);
    b.flatten();
    b.dense(10, 1.0);
}

/// Two fully connected layers on 8x8 images: the smallest network worth testing.
pub(super) fn tiny_mlp(b: &mut Builder) {
    b.flatten();
    b.dense_relu(16);
    b.dense(10, 1.0);
}

/// Every kind of layer on 8x8 images: convolution, batch normalisation, max and average pool,
/// residual sum, concatenation.
pub(super) fn tiny_cnn(b: &mut Builder) {
    let x = b.conv_bn_relu(4, 3, 1, 1);
    b.conv(4, 3, 1, 1, false);
    let y = b.batch_norm(0.5);
    b.continue_from(&x);
    b.add(&y);
    b.relu();
    let x = b.max_pool(2, 2, 0);
    let wide = b.conv_relu(4, 3, 1, 1);
    b.continue_from(&x);
    let narrow = b.conv_relu(4, 1, 1, 0);
    b.concat(&[wide, narrow]);
    b.average_pool(2, 2);
    b.flatten();
    b.dense(10, 1.0);
}
