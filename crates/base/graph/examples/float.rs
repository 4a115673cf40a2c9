//! Runs the float interpreter: `float net.onnx in.npy out.npy` (samples `[N, ..input]`), for comparison with
//! other runtimes. The output replaces an existing array, but no other file.
use std::fs;
use tacit_graph::float::run::run;
use tacit_graph::{npy, onnx};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, input, output] = args.as_slice() else {
        return Err("usage: float net.onnx in.npy out.npy".into());
    };
    if fs::exists(output)? && npy::read(&fs::read(output)?).is_err() {
        return Err(format!("{output} is there, and no array: move it away, or name another file").into());
    }
    let net = onnx::parse(&fs::read(model)?)?;
    let samples = npy::read(&fs::read(input)?)?;
    let mut out = Vec::new();
    for x in samples.data.chunks(net.graph.nodes[0].elements()) {
        out.push(run(&net.graph, x)?);
    }
    let width = out.first().map_or(0, Vec::len);
    fs::write(output, npy::write(&[out.len(), width], &out.concat()))?;
    Ok(())
}
