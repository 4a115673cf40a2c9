//! Common architectures for comparing private inference, as ONNX files (operator set 13) with
//! seeded random weights.
//!
//! Weights are He-initialised and normalisation statistics plausible, so that activations keep
//! their size through the network. The classes have no meaning.

mod builder;
mod nets;
mod small;
mod square;

#[cfg(test)]
mod tests;

use prost::Message;

use crate::GraphError;
use builder::Builder;
pub use builder::{Layer, Outline};

/// Names of all networks, with their input shapes.
pub const NAMES: &[(&str, [usize; 3])] = &[
    ("squeezenet1.1", [3, 224, 224]),
    ("resnet18", [3, 224, 224]),
    ("resnet50", [3, 224, 224]),
    ("resnet20", [3, 32, 32]),
    ("resnet32", [3, 32, 32]),
    ("vgg16", [3, 224, 224]),
    ("alexnet", [3, 224, 224]),
    ("densenet121", [3, 224, 224]),
    ("lenet", [1, 28, 28]),
    ("m1", [1, 28, 28]),
    ("m2", [3, 32, 32]),
    ("hinet", [3, 32, 32]),
    ("hinet-mnist", [1, 28, 28]),
    ("shark-hinet", [3, 32, 32]),
    ("minionn-mlp", [1, 28, 28]),
    ("minionn-mnist", [1, 28, 28]),
    ("minionn-cifar", [3, 32, 32]),
    ("cryptonets", [1, 28, 28]),
    ("square-mlp", [1, 28, 28]),
    ("square-cnn", [3, 32, 32]),
    ("tiny-square", [1, 8, 8]),
    ("tiny-mlp", [1, 8, 8]),
    ("tiny-cnn", [1, 8, 8]),
];

/// Builds the ONNX file of a network by name, with weights from `seed`.
///
/// # Errors
/// If no network has that name; the error lists the names.
pub fn build(name: &str, seed: u64) -> Result<Vec<u8>, GraphError> {
    let mut b = Builder::new(name, shape_of(name)?, Some(seed));
    layers(name, &mut b);
    Ok(b.finish().encode_to_vec())
}

/// Returns the layers of a network by name, without making its weights.
///
/// # Errors
/// As [`build`].
pub fn outline(name: &str) -> Result<Outline, GraphError> {
    let mut b = Builder::new(name, shape_of(name)?, None);
    layers(name, &mut b);
    Ok(b.outline())
}

fn shape_of(name: &str) -> Result<&'static [usize], GraphError> {
    let entry = NAMES.iter().find(|(n, _)| *n == name);
    entry.map(|(_, shape)| shape.as_slice()).ok_or_else(|| {
        let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
        GraphError::OnnxFile { what: format!("no network `{name}`; there are {}", names.join(", ")) }
    })
}

fn layers(name: &str, b: &mut Builder) {
    match name {
        "squeezenet1.1" => nets::squeezenet(b),
        "resnet18" => nets::resnet_imagenet(b, [2, 2, 2, 2], false),
        "resnet50" => nets::resnet_imagenet(b, [3, 4, 6, 3], true),
        "resnet20" => nets::resnet_cifar(b, 3),
        "resnet32" => nets::resnet_cifar(b, 5),
        "vgg16" => nets::vgg16(b),
        "alexnet" => nets::alexnet(b),
        "densenet121" => nets::densenet121(b),
        "lenet" => nets::lenet(b),
        "m1" => small::m1(b),
        "m2" => small::m2(b),
        "hinet" | "hinet-mnist" => small::hinet(b),
        "shark-hinet" => small::shark_hinet(b),
        "minionn-mlp" => small::minionn_mlp(b),
        "minionn-mnist" => small::minionn_mnist(b),
        "minionn-cifar" => small::minionn_cifar(b),
        "cryptonets" => square::cryptonets(b),
        "square-mlp" => square::mlp(b),
        "square-cnn" => square::cnn(b),
        "tiny-square" => square::tiny(b),
        "tiny-mlp" => small::tiny_mlp(b),
        _ => small::tiny_cnn(b),
    }
}
