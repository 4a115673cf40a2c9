//! Values by party.

use serde::{Deserialize, Serialize};

/// One value for each of the two parties, serialised as `[client, server]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[T; 2]", into = "[T; 2]", bound(serialize = "T: Clone + Serialize"))]
pub struct Sides<T> {
    /// The client's value.
    pub client: T,
    /// The server's value.
    pub server: T,
}

impl<T> Sides<T> {
    /// Applies a function to both values, the client's first.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Sides<U> {
        Sides { client: f(self.client), server: f(self.server) }
    }
}

impl<T> From<[T; 2]> for Sides<T> {
    fn from([client, server]: [T; 2]) -> Self {
        Self { client, server }
    }
}

impl<T> From<Sides<T>> for [T; 2] {
    fn from(Sides { client, server }: Sides<T>) -> Self {
        [client, server]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_an_array() {
        let sides = Sides { client: 1u32, server: 300 };
        assert_eq!(serde_json::to_string(&sides).unwrap(), "[1,300]");
        assert_eq!(serde_json::from_str::<Sides<u32>>("[1,300]").unwrap(), sides);
        assert!(serde_json::from_str::<Sides<u32>>("[1]").is_err());
        assert_eq!(postcard::to_stdvec(&sides).unwrap(), postcard::to_stdvec(&[1u32, 300]).unwrap());
    }
}
