//! Images and arrays as model inputs.
use crate::common::interface;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, GrayImage, ImageEncoder, ImageError, Luma, Rgb, RgbImage};
use std::fs;
use std::path::Path;
use tacit_client::input::{Fit, read};
use tacit_client::{ClientError, png};
use tacit_graph::{ChannelAffine, Interface, Units, npy};

/// Reads a file for the toy model.
fn read_toy(path: &Path) -> Result<Vec<Vec<f32>>, ClientError> {
    read(path, &interface(), Fit::Crop, Units::Network)
}

/// Writes a file and reads it; the error.
fn error_of(path: &Path, bytes: &[u8]) -> String {
    fs::write(path, bytes).unwrap();
    read_toy(path).unwrap_err().to_string()
}

#[test]
fn resizes_and_scales_images() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.png");
    GrayImage::from_fn(2, 2, |x, y| Luma([(100 * x + 50 * y) as u8])).save(&path).unwrap();
    let want = [0.0, 100.0, 50.0, 150.0].map(|p: f32| p * (1.0 / 255.0));
    assert_eq!(read_toy(&path).unwrap(), [want]);
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
fn array_units_are_network_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    fs::write(&path, npy::write(&[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 255.0, 6.0, 7.0, 8.0])).unwrap();
    let read = |interface: &Interface, units| read(&path, interface, Fit::Crop, units).unwrap();
    assert_eq!(read(&interface(), Units::Network), [[1.0, 2.0, 3.0, 4.0], [255.0, 6.0, 7.0, 8.0]]);
    assert_eq!(read(&interface(), Units::Pixels)[1][0], 1.0);
    // The steps that the importer moved out of the network.
    let mut moved = interface();
    moved.input.moved = Some(ChannelAffine { scale: vec![2.0], shift: vec![-1.0] });
    let first = |units| read(&moved, units)[1][0];
    assert_eq!([Units::Network, Units::Pixels, Units::Normalised].map(first), [509.0, 1.0, 255.0]);
}

#[test]
fn recognizes_arrays_by_name_and_content() {
    let dir = tempfile::tempdir().unwrap();
    let array = npy::write(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    for name in ["x.npy", "x.NPY", "x.Npy", "x.dat", "x"] {
        fs::write(dir.path().join(name), &array).unwrap();
        assert_eq!(read_toy(&dir.path().join(name)).unwrap(), [[1.0, 2.0, 3.0, 4.0]], "{name}");
    }
}

/// A zip archive without compression, as `numpy.savez` writes it.
fn stored(arrays: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in arrays {
        let at = out.len() as u32;
        let mut crc = crc32fast::Hasher::new();
        crc.update(content);
        let (crc, len, name_len) = (crc.finalize(), content.len() as u32, name.len() as u16);
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 33, 0];
        common.extend([crc.to_le_bytes(), len.to_le_bytes(), len.to_le_bytes()].concat());
        common.extend([name_len.to_le_bytes(), [0, 0]].concat());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.bytes().chain(content.iter().copied()));
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.bytes());
    }
    let (start, count) = (out.len() as u32, arrays.len() as u16);
    let size = directory.len() as u32;
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
    out.extend([0, 0]);
    out
}

#[test]
fn archive_gives_only_or_named_array() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (npy::write(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), npy::write(&[1, 2, 2], &[5.0; 4]));
    fs::write(dir.path().join("one.NPZ"), stored(&[("arr_0.npy", &a)])).unwrap();
    fs::write(dir.path().join("two.npz"), stored(&[("x.npy", &a), ("y.npy", &b)])).unwrap();
    let inputs = |name: &str| read_toy(&dir.path().join(name));
    assert_eq!(inputs("one.NPZ").unwrap(), [[1.0, 2.0, 3.0, 4.0]]);
    assert_eq!(inputs("two.npz:y").unwrap(), [[5.0; 4]]);
    let which = inputs("two.npz").unwrap_err().to_string();
    assert!(which.contains("two.npz") && which.contains("x, y") && which.contains("FILE.npz:NAME"), "{which}");
    assert!(inputs("two.npz:z").unwrap_err().to_string().contains("there are: x, y"));
    assert!(inputs("none.npz:x").unwrap_err().to_string().contains("none.npz"));
}

/// An image in the format of `name` whose four corners differ, with an EXIF orientation.
fn corners(name: &str, orientation: Option<u8>) -> Vec<u8> {
    fn encode(mut encoder: impl ImageEncoder, orientation: Option<u8>) -> Result<(), ImageError> {
        if let Some(value) = orientation {
            let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, value, 0, 0, 0];
            let exif = [b"II*\0\x08\0\0\0\x01\0".as_slice(), &entry, &[0; 4]].concat();
            encoder.set_exif_metadata(exif).unwrap();
        }
        let pixels =
            GrayImage::from_fn(32, 32, |x, y| Luma([if x < 16 { 10 } else { 90 } + if y < 16 { 0 } else { 120 }]));
        encoder.write_image(&pixels, 32, 32, ExtendedColorType::L8)
    }
    let mut bytes = Vec::new();
    let encoded = match name.ends_with("png") {
        true => encode(PngEncoder::new(&mut bytes), orientation),
        false => encode(JpegEncoder::new_with_quality(&mut bytes, 95), orientation),
    };
    encoded.unwrap();
    bytes
}

