//! Rust from the protocol's file, without `protoc`.
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = protox::compile(["proto/open_inference.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_transport(false)
        .codec_path("crate::codec::Counted")
        .bytes(".inference.ModelInferRequest.raw_input_contents")
        .compile_fds(files)?;
    println!("cargo:rerun-if-changed=proto/open_inference.proto");
    Ok(())
}
