//! Writes a network of the zoo: `cargo run -p tacit-graph --example zoo -- resnet50 resnet50.onnx [seed]`.
//! The output replaces an existing network, but no other file.
use std::fs;
use tacit_graph::onnx;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, path, rest @ ..] = args.as_slice() else {
        return Err("usage: zoo NAME FILE [SEED]".into());
    };
    if fs::exists(path)? && onnx::parse(&fs::read(path)?).is_err() {
        return Err(format!("{path} is there, and no network in ONNX: move it away, or name another file").into());
    }
    let seed = rest.first().map_or(Ok(1), |s| s.parse())?;
    fs::write(path, tacit_graph::zoo::build(name, seed)?)?;
    Ok(())
}
