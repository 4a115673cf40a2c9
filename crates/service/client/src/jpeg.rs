//! Checks that a JPEG file holds all of its pixels.
//!
//! Decoders fill missing data with grey, which a network would classify. This module parses the
//! entropy-coded data (ITU-T T.81: markers in annex B, sequential blocks in F.2, progressive ones
//! in G.2) and counts blocks and bits: each scan must hold a code for every block, and only padding
//! after the last.

/// Largest image side accepted, in pixels.
pub const MAX_IMAGE_SIDE: u32 = 16_384;
/// Most scans of a file; the decoder has the same limit.
const MAX_SCANS: usize = 100;
/// Most bytes of padding that encoders add to a scan.
const MAX_PADDING: usize = 3;

/// Checks a file that a decoder has accepted.
///
/// # Errors
/// Describes what is missing.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    Walk { bytes, at: 2, tables: Default::default(), restart: 0, frame: None }.run()
}

/// A Huffman table: number of codes of each length, and the symbols in the order of their codes.
#[derive(Clone, Default)]
struct Huffman {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

struct Component {
    id: u8,
    /// Blocks of one unit of an interleaved scan, `[across, down]`.
    unit: [usize; 2],
    /// Blocks of a scan of this component alone.
    blocks: [usize; 2],
    /// Blocks of one row, the last unit of an interleaved scan included.
    stride: usize,
    /// Bits of the coefficients of each block that are known to be nonzero; progressive files only.
    nonzero: Vec<u64>,
    seen: bool,
}

struct Frame {
    progressive: bool,
    components: Vec<Component>,
    /// Units of an interleaved scan.
    units: [usize; 2],
}

/// The coefficients that a scan's header selects.
struct Band {
    first: usize,
    last: usize,
    refines: bool,
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Tables by class (DC, AC) and index.
    tables: [[Huffman; 4]; 2],
    restart: usize,
    frame: Option<Frame>,
}

/// Bits of entropy-coded data up to the next marker.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    byte: u8,
    left: u32,
    /// Number of following blocks that have no more coefficients in this scan.
    end_of_band: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Result<u32, String> {
        if self.left == 0 {
            let stuffed = match (self.bytes.get(self.at), self.bytes.get(self.at + 1)) {
                (Some(0xff), Some(0)) => 1,
                (Some(0xff), _) | (None, _) => return Err("the pixel data ends too early".into()),
                _ => 0,
            };
            self.byte = self.bytes[self.at];
            self.at += 1 + stuffed;
            self.left = 8;
        }
        self.left -= 1;
        Ok(u32::from(self.byte >> self.left) & 1)
    }

    /// Reads up to 15 bits.
    fn bits(&mut self, count: u32) -> Result<usize, String> {
        (0..count).try_fold(0, |value, _| Ok(value << 1 | self.bit()? as usize))
    }

    fn symbol(&mut self, table: &Huffman) -> Result<u8, String> {
        let (mut code, mut first, mut before) = (0usize, 0usize, 0usize);
        for &count in &table.counts {
            code = code << 1 | self.bit()? as usize;
            let count = usize::from(count);
            if code < first + count {
                // Only an invalid table has codes below the first code of their length.
                let index = code.checked_sub(first).and_then(|i| table.symbols.get(before + i));
                return index.copied().ok_or_else(|| "the pixel data holds an invalid code".into());
            }
            before += count;
            first = (first + count) << 1;
        }
        Err("the pixel data holds an invalid code".into())
    }

    fn sequential_block(&mut self, [dc, ac]: [&Huffman; 2]) -> Result<(), String> {
        let size = self.symbol(dc)?;
        self.bits(u32::from(size & 15))?;
        let mut k = 1;
        while k < 64 {
            let (run, size) = self.run_and_size(ac)?;
            match (run, size) {
                (15, 0) => k += 16,
                (_, 0) => break,
                _ => k += run + 1,
            }
            if k > 64 {
                return Err("the pixel data holds a block of more than 64 coefficients".into());
            }
            self.bits(size)?;
        }
        Ok(())
    }

