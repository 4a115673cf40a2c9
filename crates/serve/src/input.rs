//! Turning files into model inputs: images are resized, cropped and normalised as the model's public section states.
use crate::ServeError;
use crate::npy;
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader, Limits};
use std::path::Path;
use tacit_graph::ModelGraph;

/// Largest image side accepted, in pixels.
pub const MAX_IMAGE_SIDE: u32 = 16_384;
/// Most memory that decoding an image may take, in bytes.
pub const MAX_IMAGE_BYTES: u64 = 512 << 20;

/// How an image of another size is brought to the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The short side is scaled to 8/7 of the model's, then the centre is cut out (usual for ImageNet models).
    Crop,
    /// The short side is scaled to the model's, then the centre is cut out.
    Fill,
    /// Both sides are scaled to the model's.
    Stretch,
}

/// Reads the inputs in a file: one for an image, `N` for an array `[N, C, H, W]` (or one without the leading axis).
///
/// Images are normalised here; arrays hold values that are normalised already, and are taken as they are.
///
/// # Errors
/// The file cannot be read, decoded or brought to the model's shape.
pub fn read(path: &Path, graph: &ModelGraph, fit: Fit) -> Result<Vec<Vec<f32>>, ServeError> {
    if path.extension().is_some_and(|e| e == "npy") {
        return read_array(path, graph);
    }
    Ok(vec![read_image(path, graph, fit)?])
}

fn read_array(path: &Path, graph: &ModelGraph) -> Result<Vec<Vec<f32>>, ServeError> {
    let array = npy::read(path)?;
    let input = graph.input();
    let fits =
        array.shape == input.shape || array.shape.get(1..) == Some(&input.shape) || array.shape == [input.elements()];
    if !fits || input.elements() == 0 {
        let what = format!(
            "shape {:?} does not fit the model's input {:?} (one more leading axis is allowed)",
            array.shape, input.shape
        );
        return Err(ServeError::Input { path: path.to_owned(), what });
    }
    if let Some(i) = array.values.iter().position(|v| !v.is_finite()) {
        return Err(ServeError::Input { path: path.to_owned(), what: format!("element {i} is {}", array.values[i]) });
    }
    Ok(array.values.chunks(input.elements()).map(<[f32]>::to_vec).collect())
}

fn read_image(path: &Path, graph: &ModelGraph, fit: Fit) -> Result<Vec<f32>, ServeError> {
    let fail = |what: String| ServeError::Input { path: path.to_owned(), what };
    let &[channels @ (1 | 3), height, width] = graph.input().shape.as_slice() else {
        let shape = &graph.input().shape;
        return Err(fail(format!("the model takes {shape:?}, which is no image: give an .npy file")));
    };
    let reader = ImageReader::open(path).and_then(|r| r.with_guessed_format());
    let mut reader = reader.map_err(ServeError::file("reading", path))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_IMAGE_SIDE);
    limits.max_image_height = Some(MAX_IMAGE_SIDE);
    limits.max_alloc = Some(MAX_IMAGE_BYTES);
    reader.limits(limits);
    let image = reader.decode().map_err(|e| fail(format!("{e} (PNG and JPEG are read)")))?;
    let pixels = bring_to_size(&image, height as u32, width as u32, fit);
    let raw = if channels == 1 { pixels.to_luma8().into_raw() } else { pixels.to_rgb8().into_raw() };
    Ok(normalise(&raw, graph, channels))
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

/// Interleaved 8-bit pixels `[H, W, C]` as normalised planes `[C, H, W]`.
fn normalise(raw: &[u8], graph: &ModelGraph, channels: usize) -> Vec<f32> {
    let spec = &graph.spec().input;
    let mut out = Vec::with_capacity(raw.len());
    for c in 0..channels {
        let mean = spec.mean.get(c).copied().unwrap_or(0.0);
        let std = spec.std.get(c).copied().unwrap_or(1.0);
        out.extend(raw.iter().skip(c).step_by(channels).map(|&p| (f32::from(p) * spec.pixel_scale - mean) / std));
    }
    out
}