#[test]
fn applies_exif_orientation() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["x.jpg", "x.png"] {
        let corners_of = |orientation| {
            let path = dir.path().join(name);
            fs::write(&path, corners(name, orientation)).unwrap();
            let values = read(&path, &interface(), Fit::Stretch, Units::Network).unwrap().remove(0);
            // The order of the corners by brightness.
            let mut order = [0, 1, 2, 3];
            order.sort_by(|&i: &usize, &j: &usize| values[i].total_cmp(&values[j]));
            order
        };
        // The stored corners are dark top left, then top right, bottom left, bottom right.
        for (orientation, order) in [
            (None, [0, 1, 2, 3]),
            (Some(1), [0, 1, 2, 3]),
            // Mirrored, upside down, a quarter clockwise, a quarter counter-clockwise.
            (Some(2), [1, 0, 3, 2]),
            (Some(3), [3, 2, 1, 0]),
            (Some(6), [1, 3, 0, 2]),
            (Some(8), [2, 0, 3, 1]),
        ] {
            assert_eq!(corners_of(orientation), order, "{name}: {orientation:?}");
        }
    }
}

#[test]
fn refuses_truncated_images() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["x.jpg", "x.png"] {
        let (whole, path) = (corners(name, None), dir.path().join(name));
        for percent in [25, 50, 75, 90, 97] {
            let cut = whole.len() * percent / 100;
            for end in [&[][..], &[0xff, 0xd9]] {
                let error = error_of(&path, &[&whole[..cut], end].concat());
                assert!(error.contains(name) && error.contains("damaged or cut short"), "{percent} %: {error}");
            }
        }
        fs::write(&path, &whole).unwrap();
        read_toy(&path).unwrap();
    }
}

#[test]
fn input_errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    // A PNG header that promises 60000 x 60000 pixels.
    let huge = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60, 8, 0, 0, 0, 0]].concat();
    for (name, bytes, wanted) in [
        ("a.png", b"no image".to_vec(), "PNG and JPEG"),
        ("b.npy", b"no array".to_vec(), ".npy"),
        ("c.npy", npy::write(&[3, 3], &[0.0; 9]), "[3, 3]"),
        ("d.npy", npy::write(&[4], &[0.0, f32::NAN, 0.0, 0.0]), "element 1"),
        ("e.png", huge, ""),
    ] {
        let error = error_of(&dir.path().join(name), &bytes);
        assert!(error.contains(name), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
    assert!(read_toy(&dir.path().join("none.png")).is_err());
}

/// A PNG file with a chunk behind its header.
fn with_chunk(png: &[u8], kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let behind_header = 8 + 25;
    let mut crc = crc32fast::Hasher::new();
    crc.update(kind);
    crc.update(content);
    let length = (content.len() as u32).to_be_bytes();
    let chunk = [&length, &kind[..], content, &crc.finalize().to_be_bytes()].concat();
    [&png[..behind_header], &chunk, &png[behind_header..]].concat()
}

#[test]
fn strips_png_to_pixels() {
    let plain = corners("x.png", None);
    for (kind, length) in [(b"iCCP", 1 << 20), (b"zTXt", 1 << 20), (b"iTXt", 10), (b"eXIf", (64 << 10) + 1)] {
        let bomb = with_chunk(&plain, kind, &vec![7; length]);
        assert_eq!(png::pixels_alone(&bomb).unwrap(), plain, "{kind:?}");
    }
    let transparent = with_chunk(&plain, b"tRNS", &[0, 1]);
    assert_eq!(png::pixels_alone(&transparent).unwrap(), transparent);
    assert_eq!(png::pixels_alone(b"no picture").unwrap(), &b"no picture"[..]);
    assert!(png::pixels_alone(&plain[..plain.len() - 20]).unwrap_err().contains("damaged or cut short"));
}

#[test]
fn refuses_too_many_pixels_by_header() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.png");
    let mut bytes = corners("x.png", None);
    let [side, large] = [16_000u32, 20_000].map(u32::to_be_bytes);
    for (sides, words) in [([side, side], "16000 x 16000 pixels"), ([large, [0, 0, 0, 1]], "20000 x 1 pixels")] {
        bytes[16..24].copy_from_slice(&sides.concat());
        let error = error_of(&path, &bytes);
        assert!(error.contains(words) && error.contains("64 Mi in all"), "{error}");
    }
}

#[test]
fn checks_array_shape_before_elements() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    // A header alone: its shape is wrong, not the number of elements.
    for (shape, words) in [(vec![3, 5], "does not fit the model's input"), (vec![2_000_000, 1, 2, 2], "2000000 inputs")]
    {
        let error = error_of(&path, &npy::write(&shape, &[]));
        assert!(error.contains(words), "{error}");
    }
}
