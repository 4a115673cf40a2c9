//! The architectures, each after its paper or the usual public implementation.

use super::builder::{Builder, Tensor};

/// SqueezeNet 1.1 (Iandola et al. 2016, the authors' later variant).
pub(super) fn squeezenet(b: &mut Builder) {
    b.conv_relu(64, 3, 2, 0);
    b.max_pool(3, 2, 0);
    for (i, (squeeze, expand)) in
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)].into_iter().enumerate()
    {
        let s = b.conv_relu(squeeze, 1, 1, 0);
        let e1 = b.conv_relu(expand, 1, 1, 0);
        b.continue_from(&s);
        let e3 = b.conv_relu(expand, 3, 1, 1);
        b.concat(&[e1, e3]);
        if i == 1 || i == 3 {
            b.max_pool(3, 2, 0);
        }
    }
    b.conv_relu(1000, 1, 1, 0);
    b.global_average();
    b.flatten();
}

/// ResNet-18 (basic blocks) and ResNet-50 (bottlenecks, stride in the 3x3 convolution) for ImageNet
/// (He et al. 2015).
pub(super) fn resnet_imagenet(b: &mut Builder, blocks: [usize; 4], bottleneck: bool) {
    b.conv_bn_relu(64, 7, 2, 3);
    b.max_pool(3, 2, 1);
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            if bottleneck { bottleneck_block(b, width, stride) } else { basic_block(b, width, stride) }
        }
    }
    b.global_average();
    b.flatten();
    b.dense(1000, 1.0);
}

fn bottleneck_block(b: &mut Builder, width: usize, stride: usize) {
    let x = b.current();
    b.conv_bn_relu(width, 1, 1, 0);
    b.conv_bn_relu(width, 3, stride, 1);
    b.conv(4 * width, 1, 1, 0, false);
    b.batch_norm(0.5);
    finish_block(b, &x, 4 * width, stride);
}

fn basic_block(b: &mut Builder, width: usize, stride: usize) {
    let x = b.current();
    b.conv_bn_relu(width, 3, stride, 1);
    b.conv(width, 3, 1, 1, false);
    b.batch_norm(0.5);
    finish_block(b, &x, width, stride);
}

/// Adds a shortcut from `x` (a 1x1 convolution if the shape changes), a sum and a ReLU.
fn finish_block(b: &mut Builder, x: &Tensor, width: usize, stride: usize) {
    let y = b.current();
    b.continue_from(x);
    if x.shape[0] != width || stride != 1 {
        b.conv(width, 1, stride, 0, false);
        b.batch_norm(0.7);
    }
    let shortcut = b.current();
    b.continue_from(&y);
    b.add(&shortcut);
    b.relu();
}

/// ResNet-(6n+2) for CIFAR (He et al. 2015, with projection shortcuts).
pub(super) fn resnet_cifar(b: &mut Builder, n: usize) {
    b.conv_bn_relu(16, 3, 1, 1);
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..n {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            basic_block(b, width, stride);
        }
    }
    b.global_average();
    b.flatten();
    b.dense(10, 1.0);
}

/// VGG-16 (Simonyan and Zisserman 2014, configuration D).
pub(super) fn vgg16(b: &mut Builder) {
    for (count, width) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..count {
            b.conv_relu(width, 3, 1, 1);
        }
        b.max_pool(2, 2, 0);
    }
    b.flatten();
    b.dense_relu(4096);
    b.dense_relu(4096);
    b.dense(1000, 1.0);
}

/// AlexNet (Krizhevsky 2014, the single-tower variant that torchvision has).
pub(super) fn alexnet(b: &mut Builder) {
    b.conv_relu(64, 11, 4, 2);
    b.max_pool(3, 2, 0);
    b.conv_relu(192, 5, 1, 2);
    b.max_pool(3, 2, 0);
    for width in [384, 256, 256] {
        b.conv_relu(width, 3, 1, 1);
    }
    b.max_pool(3, 2, 0);
    b.flatten();
    b.dense_relu(4096);
    b.dense_relu(4096);
    b.dense(1000, 1.0);
}

/// DenseNet-121 (Huang et al. 2016).
pub(super) fn densenet121(b: &mut Builder) {
    b.conv_bn_relu(64, 7, 2, 3);
    b.max_pool(3, 2, 1);
    for (i, count) in [6, 12, 24, 16].into_iter().enumerate() {
        for _ in 0..count {
            let x = b.current();
            norm_relu(b);
            b.conv_bn_relu(128, 1, 1, 0);
            let y = b.conv(32, 3, 1, 1, false);
            b.concat(&[x, y]);
        }
        if i < 3 {
            norm_relu(b);
            let half = b.current().shape[0] / 2;
            b.conv(half, 1, 1, 0, false);
            b.average_pool(2, 2);
        }
    }
    norm_relu(b);
    b.global_average();
    b.flatten();
    b.dense(1000, 1.0);
}

fn norm_relu(b: &mut Builder) {
    b.batch_norm(1.0);
    b.relu();
}

/// LeNet-5 with ReLU and max pooling (LeCun et al. 1998, modernised as in the CrypTFlow2 and
/// SecureNN evaluations).
pub(super) fn lenet(b: &mut Builder) {
    b.conv_relu(20, 5, 1, 0);
    b.max_pool(2, 2, 0);
    b.conv_relu(50, 5, 1, 0);
    b.max_pool(2, 2, 0);
    b.flatten();
    b.dense_relu(500);
    b.dense(10, 1.0);
}
