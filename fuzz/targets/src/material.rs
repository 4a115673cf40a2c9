//! Material from disk, at both parties.

use std::sync::LazyLock;

use tacit_backends::Backend;
use tacit_backends::cheetah::{Cheetah, Material, Plan};
use tacit_mpc::Role;

use crate::lowered::small_model;

/// Compiled once: the plan is not what is tested.
static PLAN: LazyLock<Plan> =
    LazyLock::new(|| Cheetah::default().compile(&small_model().0).expect("the small model is supported"));

fn read(role: Role, data: &[u8]) {
    if let Ok(material) = Material::from_bytes(&PLAN, role, data) {
        assert_eq!(material.to_bytes().len(), data.len(), "every byte was read");
    }
}

/// The client's half.
pub(crate) fn client(data: &[u8]) {
    read(Role::Client, data);
}

/// The server's half.
pub(crate) fn server(data: &[u8]) {
    read(Role::Server, data);
}

fn seeds(role: Role) -> Vec<Vec<u8>> {
    let cost = Cheetah::default().cost(&PLAN);
    let length = match role {
        Role::Client => cost.client_material_bytes,
        Role::Server => cost.server_material_bytes,
    };
    // Shares and masks are uniform: any bytes of the right length are material.
    vec![vec![0; length as usize], vec![0xa5; length as usize]]
}

pub(crate) fn client_seeds() -> Vec<Vec<u8>> {
    seeds(Role::Client)
}

pub(crate) fn server_seeds() -> Vec<Vec<u8>> {
    seeds(Role::Server)
}
