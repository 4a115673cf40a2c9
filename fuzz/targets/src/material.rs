//! Material from disk, at both parties.

use std::sync::LazyLock;

use tacit_backends::cheetah::{ClientMaterial, Options, Plan, ServerMaterial, compile, costs};

use crate::lowered::small_model;

/// Compiled once: the plan is not what is tested.
static PLAN: LazyLock<Plan> =
    LazyLock::new(|| compile(small_model().0, Options::default()).expect("the small model is supported"));

/// The client's half.
pub(crate) fn client(data: &[u8]) {
    if let Ok(material) = ClientMaterial::from_bytes(&PLAN, data) {
        assert_eq!(material.to_bytes().len(), data.len(), "every byte was read");
    }
}

/// The server's half.
pub(crate) fn server(data: &[u8]) {
    if let Ok(material) = ServerMaterial::from_bytes(&PLAN, data) {
        assert_eq!(material.to_bytes().len(), data.len(), "every byte was read");
    }
}

/// Shares and masks are uniform: any bytes of the right length are material.
fn seeds(length: u64) -> Vec<Vec<u8>> {
    vec![vec![0; length as usize], vec![0xa5; length as usize]]
}

pub(crate) fn client_seeds() -> Vec<Vec<u8>> {
    seeds(costs(&PLAN).offline.client.stored_bytes)
}

pub(crate) fn server_seeds() -> Vec<Vec<u8>> {
    seeds(costs(&PLAN).offline.server.stored_bytes)
}