    fn progressive_block(&mut self, [dc, ac]: [&Huffman; 2], band: &Band, nonzero: &mut u64) -> Result<(), String> {
        match (band.first, band.refines) {
            (0, false) => {
                let size = self.symbol(dc)?;
                self.bits(u32::from(size & 15)).map(drop)
            }
            (0, true) => self.bit().map(drop),
            (_, false) => self.first_coefficients(ac, band, nonzero),
            (_, true) => self.refined_coefficients(ac, band, nonzero),
        }
    }

    fn first_coefficients(&mut self, ac: &Huffman, band: &Band, nonzero: &mut u64) -> Result<(), String> {
        if self.end_of_band > 0 {
            self.end_of_band -= 1;
            return Ok(());
        }
        let mut k = band.first;
        while k <= band.last {
            match self.run_and_size(ac)? {
                (15, 0) => k += 16,
                (run, 0) => {
                    self.end_of_band = (1 << run) - 1 + self.bits(run as u32)?;
                    break;
                }
                (run, size) => {
                    k += run;
                    if k > band.last {
                        return Err("the pixel data holds a coefficient beyond its scan".into());
                    }
                    self.bits(size)?;
                    *nonzero |= 1 << k;
                    k += 1;
                }
            }
        }
        Ok(())
    }

    fn refined_coefficients(&mut self, ac: &Huffman, band: &Band, nonzero: &mut u64) -> Result<(), String> {
        let mut k = band.first;
        while self.end_of_band == 0 && k <= band.last {
            let (mut zeros, size) = self.run_and_size(ac)?;
            if size == 0 && zeros < 15 {
                self.end_of_band = (1 << zeros) + self.bits(zeros as u32)?;
                break;
            }
            if size > 0 {
                // The sign of a newly nonzero coefficient.
                self.bit()?;
            }
            while k <= band.last {
                if *nonzero >> k & 1 == 1 {
                    self.bit()?;
                } else if zeros == 0 {
                    break;
                } else {
                    zeros -= 1;
                }
                k += 1;
            }
            if size > 0 && k <= band.last {
                *nonzero |= 1 << k;
            }
            k += 1;
        }
        if self.end_of_band > 0 {
            // One more bit of each nonzero coefficient, up to the end of the band.
            let known = (k..=band.last).filter(|&k| *nonzero >> k & 1 == 1).count();
            (0..known).try_for_each(|_| self.bit().map(drop))?;
            self.end_of_band -= 1;
        }
        Ok(())
    }

    /// Number of zeros before a coefficient, and number of its bits.
    fn run_and_size(&mut self, table: &Huffman) -> Result<(usize, u32), String> {
        let symbol = self.symbol(table)?;
        Ok((usize::from(symbol >> 4), u32::from(symbol & 15)))
    }

    fn restart(&mut self, number: usize) -> Result<(), String> {
        self.align()?;
        while self.bytes.get(self.at..self.at + 2) == Some(&[0xff, 0xff]) {
            self.at += 1;
        }
        if self.bytes.get(self.at..self.at + 2) != Some(&[0xff, 0xd0 + number as u8]) {
            return Err("a part of the pixel data is missing".into());
        }
        self.at += 2;
        self.end_of_band = 0;
        Ok(())
    }

    fn align(&mut self) -> Result<(), String> {
        self.left = 0;
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let until = rest.windows(2).position(|two| two[0] == 0xff && !matches!(two[1], 0 | 0xff));
        let until = until.unwrap_or(rest.len());
        let padding = rest[..until].iter().filter(|&&b| b != 0xff).count();
        if padding > MAX_PADDING {
            return Err(format!("{padding} bytes of pixel data are left over, so some of it is damaged"));
        }
        self.at += until;
        Ok(())
    }
}

impl<'a> Walk<'a> {
    fn run(mut self) -> Result<(), String> {
        let mut scans = 0;
        while let Some(marker) = self.marker() {
            match marker {
                0xd9 => return self.complete(true),
                // Markers without content.
                0x01 | 0xd0..=0xd8 => continue,
                _ => {}
            }
            let content = self.segment()?;
            match marker {
                0xc4 => self.huffman_tables(content)?,
                0xc0..=0xc2 => self.frame = Some(Frame::read(content, marker == 0xc2)?),
                0xdd => self.restart = word(content, 0)?,
                0xda if scans == MAX_SCANS => return Err(format!("it has more than {MAX_SCANS} scans")),
                0xda => {
                    scans += 1;
                    self.scan(content)?;
                }
                _ => {}
            }
        }
        self.complete(false)
    }

