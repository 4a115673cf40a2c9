//! Writes the valid inputs of every target to `FOLDER/TARGET/seed-N`, where cargo-fuzz looks for its corpus.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).expect("usage: seeds FOLDER"));
    for target in tacit_fuzz_targets::TARGETS {
        let corpus = folder.join(target.name);
        std::fs::create_dir_all(&corpus)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
