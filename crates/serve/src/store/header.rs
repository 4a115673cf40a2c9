//! Header of a material file, little endian:
//! `magic 8 | version u32 | id 16 | client 32 | model 32 | plan 32 | created u64 | length u64 | BLAKE3 of the payload 32 | BLAKE3 of all before 32`.
use super::{Binding, Entry, MAX_MATERIAL_BYTES, MaterialId, content};
use crate::ServeError;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

const MAGIC: [u8; 8] = *b"TACITMAT";
const VERSION: u32 = 1;
const CHECKED: usize = 8 + 4 + 16 + 3 * 32 + 8 + 8 + 32;
/// Length of the header.
pub const HEADER_BYTES: usize = CHECKED + 32;

pub struct Header {
    id: MaterialId,
    binding: Binding,
    created: u64,
    len: u64,
    payload_hash: [u8; 32],
}

impl Header {
    pub fn new(id: MaterialId, binding: Binding, created: u64, payload: &[u8]) -> Self {
        Self { id, binding, created, len: payload.len() as u64, payload_hash: *blake3::hash(payload).as_bytes() }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        for digest in [&self.binding.client, &self.binding.model, &self.binding.plan] {
            out.extend_from_slice(digest);
        }
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.payload_hash);
        out.extend_from_slice(blake3::hash(&out).as_bytes());
        out
    }

    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let mut rest = &bytes[..];
        if take::<8>(&mut rest) != MAGIC {
            return Err("this is no tacit material".into());
        }
        let version = u32::from_le_bytes(take(&mut rest));
        if version != VERSION {
            return Err(format!("material of version {version}, this program reads {VERSION}"));
        }
        if blake3::hash(&bytes[..CHECKED]).as_bytes()[..] != bytes[CHECKED..] {
            return Err("the header fails its checksum".into());
        }
        let header = Self {
            id: MaterialId(take(&mut rest)),
            binding: Binding { client: take(&mut rest), model: take(&mut rest), plan: take(&mut rest) },
            created: u64::from_le_bytes(take(&mut rest)),
            len: u64::from_le_bytes(take(&mut rest)),
            payload_hash: take(&mut rest),
        };
        if header.len > MAX_MATERIAL_BYTES {
            return Err(format!("{} bytes of material, the limit is {MAX_MATERIAL_BYTES}", header.len));
        }
        Ok(header)
    }

    pub fn entry(&self) -> Entry {
        Entry { id: self.id, binding: self.binding, created: self.created, bytes: self.len }
    }

    /// Whether the file is what its name and the user say.
    pub fn check(&self, id: MaterialId, binding: Binding) -> Result<(), ServeError> {
        let what = if self.binding.client != binding.client {
            "client"
        } else if self.binding.model != binding.model {
            "model"
        } else if self.binding.plan != binding.plan {
            "plan (another version or other options of this program)"
        } else if self.id != id {
            "id (the file was renamed)"
        } else {
            return Ok(());
        };
        Err(ServeError::WrongBinding { id, what })
    }

    /// The material behind the header; [`ServeError::Content`] if it is not what was written.
    pub fn read_payload(&self, mut file: File, path: &Path) -> Result<Zeroizing<Vec<u8>>, ServeError> {
        let found = file.metadata().map_err(ServeError::file("reading material", path))?.len();
        // Checked against the file before allocating what the header asks for.
        if found != self.len + HEADER_BYTES as u64 {
            return Err(content(
                path,
                format!("{found} bytes in the file, {} expected", self.len + HEADER_BYTES as u64),
            ));
        }
        let mut payload = Zeroizing::new(Vec::with_capacity(self.len as usize));
        file.read_to_end(&mut payload).map_err(ServeError::file("reading material", path))?;
        if *blake3::hash(&payload).as_bytes() != self.payload_hash {
            return Err(content(path, "the content fails its checksum"));
        }
        Ok(payload)
    }
}

/// The next `N` bytes; the caller's buffer has the header's fixed length, so they are there.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let (head, tail) = rest.split_at(N);
    out.copy_from_slice(head);
    *rest = tail;
    out
}