    fn marker(&mut self) -> Option<u8> {
        loop {
            let two = [*self.bytes.get(self.at)?, *self.bytes.get(self.at + 1)?];
            if two[0] == 0xff && !matches!(two[1], 0 | 0xff) {
                self.at += 2;
                return Some(two[1]);
            }
            self.at += 1;
        }
    }

    fn segment(&mut self) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let length = word(rest, 0)?;
        let content = rest.get(2..length.max(2)).ok_or("it ends within its headers")?;
        self.at += 2 + content.len();
        Ok(content)
    }

    fn huffman_tables(&mut self, mut content: &[u8]) -> Result<(), String> {
        while let Some((&head, rest)) = content.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or("a Huffman table is cut off")?;
            let total = counts.iter().map(|&c| usize::from(c)).sum();
            let symbols = rest.get(..total).ok_or("a Huffman table is cut off")?;
            let [class, index] = [head >> 4, head & 15].map(usize::from);
            let table =
                self.tables.get_mut(class).and_then(|c| c.get_mut(index)).ok_or("a Huffman table has no place")?;
            *table = Huffman { counts: *counts, symbols: symbols.to_vec() };
            content = &rest[total..];
        }
        Ok(())
    }

    fn scan(&mut self, header: &[u8]) -> Result<(), String> {
        let frame = self.frame.as_mut().ok_or("it has pixel data in front of its size")?;
        let count = byte(header, 0)?;
        let mut chosen = Vec::with_capacity(count);
        for i in 0..count {
            let (id, tables) = (byte(header, 1 + 2 * i)?, byte(header, 2 + 2 * i)?);
            let index = frame.components.iter().position(|c| usize::from(c.id) == id);
            let index = index.ok_or_else(|| format!("a scan names a component {id} that there is not"))?;
            let [dc, ac] = [tables >> 4 & 3, tables & 3];
            chosen.push((index, dc, ac));
        }
        let (first, last) = (byte(header, 1 + 2 * count)?, byte(header, 2 + 2 * count)?);
        let band = Band { first, last: last.min(63), refines: byte(header, 3 + 2 * count)? >> 4 != 0 };
        if frame.progressive && first > 0 && count != 1 || count == 0 {
            return Err("a scan has the wrong number of components".into());
        }
        let mut bits = Bits { bytes: self.bytes, at: self.at, byte: 0, left: 0, end_of_band: 0 };
        let [across, down] = match chosen[..] {
            [(only, ..)] => frame.components[only].blocks,
            _ => frame.units,
        };
        for unit in 0..across * down {
            if self.restart > 0 && unit > 0 && unit % self.restart == 0 {
                bits.restart((unit / self.restart - 1) % 8)?;
            }
            for &(index, dc, ac) in &chosen {
                let component = &mut frame.components[index];
                let [wide, high] = if chosen.len() == 1 { [1, 1] } else { component.unit };
                for part in 0..wide * high {
                    let [x, y] = [unit % across * wide + part % wide, unit / across * high + part / wide];
                    let tables = [&self.tables[0][dc], &self.tables[1][ac]];
                    if frame.progressive {
                        let at = y * component.stride + x;
                        let nonzero = component.nonzero.get_mut(at).ok_or("a scan is larger than its frame")?;
                        bits.progressive_block(tables, &band, nonzero)?;
                    } else {
                        bits.sequential_block(tables)?;
                    }
                }
            }
        }
        if first == 0 && !band.refines {
            chosen.iter().for_each(|&(index, ..)| frame.components[index].seen = true);
        }
        bits.align()?;
        self.at = bits.at;
        Ok(())
    }

    /// Checks that the data is complete. Only the end marker shows that a progressive file has no
    /// more scans.
    fn complete(&self, ended: bool) -> Result<(), String> {
        let frame = self.frame.as_ref().ok_or("it states no size")?;
        if !frame.components.iter().all(|c| c.seen) || frame.progressive && !ended {
            return Err("the pixel data ends too early".into());
        }
        Ok(())
    }
}

