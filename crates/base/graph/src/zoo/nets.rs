//! The architectures, each after its paper or the usual public implementation.

use super::builder::{Builder, Tensor};

/// SqueezeNet 1.1 (Iandola et al. 2016, the authors' later variant).
pub(super) fn squeezenet(b: &mut Builder) {
    let x = b.input();
    let mut x = b.conv_relu(&x, 64, 3, 2, 0);
    x = b.max_pool(&x, 3, 2, 0);
    for (i, (squeeze, expand)) in
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)].into_iter().enumerate()
    {
        let s = b.conv_relu(&x, squeeze, 1, 1, 0);
        let e1 = b.conv_relu(&s, expand, 1, 1, 0);
        let e3 = b.conv_relu(&s, expand, 3, 1, 1);
        x = b.concat(&[e1, e3]);
        if i == 1 || i == 3 {
            x = b.max_pool(&x, 3, 2, 0);
        }
    }
    x = b.conv_relu(&x, 1000, 1, 1, 0);
    x = b.global_average(&x);
    b.flatten(&x);
}

/// ResNet-18 (basic blocks) and ResNet-50 (bottlenecks, stride in the 3x3 convolution) for ImageNet
/// (He et al. 2015).
pub(super) fn resnet_imagenet(b: &mut Builder, blocks: [usize; 4], bottleneck: bool) {
    let x = b.input();
    let mut x = b.conv_bn_relu(&x, 64, 7, 2, 3);
    x = b.max_pool(&x, 3, 2, 1);
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = if bottleneck { bottleneck_block(b, &x, width, stride) } else { basic_block(b, &x, width, stride) };
        }
    }
    x = b.global_average(&x);
    x = b.flatten(&x);
    b.dense(&x, 1000, 1.0);
}

fn bottleneck_block(b: &mut Builder, x: &Tensor, width: usize, stride: usize) -> Tensor {
    let y = b.conv_bn_relu(x, width, 1, 1, 0);
    let y = b.conv_bn_relu(&y, width, 3, stride, 1);
    let y = b.conv(&y, 4 * width, 1, 1, 0, false);
    let y = b.batch_norm(&y, 0.5);
    finish_block(b, x, &y, 4 * width, stride)
}

fn basic_block(b: &mut Builder, x: &Tensor, width: usize, stride: usize) -> Tensor {
    let y = b.conv_bn_relu(x, width, 3, stride, 1);
    let y = b.conv(&y, width, 3, 1, 1, false);
    let y = b.batch_norm(&y, 0.5);
    finish_block(b, x, &y, width, stride)
}

/// Adds a shortcut (a 1x1 convolution if the shape changes), a sum and a ReLU.
fn finish_block(b: &mut Builder, x: &Tensor, y: &Tensor, width: usize, stride: usize) -> Tensor {
    let shortcut = if x.shape[0] == width && stride == 1 {
        x.clone()
    } else {
        let s = b.conv(x, width, 1, stride, 0, false);
        b.batch_norm(&s, 0.7)
    };
    let sum = b.add(y, &shortcut);
    b.relu(&sum)
}

/// ResNet-(6n+2) for CIFAR (He et al. 2015, with projection shortcuts).
pub(super) fn resnet_cifar(b: &mut Builder, n: usize) {
    let x = b.input();
    let mut x = b.conv_bn_relu(&x, 16, 3, 1, 1);
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..n {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = basic_block(b, &x, width, stride);
        }
    }
    x = b.global_average(&x);
    x = b.flatten(&x);
    b.dense(&x, 10, 1.0);
}

/// VGG-16 (Simonyan and Zisserman 2014, configuration D).
pub(super) fn vgg16(b: &mut Builder) {
    let mut x = b.input();
    for (count, width) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..count {
            x = b.conv_relu(&x, width, 3, 1, 1);
        }
        x = b.max_pool(&x, 2, 2, 0);
    }
    x = b.flatten(&x);
    x = b.dense_relu(&x, 4096);
    x = b.dense_relu(&x, 4096);
    b.dense(&x, 1000, 1.0);
}

/// AlexNet (Krizhevsky 2014, the single-tower variant that torchvision has).
pub(super) fn alexnet(b: &mut Builder) {
    let x = b.input();
    let mut x = b.conv_relu(&x, 64, 11, 4, 2);
    x = b.max_pool(&x, 3, 2, 0);
    x = b.conv_relu(&x, 192, 5, 1, 2);
    x = b.max_pool(&x, 3, 2, 0);
    for width in [384, 256, 256] {
        x = b.conv_relu(&x, width, 3, 1, 1);
    }
    x = b.max_pool(&x, 3, 2, 0);
    x = b.flatten(&x);
    x = b.dense_relu(&x, 4096);
    x = b.dense_relu(&x, 4096);
    b.dense(&x, 1000, 1.0);
}

/// DenseNet-121 (Huang et al. 2016).
pub(super) fn densenet121(b: &mut Builder) {
    let x = b.input();
    let mut x = b.conv_bn_relu(&x, 64, 7, 2, 3);
    x = b.max_pool(&x, 3, 2, 1);
    for (i, count) in [6, 12, 24, 16].into_iter().enumerate() {
        for _ in 0..count {
            let y = norm_relu(b, &x);
            let y = b.conv_bn_relu(&y, 128, 1, 1, 0);
            let y = b.conv(&y, 32, 3, 1, 1, false);
            x = b.concat(&[x, y]);
        }
        if i < 3 {
            let y = norm_relu(b, &x);
            let half = y.shape[0] / 2;
            let y = b.conv(&y, half, 1, 1, 0, false);
            x = b.average_pool(&y, 2, 2);
        }
    }
    x = norm_relu(b, &x);
    x = b.global_average(&x);
    x = b.flatten(&x);
    b.dense(&x, 1000, 1.0);
}

fn norm_relu(b: &mut Builder, x: &Tensor) -> Tensor {
    let n = b.batch_norm(x, 1.0);
    b.relu(&n)
}

/// LeNet-5 with ReLU and max pooling (LeCun et al. 1998, modernised as in the CrypTFlow2 and
/// SecureNN evaluations).
pub(super) fn lenet(b: &mut Builder) {
    let x = b.input();
    let mut x = b.conv_relu(&x, 20, 5, 1, 0);
    x = b.max_pool(&x, 2, 2, 0);
    x = b.conv_relu(&x, 50, 5, 1, 0);
    x = b.max_pool(&x, 2, 2, 0);
    x = b.flatten(&x);
    x = b.dense_relu(&x, 500);
    b.dense(&x, 10, 1.0);
}
