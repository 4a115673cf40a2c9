//! Conversion of files to model inputs: images are resized, cropped and normalised as the model's
//! public part states.
use crate::{ClientError, jpeg, png};
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use tacit_foreign::text::within;
use tacit_foreign::{file, plain};
use tacit_graph::npy::Npy;
use tacit_graph::{Interface, Units, npy, npz};

pub use crate::jpeg::MAX_IMAGE_SIDE;
pub use crate::png::MAX_IMAGE_PIXELS;
/// Most memory that decoding an image may take, in bytes.
pub const MAX_IMAGE_BYTES: u64 = 512 << 20;
const MAX_IMAGE_FILE: u64 = 256 << 20;
const MAX_INPUTS: usize = 1 << 20;

/// Largest array file accepted, in bytes.
pub const MAX_ARRAY_BYTES: u64 = 4 << 30;

/// How an image of another size is fitted to the model's size, by scaling and cutting out the
/// centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The short side is scaled to 8/7 of the model's (usual for ImageNet models).
    Crop,
    /// The short side is scaled to the model's.
    Fill,
    /// Both sides are scaled to the model's.
    Stretch,
}

/// Reads the inputs in a file: one for an image, `N` for an array `[N, C, H, W]` (or one without
/// the leading axis). Arrays are `.npy` files, and `.npz` files with one array; `FILE.npz:NAME`
/// names one of several.
///
/// Returns the model's normalised input ([`Units::Normalised`]). Images are turned by their EXIF
/// orientation. Images and arrays of bytes are pixels; arrays of numbers are in `units`.
///
/// # Errors
/// The file cannot be read, decoded or brought to the model's shape, or it does not hold all of its
/// pixels.
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
    array_if(path, |_| Ok(()))
}

/// As [`array`]; calls `accepted` with the shape before elements are unpacked or converted.
fn array_if(path: &Path, accepted: impl Fn(&[usize]) -> Result<(), String>) -> Result<Npy, ClientError> {
    let (file, name) = member(path);
    let bytes = file::read(&file, MAX_ARRAY_BYTES).map_err(ClientError::file("reading", &file))?;
    if npz::is_npz(&bytes) || has_extension(&file, "npz") {
        return npz::read_if(&bytes, name.as_deref(), accepted).map_err(|e| wrong(path, e.to_string()));
    }
    let layout = npy::Layout::read(&bytes).map_err(|e| wrong(path, e.to_string()))?;
    accepted(&layout.shape).map_err(|what| wrong(path, what))?;
    npy::read(&bytes).map_err(|e| wrong(path, e.to_string()))
}

fn wrong(path: &Path, what: String) -> ClientError {
    ClientError::Input { path: path.to_owned(), what }
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(wanted))
}

/// Whether a file holds arrays, by its name or else by its first bytes.
fn is_array(path: &Path) -> Result<bool, ClientError> {
    let (file, _) = member(path);
    if has_extension(&file, "npy") || has_extension(&file, "npz") {
        return Ok(true);
    }
    let mut start = Vec::with_capacity(6);
    let opened = file::open(&file).and_then(|f| f.take(6).read_to_end(&mut start));
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
    let (wanted, len) = (&interface.input_shape, interface.input_len());
    let array = array_if(path, |shape| {
        let fits = shape == wanted || shape.get(1..) == Some(wanted) || shape == [len];
        if !fits || len == 0 {
            let (shape, text) = (within(&format!("{shape:?}"), 100), "does not fit the model's input");
            return Err(format!("shape {shape} {text} {wanted:?} (one more leading axis is allowed)"));
        }
        match shape[0] {
            count if shape.len() > wanted.len() && count > MAX_INPUTS => {
                Err(format!("{count} inputs, the limit for one file is {MAX_INPUTS}"))
            }
            _ => Ok(()),
        }
    })?;
    if let Some(i) = array.data.iter().position(|v| !v.is_finite()) {
        return Err(wrong(path, format!("element {i} is {}", array.data[i])));
    }
    let units = if array.is_bytes { Units::Pixels } else { units };
    Ok(array.data.chunks(len).map(|values| interface.normalise(values, units)).collect())
}

fn read_image(path: &Path, interface: &Interface, fit: Fit) -> Result<Vec<f32>, ClientError> {
    let &[channels @ (1 | 3), height, width] = interface.input_shape.as_slice() else {
        let shape = &interface.input_shape;
        return Err(wrong(path, format!("the model takes {shape:?}, which is no image: give an .npy file")));
    };
    let bytes = file::read(path, MAX_IMAGE_FILE).map_err(ClientError::file("reading", path))?;
    let image = decode(&bytes).map_err(|what| wrong(path, what))?;
    let pixels = bring_to_size(&image, height as u32, width as u32, fit);
    let raw = if channels == 1 { pixels.to_luma8().into_raw() } else { pixels.to_rgb8().into_raw() };
    // From interleaved [H, W, C] to planes [C, H, W].
    let planes = (0..channels).flat_map(|c| raw.iter().skip(c).step_by(channels));
    let values: Vec<f32> = planes.map(|&p| f32::from(p)).collect();
    Ok(interface.normalise(&values, Units::Pixels))
}

/// Decodes the picture in an image file, which must hold all of its pixels, and turns it upright.
fn decode(bytes: &[u8]) -> Result<DynamicImage, String> {
    let kept = png::pixels_alone(bytes)?;
    let mut reader = ImageReader::new(Cursor::new(&*kept)).with_guessed_format().map_err(|e| e.to_string())?;
    let format = reader.format();
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_IMAGE_SIDE);
    limits.max_image_height = Some(MAX_IMAGE_SIDE);
    limits.max_alloc = Some(MAX_IMAGE_BYTES);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(failed)?;
    let (width, height) = decoder.dimensions();
    png::check_pixels(width, height)?;
    limits.reserve(decoder.total_bytes()).map_err(failed)?;
    let orientation = decoder.orientation().map_err(failed)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    if format == Some(ImageFormat::Jpeg) {
        jpeg::check(bytes).map_err(|what| format!("the file is damaged or cut short: {what}"))?;
    }
    image.apply_orientation(orientation);
    Ok(image)
}

fn failed(e: ImageError) -> String {
    match e {
        ImageError::Decoding(_) | ImageError::IoError(_) => {
            format!("the file is damaged or cut short: {}", plain(e.to_string().trim_end()))
        }
        other => format!("{} (PNG and JPEG are read)", plain(&other.to_string())),
    }
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
    // Bounds the scaled side of long thin images: the excess would be cut away anyway.
    let [w, h] =
        [(from_w, width), (from_h, height)].map(|(from, to)| ((from * scale).round() as u32).clamp(to, MAX_IMAGE_SIDE));
    image.resize_exact(w, h, FilterType::Triangle).crop_imm((w - width) / 2, (h - height) / 2, width, height)
}
