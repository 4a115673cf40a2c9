//! Reduces a PNG file to its pixels before decoding. Other chunks (colour profiles, texts) may
//! unpack to a thousand times their size (ISO/IEC 15948: chunks in 5, their kinds in 11).
use crate::jpeg::MAX_IMAGE_SIDE;
use std::borrow::Cow;

/// Most pixels of an image; cameras have at most some 50 million.
pub const MAX_IMAGE_PIXELS: u64 = 64 << 20;
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Length, kind and checksum of a chunk.
const FRAME_BYTES: usize = 12;
/// Ancillary chunks that are retained: transparency and orientation.
const KEPT_CHUNKS: [&[u8; 4]; 2] = [b"tRNS", b"eXIf"];
const MAX_EXIF: usize = 64 << 10;

/// Returns a PNG file without the chunks that its pixels do not need; any other file unchanged.
/// Checks the sides that the header states.
///
/// # Errors
/// The image has too many pixels, or a chunk is longer than the file.
pub fn pixels_alone(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let Some(mut rest) = bytes.strip_prefix(SIGNATURE) else { return Ok(Cow::Borrowed(bytes)) };
    let mut kept = SIGNATURE.to_vec();
    while !rest.is_empty() {
        let length = rest.first_chunk::<4>().ok_or_else(cut)?;
        let end = (u32::from_be_bytes(*length) as usize).checked_add(FRAME_BYTES);
        let (chunk, others) = end.and_then(|end| rest.split_at_checked(end)).ok_or_else(cut)?;
        let (kind, content) = (&chunk[4..8], &chunk[8..chunk.len() - 4]);
        if kind == b"IHDR"
            && let [a, b, c, d, e, f, g, h, ..] = *content
        {
            check_pixels(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))?;
        }
        let is_kept = kind[0].is_ascii_uppercase() || KEPT_CHUNKS.iter().any(|known| kind == *known);
        if is_kept && (kind != b"eXIf" || content.len() <= MAX_EXIF) {
            kept.extend_from_slice(chunk);
        }
        if kind == b"IEND" {
            break;
        }
        rest = others;
    }
    Ok(Cow::Owned(kept))
}

fn cut() -> String {
    "the file is damaged or cut short: a chunk is longer than what is left".to_owned()
}

/// Checks the sides that an image's header states.
///
/// # Errors
/// The image has too many pixels.
pub fn check_pixels(width: u32, height: u32) -> Result<(), String> {
    let pixels = u64::from(width) * u64::from(height);
    if width.max(height) > MAX_IMAGE_SIDE || pixels > MAX_IMAGE_PIXELS {
        let mega = MAX_IMAGE_PIXELS >> 20;
        return Err(format!("{width} x {height} pixels: the limits are {mega} Mi in all, and {MAX_IMAGE_SIDE} a side"));
    }
    Ok(())
}
