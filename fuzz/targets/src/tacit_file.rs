//! The `.tacit` model file, as a whole and by section.

use tacit_backends::ring::{RingOptions, lower};
use tacit_graph::file::{self, HEADER_BYTES};
use tacit_graph::{ImportOptions, Model, import};

/// Models that a mutation made larger than this are accepted, but not computed.
const MAX_MACS: u64 = 1 << 16;
const MAX_ELEMENTS: usize = 1 << 14;

/// Bytes of a model file, as read by its owner.
pub(crate) fn model_file(data: &[u8]) {
    let header = file::digest_of_header(&mut &data[..]);
    if let Ok(model) = file::read(data) {
        let again = file::write(&model).expect("what was read can be written");
        assert_eq!(file::read(&again).expect("what was written can be read"), model);
        assert_eq!(file::digest_of_header(&mut &again[..]).expect("a whole header"), model.digest());
        assert!(header.is_ok());
        compute(&model);
    }
}

/// `structure length u16, weights length u16, structure, weights, calibration`: the same, with digests that
/// are always right, so that mutations reach the contents.
pub(crate) fn sections(data: &[u8]) {
    let Some((lengths, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let [a, b, c, d] = *lengths;
    let (structure, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([a, b]))));
    let (weights, calibration) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([c, d]))));
    model_file(&assemble([structure, weights, calibration]));
}

pub(crate) fn model_file_seeds() -> Vec<Vec<u8>> {
    let onnx = include_bytes!("../seeds/conv.onnx");
    let options = ImportOptions { model_id: Some([9; 16]), ..ImportOptions::default() };
    let imported = import(onnx, &options).expect("the seed is a network");
    vec![file::write(&imported.model).expect("a small model fits its file")]
}

pub(crate) fn section_seeds() -> Vec<Vec<u8>> {
    let whole = model_file_seeds().swap_remove(0);
    let length = |section: usize| &whole[12 + 40 * section..14 + 40 * section];
    vec![[length(0), length(1), &whole[HEADER_BYTES..]].concat()]
}

/// Runs and lowers small models: whatever passed the checks can be computed, and no numbers that a model may
/// have end in a panic.
fn compute(model: &Model) {
    let elements = model.graph.nodes.iter().map(|n| n.elements()).fold(0, usize::saturating_add);
    if model.graph.macs() <= MAX_MACS && elements <= MAX_ELEMENTS {
        let zeros = vec![0.0; model.interface.input_len()];
        let output = model.run(&zeros).expect("a checked model can be computed");
        assert_eq!(output.len(), model.interface.output_shape.iter().product::<usize>());
        // Refusing is fine.
        let options = RingOptions { frac_bits: Some(8), ..RingOptions::default() };
        if let Ok(lowered) = lower(model, &options, &|_| Ok(0.0)) {
            assert_eq!(lowered.graph.spec().interface, model.interface);
        }
    }
}

fn assemble(sections: [&[u8]; 3]) -> Vec<u8> {
    let mut out = file::MAGIC.to_vec();
    out.extend_from_slice(&file::VERSION.to_le_bytes());
    for section in sections {
        out.extend_from_slice(&(section.len() as u64).to_le_bytes());
        out.extend_from_slice(blake3::hash(section).as_bytes());
    }
    out.extend(sections.concat());
    out
}
