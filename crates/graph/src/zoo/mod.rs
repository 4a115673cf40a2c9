//! Architectures that people compare private inference on, as ONNX files (operator set 13) with seeded random
//! weights.
//!
//! Weights are He-initialised and normalisation statistics plausible, so that activations keep their size
//! through the network; the classes mean nothing.

mod builder;
mod nets;

#[cfg(test)]
mod tests;

use prost::Message;

use crate::GraphError;
use builder::Builder;

/// Names of all networks, with their input shapes.
pub const NAMES: &[(&str, [usize; 3])] = &[
    ("squeezenet1.1", [3, 224, 224]),
    ("resnet18", [3, 224, 224]),
    ("resnet50", [3, 224, 224]),
    ("resnet32", [3, 32, 32]),
    ("vgg16", [3, 224, 224]),
    ("alexnet", [3, 224, 224]),
    ("densenet121", [3, 224, 224]),
    ("lenet", [1, 28, 28]),
    ("m1", [1, 28, 28]),
    ("m2", [3, 32, 32]),
    ("tiny-mlp", [1, 8, 8]),
    ("tiny-cnn", [1, 8, 8]),
];

/// The ONNX file of a network by name, with weights from `seed`.
///
/// # Errors
/// No network has that name; the error lists those there are.
pub fn build(name: &str, seed: u64) -> Result<Vec<u8>, GraphError> {
    let Some((_, shape)) = NAMES.iter().find(|(n, _)| *n == name) else {
        let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
        return Err(GraphError::OnnxFile { what: format!("no network `{name}`; there are {}", names.join(", ")) });
    };
    let mut b = Builder::new(name, shape, seed);
    match name {
        "squeezenet1.1" => nets::squeezenet(&mut b),
        "resnet18" => nets::resnet_imagenet(&mut b, [2, 2, 2, 2], false),
        "resnet50" => nets::resnet_imagenet(&mut b, [3, 4, 6, 3], true),
        "resnet32" => nets::resnet_cifar(&mut b, 5),
        "vgg16" => nets::vgg16(&mut b),
        "alexnet" => nets::alexnet(&mut b),
        "densenet121" => nets::densenet121(&mut b),
        "lenet" => nets::lenet(&mut b),
        "m1" => nets::minionn_mnist(&mut b),
        "m2" => nets::minionn_cifar(&mut b),
        "tiny-mlp" => nets::tiny_mlp(&mut b),
        _ => nets::tiny_cnn(&mut b),
    }
    Ok(b.finish().encode_to_vec())
}
