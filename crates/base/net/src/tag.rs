//! Message tags: the kind that a frame states.
use std::fmt;

/// The kind of a message: a number on the wire and a name for people.
///
/// Ranges: `0x00xx` net, `0x01xx` serve, `0x02xx` OT, `0x03xx` two-party protocols, `0x04xx` linear
/// layers and back ends; the rest is free (tests use `0xf0xx`). Equality is by number.
#[derive(Clone, Copy)]
pub struct Tag {
    id: u16,
    name: &'static str,
}

/// First id of each range and the part of the project that owns it, ascending.
const AREAS: [(u16, &str); 7] = [
    (0x0000, "net"),
    (0x0100, "serve"),
    (0x0200, "ot"),
    (0x0300, "mpc"),
    (0x0400, "backend"),
    (0x0500, "unassigned"),
    (0xf000, "test"),
];

impl Tag {
    /// The opening message of a connection.
    pub const HELLO: Self = Self::new(0x0001, "hello");
    /// A sign of life: a frame without content from a peer that computes.
    pub const ALIVE: Self = Self::new(0x0002, "alive");

    /// A tag with its number and its name.
    #[must_use]
    pub const fn new(id: u16, name: &'static str) -> Self {
        Self { id, name }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.id
    }

    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// A tag read from the wire: known are its number and the part of the project that owns it.
    pub(crate) fn from_wire(id: u16) -> Self {
        let area = AREAS.iter().rev().find(|(first_id, _)| *first_id <= id);
        Self::new(id, area.expect("the areas begin at 0").1)
    }
}

impl PartialEq for Tag {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Tag {}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)
    }
}

/// For developers: with the number.
impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({:#06x})", self.name, self.id)
    }
}
