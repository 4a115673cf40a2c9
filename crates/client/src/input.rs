//! Turning files into model inputs: images are resized, cropped and normalised as the model's public part
//! states.
use crate::{ClientError, jpeg};
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use tacit_graph::npy::Npy;
use tacit_graph::{Interface, Units, npy, npz};

pub use crate::jpeg::MAX_IMAGE_SIDE;
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

/// Reads the inputs in a file: one for an image, `N` for an array `[N, C, H, W]` (or one without the leading
/// axis). Arrays are `.npy` files, and `.npz` files with one array; `FILE.npz:NAME` names one of several.
///
/// Returns what the model computes on ([`Units::Normalised`]). Images are turned as their EXIF orientation
/// says. Images and arrays of bytes are pixels; arrays of numbers are in `units`.
///
/// # Errors
/// The file cannot be read, decoded or brought to the model's shape, or it does not hold all of its pixels.
pub fn read(path: &Path, interface: &Interface, fit: Fit, units: Units) -> Result<Vec<Vec<f32>>, ClientError> {
    if is_array(path)? {
        return read_array(path, interface, units);
    }
    Ok(vec![read_image(path, interface, fit)?])
}

/// Reads an array file: `.npy`, `.npz` with one array, or `FILE.npz:NAME`.
///
/// # Errors
/// The file cannot be read, is too large, or holds no such array.
pub fn array(path: &Path) -> Result<Npy, ClientError> {
    let (file, name) = member(path);
    let fail = |what: String| ClientError::Input { path: path.to_owned(), what };
    let size = fs::metadata(&file).map_err(ClientError::file("reading", &file))?.len();
    if size > MAX_ARRAY_BYTES {
        return Err(fail(format!("{size} bytes, the limit is {MAX_ARRAY_BYTES}")));
    }
    let bytes = fs::read(&file).map_err(ClientError::file("reading", &file))?;
    let array = if npz::is_npz(&bytes) || has_extension(&file, "npz") {
        npz::read(&bytes, name.as_deref())
    } else {
        npy::read(&bytes)
    };
    array.map_err(|e| fail(e.to_string()))
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(wanted))
}

/// Whether a file holds arrays, by its name or else by how it begins.
fn is_array(path: &Path) -> Result<bool, ClientError> {
    let (file, _) = member(path);
    if has_extension(&file, "npy") || has_extension(&file, "npz") {
        return Ok(true);
    }
    let mut start = Vec::with_capacity(6);
    let opened =
        fs::File::open(&file).and_then(|f| std::io::Read::read_to_end(&mut std::io::Read::take(f, 6), &mut start));
    opened.map_err(ClientError::file("reading", &file))?;
    Ok(npz::is_npz(&start) || start.starts_with(b"\x93NUMPY"))
}

/// Splits `FILE.npz:NAME`, unless there is a file of that whole name.
fn member(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_str().filter(|_| !path.exists());
    match text.and_then(|t| t.rsplit_once(':')).filter(|(file, _)| has_extension(Path::new(file), "npz")) {
        Some((file, name)) => (file.into(), Some(name.to_owned())),
        None => (path.to_owned(), None),
    }
}

fn read_array(path: &Path, interface: &Interface, units: Units) -> Result<Vec<Vec<f32>>, ClientError> {
    let fail = |what: String| ClientError::Input { path: path.to_owned(), what };
    let array = array(path)?;
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
    let size = fs::metadata(path).map_err(ClientError::file("reading", path))?.len();
    if size > MAX_IMAGE_BYTES {
        return Err(fail(format!("{size} bytes, the limit for an image is {MAX_IMAGE_BYTES}")));
    }
    let image = decode(&fs::read(path).map_err(ClientError::file("reading", path))?).map_err(fail)?;
    let pixels = bring_to_size(&image, height as u32, width as u32, fit);
    let raw = if channels == 1 { pixels.to_luma8().into_raw() } else { pixels.to_rgb8().into_raw() };
    // From interleaved [H, W, C] to planes [C, H, W].
    let plane = |c: usize| raw.iter().skip(c).step_by(channels).map(|&p| f32::from(p));
    let values: Vec<f32> = (0..channels).flat_map(plane).collect();
    Ok(interface.normalise(&values, Units::Pixels))
}

/// The picture in an image file, upright; an error where the file does not hold all of its pixels.
fn decode(bytes: &[u8]) -> Result<DynamicImage, String> {
    let failed = |e: ImageError| match e {
        ImageError::Decoding(_) | ImageError::IoError(_) => {
            format!("the file is damaged or cut short: {}", e.to_string().trim_end().replace('\n', " "))
        }
        other => format!("{other} (PNG and JPEG are read)"),
    };
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
    let format = reader.format();
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_IMAGE_SIDE);
    limits.max_image_height = Some(MAX_IMAGE_SIDE);
    limits.max_alloc = Some(MAX_IMAGE_BYTES);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(failed)?;
    limits.reserve(decoder.total_bytes()).map_err(failed)?;
    let orientation = decoder.orientation().map_err(failed)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    if format == Some(ImageFormat::Jpeg) {
        jpeg::check(bytes).map_err(|what| format!("the file is damaged or cut short: {what}"))?;
    }
    image.apply_orientation(orientation);
    Ok(image)
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
