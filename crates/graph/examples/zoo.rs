//! Writes a network of the zoo: `cargo run -p tacit-graph --example zoo -- resnet50 resnet50.onnx [seed]`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, path, rest @ ..] = args.as_slice() else {
        return Err("usage: zoo NAME FILE [SEED]".into());
    };
    let seed = rest.first().map_or(Ok(1), |s| s.parse())?;
    std::fs::write(path, tacit_graph::zoo::build(name, seed)?)?;
    Ok(())
}
