//! One party's half of the offline phase's result.

use std::any::Any;
use std::io::{Read, Write};

use zeroize::Zeroizing;

use super::spool::MaterialPlace;
use crate::{BackendError, Result};

/// Checks that material was made for the plan of this digest.
pub fn check_made_for(made_for: &[u8; 32], plan: &[u8; 32]) -> Result<()> {
    if made_for != plan {
        return Err(BackendError::Misuse("the material belongs to another plan"));
    }
    Ok(())
}

/// A back end's own form of the material for one input, or for a batch.
pub trait MaterialPart: Any + Send {
    /// Encodes the material to store it. All lengths follow from the plan.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;
}

/// One party's half of the material for one input, or for a batch. Opaque, and passed by value because it may
/// be used only once.
pub struct Material(Held);

enum Held {
    Memory(Box<dyn MaterialPart>),
    Spooled(Box<dyn Any + Send>),
}

struct Nothing;

impl MaterialPart for Nothing {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::default()
    }
}

impl Material {
    /// Wraps a back end's material.
    pub fn new(part: impl MaterialPart) -> Self {
        Self(Held::Memory(Box::new(part)))
    }

    /// Wraps material whose bytes the back end reads from a store while it uses them.
    pub fn spooled(part: impl Any + Send) -> Self {
        Self(Held::Spooled(Box::new(part)))
    }

    /// The material of back ends that have nothing to prepare.
    #[must_use]
    pub fn nothing() -> Self {
        Self::new(Nothing)
    }

    /// Whether the bytes are read from a store during use.
    #[must_use]
    pub fn is_spooled(&self) -> bool {
        matches!(self.0, Held::Spooled(_))
    }

    /// Encodes the material to store it.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if it is stored already ([`spooled`](Self::spooled)).
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>> {
        match &self.0 {
            Held::Memory(part) => Ok(part.to_bytes()),
            Held::Spooled(_) => Err(BackendError::Misuse("this material was stored already")),
        }
    }

    /// The back end's material.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if it belongs to another back end or party.
    pub fn take<T: Any>(self) -> Result<T> {
        let part: Box<dyn Any> = match self.0 {
            Held::Memory(part) => part,
            Held::Spooled(part) => part,
        };
        part.downcast()
            .map(|part| *part)
            .map_err(|_| BackendError::Misuse("the material belongs to another back end or party"))
    }
}

pub(super) fn write_whole(material: &Material, place: &mut dyn MaterialPlace) -> Result<()> {
    write(&material.to_bytes()?, place)
}

/// Writes a piece of material.
pub fn write(bytes: &[u8], place: &mut (impl Write + ?Sized)) -> Result<()> {
    place.write_all(bytes).map_err(|e| BackendError::Spool { what: e.to_string() })
}

pub(super) fn read_whole(bytes: u64, mut source: Box<dyn Read + Send>) -> Result<Zeroizing<Vec<u8>>> {
    let mut contents = Zeroizing::new(vec![0; bytes as usize]);
    source.read_exact(&mut contents).map_err(|e| BackendError::Material { what: e.to_string() })?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn material_is_taken_as_its_own_type_alone() {
        struct Seven;
        impl MaterialPart for Seven {
            fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
                Zeroizing::new(vec![7])
            }
        }
        assert_eq!(Material::new(Seven).to_bytes().unwrap().as_slice(), [7]);
        assert!(Material::spooled(Seven).to_bytes().is_err());
        for material in [Material::spooled(Seven), Material::new(Seven)] {
            assert!(material.take::<Seven>().is_ok());
        }
        assert!(matches!(Material::nothing().take::<Seven>(), Err(BackendError::Misuse(_))));
    }
}
