//! Shape classes of linear layers, for tests of every back end that multiplies under encryption.

use proptest::prelude::*;
use tacit_arith::prg::Prg;
use tacit_arith::ring::ConvSpec;

use super::{Consumer, weight_norm_log2};

/// A convolution without padding, stride 1.
pub fn conv(in_ch: usize, out_ch: usize, side: (usize, usize), kernel: usize) -> ConvSpec {
    ConvSpec { in_h: side.0, in_w: side.1, kernel: (kernel, kernel), ..ConvSpec::linear(in_ch, out_ch) }
}

/// Weights of at most `size` in absolute value.
pub fn weights(spec: &ConvSpec, size: i32, prg: &mut Prg) -> Vec<i32> {
    (0..spec.weight_len()).map(|_| (prg.next_u64() % (2 * size as u64 + 1)) as i32 - size).collect()
}

/// The layers of `convs` (shape, width of the ring) with weights `values`.
pub fn consumers(convs: &[(ConvSpec, u32)], values: &[Vec<i32>]) -> Vec<Consumer> {
    let consumers = convs.iter().zip(values).map(|((conv, ring_bits), w)| Consumer {
        conv: *conv,
        ring_bits: *ring_bits,
        norm_log2: weight_norm_log2(conv.out_ch, w),
    });
    consumers.collect()
}

/// A layer of every class: padding on any side, strides, dilation, groups, many channels, tiles,
/// fully connected.
pub fn classes() -> Vec<ConvSpec> {
    vec![
        conv(3, 5, (7, 9), 3),
        padded(conv(3, 4, (9, 7), 3), [1, 1, 1, 1]),
        padded(conv(2, 3, (8, 11), 3), [0, 2, 1, 0]),
        ConvSpec { stride: (2, 2), ..padded(conv(3, 8, (15, 13), 3), [1, 1, 1, 1]) },
        ConvSpec { stride: (2, 2), ..conv(4, 6, (9, 9), 1) },
        ConvSpec { stride: (3, 2), ..padded(conv(2, 3, (17, 12), 5), [2, 1, 0, 2]) },
        ConvSpec { stride: (2, 2), ..padded(conv(3, 2, (70, 70), 7), [3, 3, 3, 3]) },
        ConvSpec { dilation: (2, 3), ..padded(conv(2, 2, (14, 15), 3), [2, 3, 2, 3]) },
        ConvSpec { groups: 3, ..conv(6, 9, (6, 6), 3) },
        ConvSpec { groups: 10, ..padded(conv(10, 10, (12, 12), 3), [1, 1, 1, 1]) },
        ConvSpec { groups: 4, stride: (2, 2), ..padded(conv(4, 8, (11, 11), 3), [1, 1, 1, 1]) },
        conv(70, 33, (5, 5), 1),
        conv(2, 2, (66, 67), 3),
        padded(conv(1, 2, (100, 90), 3), [1, 1, 1, 1]),
        ConvSpec::linear(1000, 10),
        ConvSpec::linear(300, 200),
        ConvSpec::linear(1, 1),
    ]
}

fn padded(conv: ConvSpec, pads: [usize; 4]) -> ConvSpec {
    ConvSpec { pads, ..conv }
}

/// Small layers of any shape.
pub fn any() -> impl Strategy<Value = ConvSpec> {
    let channels = (1usize..5, 1usize..6, 1usize..4);
    let side = (1usize..40, 1usize..40);
    let kernel = (1usize..5, 1usize..5);
    let stride = (1usize..4, 1usize..4);
    let dilation = (1usize..3, 1usize..3);
    let pads = [0usize..3, 0usize..3, 0usize..3, 0usize..3];
    (channels, side, kernel, stride, dilation, pads)
        .prop_map(|((group_in, group_out, groups), (in_h, in_w), kernel, stride, dilation, pads)| ConvSpec {
            in_ch: group_in * groups,
            out_ch: group_out * groups,
            in_h,
            in_w,
            kernel,
            stride,
            dilation,
            pads,
            groups,
        })
        .prop_filter("the kernel fits the input", |spec| spec.check().is_ok())
}