impl Frame {
    fn read(content: &[u8], progressive: bool) -> Result<Self, String> {
        let [height, width] = [word(content, 1)?, word(content, 3)?];
        let listed = byte(content, 5)?;
        if width.max(height) > MAX_IMAGE_SIDE as usize || listed > 4 {
            return Err(format!("it states {width} x {height} pixels of {listed} components"));
        }
        let mut factors = Vec::with_capacity(listed);
        for i in 0..listed {
            let both = byte(content, 7 + 3 * i)?;
            let unit = [both >> 4, both & 15];
            if unit.iter().any(|f| !(1..=4).contains(f)) {
                return Err(format!("it has a sampling factor of {unit:?}"));
            }
            factors.push((content[6 + 3 * i], unit));
        }
        let largest = [0, 1].map(|axis: usize| factors.iter().map(|(_, unit)| unit[axis]).max());
        let [Some(most_wide), Some(most_high)] = largest else {
            return Err("it has no components".into());
        };
        let units = [width.div_ceil(8 * most_wide), height.div_ceil(8 * most_high)];
        let components = factors.into_iter().map(|(id, unit)| {
            let blocks = [(width * unit[0]).div_ceil(8 * most_wide), (height * unit[1]).div_ceil(8 * most_high)];
            let stride = units[0] * unit[0];
            let kept = if progressive { stride * units[1] * unit[1] } else { 0 };
            Component { id, unit, blocks, stride, nonzero: vec![0; kept], seen: false }
        });
        Ok(Self { progressive, components: components.collect(), units })
    }
}

fn byte(content: &[u8], at: usize) -> Result<usize, String> {
    content.get(at).map(|&b| usize::from(b)).ok_or_else(|| "a segment is too short".into())
}

/// Reads a big-endian number of two bytes.
fn word(content: &[u8], at: usize) -> Result<usize, String> {
    Ok(byte(content, at)? << 8 | byte(content, at + 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::codecs::jpeg::JpegEncoder;
    use image::{GrayImage, RgbImage};

    /// A picture with detail everywhere, so that every block has its own codes.
    fn encoded(quality: u8, grey: bool) -> Vec<u8> {
        let value = |x: u32, y: u32, c: u32| ((x * 7 + y * 13 + c * 50) ^ (x * y)) as u8;
        let mut bytes = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        let grey_pixel = |x, y| image::Luma([value(x, y, 0)]);
        let pixel = |x, y| image::Rgb([0, 1, 2].map(|c| value(x, y, c)));
        let encoded = match grey {
            true => encoder.encode_image(&GrayImage::from_fn(61, 43, grey_pixel)),
            false => encoder.encode_image(&RgbImage::from_fn(61, 43, pixel)),
        };
        encoded.unwrap();
        bytes
    }

    #[test]
    fn rejects_truncated_jpeg() {
        for (quality, grey) in [(30, false), (90, false), (75, true)] {
            let bytes = encoded(quality, grey);
            check(&bytes).unwrap();
            check(&[&bytes, [7; 100].as_slice()].concat()).expect("what follows the end is another file's");
            check(&bytes[..bytes.len() - 2]).expect("every pixel is there, only the mark at the end is not");
            for cut in (2..bytes.len() - 4).step_by(7) {
                check(&bytes[..cut]).unwrap_err();
                // Some tools append the end marker to a file that is cut short.
                check(&[&bytes[..cut], &[0xff, 0xd9]].concat()).unwrap_err();
            }
        }
    }

    #[test]
    fn rejects_missing_and_zeroed_data() {
        let bytes = encoded(90, false);
        let mut damaged = bytes.clone();
        let half = bytes.len() / 2;
        damaged.drain(half..half + 200);
        check(&damaged).unwrap_err();
        let mut zeroed = bytes;
        zeroed[half..half + 200].fill(0);
        check(&zeroed).unwrap_err();
    }

    #[test]
    fn random_bytes_never_panic() {
        let bytes = encoded(75, false);
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
            }
            let _ = check(&damaged);
        }
    }
}
