//! Why the chosen set has each of its keys, and how distances without a key are served.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tacit_he::ckks::{KeyId, KeyKind, Method, TransformPlan};

use super::rates::packed_bytes;
use super::runnable_sets::Running;
use crate::options::Options;
use tacit_backend_api::Result;

/// Most nodes that a reason names.
const MAX_NAMED: usize = 3;

/// Why the chosen set contains a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyReason {
    /// Kind of the key, or the rotation it serves.
    pub key: String,
    /// Distance in slots, for a rotation key.
    pub distance: Option<i64>,
    /// Highest level.
    pub level: usize,
    /// Special primes.
    pub alpha: usize,
    /// Size when uploaded, in bytes.
    pub bytes: u64,
    /// `uploaded, resident` for a key that the server computes with; `uploaded` for a master.
    pub state: &'static str,
    /// What needs the key.
    pub reason: String,
}

/// Transforms that chain keys, because not every distance has one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// Nodes of the transforms.
    pub nodes: Vec<String>,
    /// Level of the transforms' input.
    pub level: usize,
    /// Keys if the transforms were hoisted.
    pub distances: usize,
    /// Distances of the keys that are chained.
    pub by: Vec<i64>,
    /// Key switches of one transform.
    pub switches: usize,
}

/// Up to [`MAX_NAMED`] names, and how many more there are.
fn names(nodes: &[String]) -> String {
    let listed = nodes.iter().take(MAX_NAMED).map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => listed,
        count => format!("{listed} and {count} more"),
    }
}

/// By distance: roles of a rotation, and the nodes that need it.
type Roles = BTreeMap<i64, BTreeMap<&'static str, Vec<String>>>;

fn add_roles(roles: &mut Roles, plan: &TransformPlan, nodes: &[String]) {
    let mut add = |k: i64, role| {
        let users = roles.entry(k).or_default().entry(role).or_default();
        users.extend(nodes.iter().cloned());
    };
    let [babies, giants] = plan.moves();
    match plan.method() {
        Method::Flat | Method::Hoisted => {
            babies.into_iter().for_each(|k| add(k, "baby step"));
            giants.into_iter().for_each(|k| add(k, "giant step or block"));
        }
        Method::Paired | Method::Chained => plan.rotations().into_iter().for_each(|k| add(k, "step of a chain")),
        Method::Powers => plan.rotations().into_iter().for_each(|k| add(k, "power of two")),
    }
}

impl Running<'_> {
    /// Reasons for the keys of a set that runs, and its chains.
    pub(super) fn reasons(&self, options: &Options) -> Result<(Vec<KeyReason>, Vec<Chain>)> {
        let context = &*self.frame.context;
        let (mut roles, mut chains) = (Roles::new(), Vec::new());
        for class in self.problem.classes.iter().filter(|class| !class.transforms.is_empty()) {
            let method = self.frame.method_of_transform(options, class.transforms[0], class.level);
            let (plan, nodes) = (self.plan(class, method)?, self.nodes(class));
            add_roles(&mut roles, &plan, &nodes);
            if !method.is_keyed() {
                let hoisted = self.plan(class, crate::rotation_method::RotationMethod::HOISTED)?;
                let (distances, by) = (hoisted.rotations().len(), plan.rotations());
                let switches = plan.work(context.parameters().alpha(class.level)).key_switches;
                chains.push(Chain { nodes, level: class.level, distances, by, switches });
            }
        }
        for (distance, _) in self.frame.folds() {
            roles.entry(distance).or_default().entry("adding up shares").or_default().push("sums".into());
        }
        let boot = self.bootstrapper(options);
        let mut bootstrap_kinds = BTreeSet::new();
        if let Some(boot) = boot {
            boot.plans().for_each(|plan| add_roles(&mut roles, plan, &["bootstraps".into()]));
            bootstrap_kinds = boot.keys().into_iter().map(|id| id.kind).collect();
        }
        let roles: BTreeMap<u32, (i64, String)> = roles
            .into_iter()
            .map(|(k, roles)| {
                let texts = roles.into_iter().map(|(role, nodes)| format!("{role} of {}", names(&nodes)));
                let text = texts.collect::<Vec<_>>().join("; ");
                (context.rotation_element(k), (k, text))
            })
            .collect();
        Ok((self.keys(options)?.iter().map(|id| self.reason(id, &roles, &bootstrap_kinds)).collect(), chains))
    }

    /// `roles` are those of rotations, with distances.
    fn reason(
        &self,
        id: &KeyId,
        roles: &BTreeMap<u32, (i64, String)>,
        bootstrap_kinds: &BTreeSet<KeyKind>,
    ) -> KeyReason {
        let context = &*self.frame.context;
        let role = if let KeyKind::Galois(element) = id.kind { roles.get(&element) } else { None };
        let is_for_bootstrap = bootstrap_kinds.contains(&id.kind);
        let reason = match (id.kind, role) {
            (_, Some((_, text))) => text.clone(),
            (KeyKind::Relinearise, _) => "products of ciphertexts".to_owned(),
            (KeyKind::Zero, _) => "answers are encrypted anew".to_owned(),
            (KeyKind::Master(_), _) => "rotation keys are derived from it and its like".to_owned(),
            (KeyKind::Galois(element), _) if element == context.conjugation_element() => {
                "bootstraps keep the real part".to_owned()
            }
            (KeyKind::ToSparse | KeyKind::FromSparse, _) => {
                "bootstraps raise residues under a sparse secret".to_owned()
            }
            _ if is_for_bootstrap => "bootstraps turn the slots once, before the chain".to_owned(),
            _ => "rotations".to_owned(),
        };
        KeyReason {
            key: role.map_or_else(|| id.kind.to_string(), |(k, _)| format!("rotation by {k}")),
            distance: role.map(|(k, _)| *k),
            level: id.level,
            alpha: id.alpha,
            bytes: packed_bytes(context, *id),
            state: if matches!(id.kind, KeyKind::Master(_)) { "uploaded" } else { "uploaded, resident" },
            reason,
        }
    }
}
