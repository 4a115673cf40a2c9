//! Turning files into model inputs: images are resized, cropped and normalised as the model's public part
//! states.
use crate::ClientError;
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader, Limits};
use std::fs;
use std::path::Path;
use tacit_graph::{Interface, Units, npy};

/// Largest image side accepted, in pixels.
pub const MAX_IMAGE_SIDE: u32 = 16_384;
/// Most memory that decoding an image may take, in bytes.
pub const MAX_IMAGE_BYTES: u64 = 512 << 20;

/// Largest array file accepted, in bytes.
pub const MAX_ARRAY_BYTES: u64 = 4 << 30;

/// How an image of another size is brought to the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The short side is scaled to 8/7 of the model's, then the centre is cut out (usual for ImageNet
    /// models).
    Crop,
    /// The short side is scaled to the model's, then the centre is cut out.
    Fill,
    /// Both sides are scaled to the model's.
    Stretch,
}

/// Reads the inputs in a file: one for an image, `N` for an `.npy` array `[N, C, H, W]` (or one without the
/// leading axis).
///
/// Returns what the model computes on ([`Units::Normalised`]). Images and arrays of bytes are pixels; arrays of
/// numbers are in `units`.
///
/// # Errors
/// The file cannot be read, decoded or brought to the model's shape.
pub fn read(path: &Path, interface: &Interface, fit: Fit, units: Units) -> Result<Vec<Vec<f32>>, ClientError> {
    if path.extension().is_some_and(|e| e == "npy") {
        return read_array(path, interface, units);
    }
    Ok(vec![read_image(path, interface, fit)?])
}

fn read_array(path: &Path, interface: &Interface, units: Units) -> Result<Vec<Vec<f32>>, ClientError> {
    let fail = |what: String| ClientError::Input { path: path.to_owned(), what };
    let size = fs::metadata(path).map_err(ClientError::file("reading", path))?.len();
    if size > MAX_ARRAY_BYTES {
        return Err(fail(format!("{size} bytes, the limit is {MAX_ARRAY_BYTES}")));
    }
    let array =
        npy::read(&fs::read(path).map_err(ClientError::file("reading", path))?).map_err(|e| fail(e.to_string()))?;
    let (wanted, shape, len) = (&interface.input_shape, array.shape.as_slice(), interface.input_len());
    let fits = shape == wanted || shape.get(1..) == Some(wanted) || shape == [len];
    if !fits || len == 0 {
        let text = "does not fit the model's input";
        return Err(fail(format!("shape {shape:?} {text} {wanted:?} (one more leading axis is allowed)")));
    }
    if let Some(i) = array.data.iter().position(|v| !v.is_finite()) {
        return Err(fail(format!("element {i} is {}", array.data[i])));
    }
    let units = if array.is_bytes { Units::Pixels } else { units };
    Ok(array.data.chunks(len).map(|values| interface.normalise(values, units)).collect())
}

fn read_image(path: &Path, interface: &Interface, fit: Fit) -> Result<Vec<f32>, ClientError> {
    let fail = |what: String| ClientError::Input { path: path.to_owned(), what };
    let &[channels @ (1 | 3), height, width] = interface.input_shape.as_slice() else {
        let shape = &interface.input_shape;
        return Err(fail(format!("the model takes {shape:?}, which is no image: give an .npy file")));
    };
    let reader = ImageReader::open(path).and_then(|r| r.with_guessed_format());
    let mut reader = reader.map_err(ClientError::file("reading", path))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_IMAGE_SIDE);
    limits.max_image_height = Some(MAX_IMAGE_SIDE);
    limits.max_alloc = Some(MAX_IMAGE_BYTES);
    reader.limits(limits);
    let image = reader.decode().map_err(|e| fail(format!("{e} (PNG and JPEG are read)")))?;
    let pixels = bring_to_size(&image, height as u32, width as u32, fit);
    let raw = if channels == 1 { pixels.to_luma8().into_raw() } else { pixels.to_rgb8().into_raw() };
    // From interleaved [H, W, C] to planes [C, H, W].
    let plane = |c: usize| raw.iter().skip(c).step_by(channels).map(|&p| f32::from(p));
    let values: Vec<f32> = (0..channels).flat_map(plane).collect();
    Ok(interface.normalise(&values, Units::Pixels))
}

fn bring_to_size(image: &DynamicImage, height: u32, width: u32, fit: Fit) -> DynamicImage {
    if (image.height(), image.width()) == (height, width) {
        return image.clone();
    }
    let margin = match fit {
        Fit::Stretch => return image.resize_exact(width, height, FilterType::Triangle),
        Fit::Fill => 1.0,
        Fit::Crop => 8.0 / 7.0,
    };
    let (from_w, from_h) = (f64::from(image.width()), f64::from(image.height()));
    let scale = margin * (f64::from(width) / from_w).max(f64::from(height) / from_h);
    // Long thin images: scaling is bounded, what is cut away anyway need not exist.
    let side = |from: f64, to: u32| ((from * scale).round() as u32).clamp(to, MAX_IMAGE_SIDE);
    let (w, h) = (side(from_w, width), side(from_h, height));
    image.resize_exact(w, h, FilterType::Triangle).crop_imm((w - width) / 2, (h - height) / 2, width, height)
}
