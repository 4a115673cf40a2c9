//! Images and arrays as model inputs.
mod common;
use common::interface;
use image::{GrayImage, Luma, Rgb, RgbImage};
use std::fs;
use tacit_client::input::{Fit, read};
use tacit_graph::{ChannelAffine, Units, npy};

#[test]
fn grey_images_are_brought_to_size_and_scaled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.png");
    GrayImage::from_fn(2, 2, |x, y| Luma([(100 * x + 50 * y) as u8])).save(&path).unwrap();
    let exact = read(&path, &interface(), Fit::Crop, Units::Network).unwrap();
    let want = [0.0, 100.0, 50.0, 150.0].map(|p: f32| p * (1.0 / 255.0));
    assert_eq!(exact, [want]);
    // Left half black, right half white: the centre crop of a wide image straddles the edge.
    let wide = dir.path().join("wide.jpg");
    RgbImage::from_fn(400, 40, |x, _| if x < 200 { Rgb([0; 3]) } else { Rgb([255; 3]) }).save(&wide).unwrap();
    for fit in [Fit::Crop, Fit::Fill, Fit::Stretch] {
        let got = &read(&wide, &interface(), fit, Units::Network).unwrap()[0];
        // The crop scales to 23 pixels first, and its right column lies on the edge itself: half grey.
        let bright = if fit == Fit::Crop { 0.45 } else { 0.7 };
        assert!(got[0] < 0.3 && got[2] < 0.3 && got[1] > bright && got[3] > bright, "{fit:?}: {got:?}");
    }
}

#[test]
fn arrays_are_the_network_s_inputs_unless_they_are_said_to_be_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    fs::write(&path, npy::write(&[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 255.0, 6.0, 7.0, 8.0])).unwrap();
    let inputs = read(&path, &interface(), Fit::Crop, Units::Network).unwrap();
    assert_eq!(inputs, [[1.0, 2.0, 3.0, 4.0], [255.0, 6.0, 7.0, 8.0]]);
    assert_eq!(read(&path, &interface(), Fit::Crop, Units::Pixels).unwrap()[1][0], 1.0);
    // What the importer moved out of the network comes behind both.
    let mut moved = interface();
    moved.input.moved = Some(ChannelAffine { scale: vec![2.0], shift: vec![-1.0] });
    let first = |units| read(&path, &moved, Fit::Crop, units).unwrap()[1][0];
    assert_eq!([Units::Network, Units::Pixels, Units::Normalised].map(first), [509.0, 1.0, 255.0]);
}

#[test]
fn what_does_not_fit_is_named_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = read(&path, &interface(), Fit::Crop, Units::Network).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        error
    };
    assert!(error("a.png", b"no image").contains("PNG and JPEG"));
    assert!(error("b.npy", b"no array").contains(".npy"));
    assert!(error("c.npy", &npy::write(&[3, 3], &[0.0; 9])).contains("[3, 3]"));
    assert!(error("d.npy", &npy::write(&[4], &[0.0, f32::NAN, 0.0, 0.0])).contains("element 1"));
    // A PNG header that promises 60000 x 60000 pixels.
    let mut huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    huge.extend_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60, 8, 0, 0, 0, 0]);
    error("e.png", &huge);
    assert!(read(&dir.path().join("none.png"), &interface(), Fit::Crop, Units::Network).is_err());
}
