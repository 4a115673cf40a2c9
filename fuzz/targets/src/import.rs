//! Files that a model's owner or a client gets from elsewhere: ONNX networks and numpy arrays.

use tacit_client::jpeg;
use tacit_graph::{ImportOptions, Interval, file, import_network, npy, npz, onnx};

/// Networks that a mutation made larger than this are read, but not calibrated: that takes honest time.
const MAX_MACS: u64 = 1 << 16;
const MAX_ELEMENTS: usize = 1 << 14;

/// An ONNX file, read and imported.
pub(crate) fn onnx(data: &[u8]) {
    let Ok(network) = onnx::parse(data) else {
        return;
    };
    let elements = network.graph.nodes.iter().map(|n| n.elements()).fold(0, usize::saturating_add);
    if network.graph.macs() > MAX_MACS || elements > MAX_ELEMENTS {
        return;
    }
    let options =
        ImportOptions { max_samples: 1, range: Some(Interval { low: -1.0, high: 1.0 }), ..ImportOptions::default() };
    if let Ok(imported) = import_network(network, &options) {
        let bytes = file::write(&imported.model).expect("a small model fits its file");
        file::read(&bytes).expect("what the importer makes passes the checks");
    }
}

pub(crate) fn onnx_seeds() -> Vec<Vec<u8>> {
    let small: [&[u8]; 3] = [
        include_bytes!("../seeds/conv.onnx"),
        include_bytes!("../seeds/wiring.onnx"),
        include_bytes!("../seeds/dense.onnx"),
    ];
    small.map(<[u8]>::to_vec).to_vec()
}

/// A numpy file.
pub(crate) fn npy(data: &[u8]) {
    if let Ok(array) = npy::read(data) {
        assert_eq!(array.shape.iter().product::<usize>(), array.data.len());
    }
}

pub(crate) fn npy_seeds() -> Vec<Vec<u8>> {
    let image: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    vec![npy::write(&[1, 8, 8], &image), npy::write(&[2, 32], &image), npy::write(&[], &[1.0])]
}

/// An archive of numpy files.
pub(crate) fn npz(data: &[u8]) {
    if let Ok(array) = npz::read(data, None) {
        assert_eq!(array.shape.iter().product::<usize>(), array.data.len());
    }
}

pub(crate) fn npz_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../seeds/stored.npz").to_vec(), include_bytes!("../seeds/compressed.npz").to_vec()]
}

/// The entropy-coded data of a photo.
pub(crate) fn jpeg(data: &[u8]) {
    // A larger picture takes honest time, of the decoder too, which has seen a file first.
    const MAX_SIDE: u16 = 1 << 10;
    let is_large = |w: &[u8]| w[0] == 0xff && matches!(w[1], 0xc0..=0xc2) && (w[5] | w[7]) > (MAX_SIDE >> 8) as u8;
    if !data.windows(9).any(is_large) {
        let _ = jpeg::check(data);
    }
}

pub(crate) fn jpeg_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../seeds/progressive.jpg").to_vec(), include_bytes!("../seeds/restarts.jpg").to_vec()]
}
