//! Random operations against a model: what the store says is what a map would.
use crate::common::{TOY, file, sealing_key};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::{Binding, Party, Store, StoreError};

#[derive(Clone, Debug)]
enum Do {
    Put {
        id: u8,
        owner: u8,
        len: usize,
    },
    Claim {
        id: u8,
        owner: u8,
    },
    Discard {
        id: u8,
    },
    /// Of its client, whatever the model.
    DiscardOf {
        id: u8,
        owner: u8,
    },
    List {
        owner: Option<u8>,
    },
    Count {
        owner: u8,
    },
    /// Another process opens the folder, works, and leaves.
    Second {
        id: u8,
        owner: u8,
    },
    Reopen,
    /// The file is changed, or removed, behind the store's back.
    Spoil {
        id: u8,
        remove: bool,
    },
}

fn operation() -> impl Strategy<Value = Do> {
    let (id, owner) = (0u8..5, 0u8..3);
    prop_oneof![
        4 => (id.clone(), owner.clone(), 0usize..200).prop_map(|(id, owner, len)| Do::Put { id, owner, len }),
        3 => (id.clone(), owner.clone()).prop_map(|(id, owner)| Do::Claim { id, owner }),
        1 => id.clone().prop_map(|id| Do::Discard { id }),
        1 => (id.clone(), owner.clone()).prop_map(|(id, owner)| Do::DiscardOf { id, owner }),
        2 => prop::option::of(owner.clone()).prop_map(|owner| Do::List { owner }),
        1 => owner.clone().prop_map(|owner| Do::Count { owner }),
        1 => (id.clone(), owner).prop_map(|(id, owner)| Do::Second { id, owner }),
        1 => Just(Do::Reopen),
        2 => (id, any::<bool>()).prop_map(|(id, remove)| Do::Spoil { id, remove }),
    ]
}

/// Owners 1 and 2 are one client with two models.
fn binding(owner: u8) -> Binding {
    Binding { client: ClientId([owner.min(1); 32]), model: [owner; 32], plan: [3; 32] }
}

fn name(id: u8) -> MaterialId {
    MaterialId([id; 16])
}

/// A ready material in the model.
#[derive(Clone)]
struct Ready {
    order: usize,
    owner: u8,
    content: Vec<u8>,
    whole: bool,
    there: bool,
}

#[derive(Default)]
struct Model {
    ready: BTreeMap<u8, Ready>,
    burnt: BTreeSet<u8>,
    made: usize,
}

impl Model {
    /// Takes material of `owner` away: its content, or the name of the error.
    fn take(&mut self, id: u8, owner: Option<u8>) -> Result<Ready, &'static str> {
        if self.burnt.contains(&id) {
            return Err("burnt");
        }
        let ready = self.ready.get(&id).ok_or("none")?;
        if owner.is_some_and(|owner| binding(owner) != binding(ready.owner)) {
            return Err("bound");
        }
        self.burnt.insert(id);
        Ok(self.ready.remove(&id).expect("it was there"))
    }

    fn claim(&mut self, id: u8, owner: u8) -> Result<Vec<u8>, &'static str> {
        let ready = self.take(id, Some(owner))?;
        if ready.whole && ready.there { Ok(ready.content) } else { Err("damaged") }
    }

    fn put(&mut self, id: u8, owner: u8, content: Vec<u8>) -> Result<(), &'static str> {
        if self.burnt.contains(&id) {
            return Err("burnt");
        }
        if self.ready.contains_key(&id) {
            return Err("exists");
        }
        self.made += 1;
        self.ready.insert(id, Ready { order: self.made, owner, content, whole: true, there: true });
        Ok(())
    }

    fn spoil(&mut self, id: u8, path: &Path, remove: bool) {
        let Some(ready) = self.ready.get_mut(&id).filter(|r| r.there) else { return };
        if remove {
            fs::remove_file(path).expect("its file");
            ready.there = false;
        } else {
            let mut bytes = fs::read(path).expect("its file");
            bytes.push(0);
            fs::write(path, bytes).expect("writable");
            ready.whole = false;
        }
    }

    fn list(&self, owner: Option<u8>) -> Vec<MaterialId> {
        let is_owners = |r: &Ready| owner.is_none_or(|owner| binding(owner) == binding(r.owner));
        let mut entries: Vec<_> = self.ready.iter().filter(|(_, r)| is_owners(r)).collect();
        entries.sort_unstable_by_key(|(_, r)| r.order);
        entries.into_iter().map(|(id, _)| name(*id)).collect()
    }
}

fn named<T>(result: Result<T, StoreError>) -> Result<T, &'static str> {
    result.map_err(|e| match e {
        StoreError::Burnt(_) => "burnt",
        StoreError::NoMaterial(_) => "none",
        StoreError::Exists(_) => "exists",
        StoreError::WrongBinding { .. } => "bound",
        StoreError::Damaged { .. } => "damaged",
        e => panic!("{e}"),
    })
}

fn run(operations: &[Do], sealed: bool) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(dir.path(), Party::Client, sealed.then(sealing_key)).unwrap();
    let path = |id: u8| file(dir.path(), name(id));
    let (mut store, mut model) = (Some(open()), Model::default());
    for operation in operations {
        let current = store.as_ref().expect("open between operations");
        match operation.clone() {
            Do::Put { id, owner, len } => {
                let content = vec![id; len];
                let result = named(current.put(name(id), binding(owner), TOY, &content));
                prop_assert_eq!(result, model.put(id, owner, content));
            }
            Do::Claim { id, owner } => {
                let result = named(current.claim(name(id), binding(owner))).map(|m| m.to_vec());
                prop_assert_eq!(result, model.claim(id, owner));
            }
            Do::Second { id, owner } => {
                let result = named(open().claim(name(id), binding(owner))).map(|m| m.to_vec());
                prop_assert_eq!(result, model.claim(id, owner));
            }
            Do::Discard { id } => {
                let discarded = current.discard(&[name(id)], None).expect("the disk is whole");
                prop_assert_eq!(!discarded.is_empty(), model.take(id, None).is_ok());
            }
            Do::DiscardOf { id, owner } => {
                let client = binding(owner).client;
                let discarded = current.discard(&[name(id)], Some(client)).expect("the disk is whole");
                let is_hers = model.ready.get(&id).is_some_and(|r| binding(r.owner).client == client);
                prop_assert_eq!(!discarded.is_empty(), is_hers && model.take(id, None).is_ok());
            }
            Do::List { owner } => {
                let listed = current.list(owner.map(binding)).expect("the ledger is whole");
                prop_assert_eq!(listed.iter().map(|e| e.id).collect::<Vec<_>>(), model.list(owner));
            }
            Do::Count { owner } => {
                let client = binding(owner).client;
                let wanted = model.ready.values().filter(|r| binding(r.owner).client == client).count();
                prop_assert_eq!(current.list_of(client).expect("the ledger is whole").len(), wanted);
            }
            Do::Reopen => {
                drop(store.take());
                store = Some(open());
                let lost: Vec<u8> = model.ready.iter().filter(|(_, r)| !r.there).map(|(id, _)| *id).collect();
                for id in lost {
                    model.take(id, None).expect("it is ready");
                }
            }
            Do::Spoil { id, remove } => model.spoil(id, &path(id), remove),
        }
    }
    Ok(())
}

proptest! {
    // Every change syncs the disk several times.
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_map_with_single_use(operations in prop::collection::vec(operation(), 1..40), sealed in any::<bool>()) {
        run(&operations, sealed)?;
    }
}
