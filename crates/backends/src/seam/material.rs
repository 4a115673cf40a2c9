//! One party's half of the preprocessing.

use std::any::Any;
use std::io::{Read, Write};

use zeroize::Zeroizing;

use super::spool::MaterialPlace;
use crate::BackendError;

/// Checks that material was made for (or read with) the plan of this digest.
pub(crate) fn check_made_for(made_for: &[u8; 32], plan: &[u8; 32]) -> Result<(), BackendError> {
    if made_for != plan {
        return Err(BackendError::Misuse("the material belongs to another plan"));
    }
    Ok(())
}

/// What a back end keeps for one input, or for a batch, as it sees it.
pub trait MaterialPart: Any + Send {
    /// The material as bytes, to be stored; all lengths follow from the plan.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;
}

/// One party's half of the preprocessing for one input, or for a batch. Opaque, and used by value: once.
pub struct Material(Held);

enum Held {
    Memory(Box<dyn MaterialPart>),
    Spooled(Box<dyn Any + Send>),
}

/// The material of back ends that have nothing to prepare.
struct Nothing;

impl MaterialPart for Nothing {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::default()
    }
}

impl Material {
    /// A back end's own material.
    pub fn new(part: impl MaterialPart) -> Self {
        Self(Held::Memory(Box::new(part)))
    }

    /// Material of which a back end reads the bytes as it uses them.
    pub fn spooled(part: impl Any + Send) -> Self {
        Self(Held::Spooled(Box::new(part)))
    }

    /// For back ends that have nothing to prepare.
    #[must_use]
    pub fn nothing() -> Self {
        Self::new(Nothing)
    }

    /// Whether its bytes are read as it is used.
    #[must_use]
    pub fn is_spooled(&self) -> bool {
        matches!(self.0, Held::Spooled(_))
    }

    /// As bytes, to be stored.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: it was stored, and is read as it is used.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        match &self.0 {
            Held::Memory(part) => Ok(part.to_bytes()),
            Held::Spooled(_) => Err(BackendError::Misuse("this material was stored already")),
        }
    }

    /// What the back end put in.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: it belongs to another back end or party.
    pub fn take<T: Any>(self) -> Result<T, BackendError> {
        let part: Box<dyn Any> = match self.0 {
            Held::Memory(part) => part,
            Held::Spooled(part) => part,
        };
        part.downcast()
            .map(|part| *part)
            .map_err(|_| BackendError::Misuse("the material belongs to another back end or party"))
    }
}

/// Writes material that is there as a whole.
pub(super) fn write_whole(material: &Material, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
    write(&material.to_bytes()?, place)
}

/// Writes some bytes of material.
pub(crate) fn write(bytes: &[u8], place: &mut (impl Write + ?Sized)) -> Result<(), BackendError> {
    place.write_all(bytes).map_err(|e| BackendError::Spool { what: e.to_string() })
}

/// Reads material as a whole.
pub(super) fn read_whole(bytes: u64, mut source: Box<dyn Read + Send>) -> Result<Zeroizing<Vec<u8>>, BackendError> {
    let mut all = Zeroizing::new(vec![0; bytes as usize]);
    source.read_exact(&mut all).map_err(|e| BackendError::Material { what: e.to_string() })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn material_of_another_back_end_is_refused() {
        struct Seven;
        impl MaterialPart for Seven {
            fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
                Zeroizing::new(vec![7])
            }
        }
        assert_eq!(Material::new(Seven).to_bytes().unwrap().as_slice(), [7]);
        assert!(Material::spooled(Seven).to_bytes().is_err());
        assert!(Material::spooled(Seven).take::<Seven>().is_ok());
        assert!(Material::new(Seven).take::<Seven>().is_ok());
        assert!(matches!(Material::nothing().take::<Seven>(), Err(BackendError::Misuse(_))));
    }
}
