//! What a client's helper may do at a server: offline phases in its owner's place, within its owner's limits.
use crate::by_hand::infer_with;
use crate::common::*;
use std::io::{Read, Write};
use std::path::Path;
use tacit_backends::seam::MaterialSeed;
use tacit_client::wire::{Announce, Ask, InputId, Reply, Request, Terms};
use tacit_client::{Client, ClientConfig, ClientError, Connection};
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_store::keys;

const FOLDER: FolderId = FolderId([5; 16]);

/// Makes keys with a helper `gateway` of alice, and returns the fingerprints of both.
fn make_helper_keys(dir: &Path) -> [ClientId; 2] {
    let folder = make_keys(dir);
    keys::add_helper(&folder, "gateway", "alice", &["localhost".into()], None).unwrap();
    ["gateway", "alice"].map(|name| identity(dir, name).fingerprint)
}

fn helper(server: &Running) -> Result<Client, ClientError> {
    let config = ClientConfig { store: None, ..server.config("gateway") };
    Connection::connect(batching(), config)?.open("net", Some("cheetah"))
}

fn make(helper: &mut Client) -> Result<MaterialId, ClientError> {
    let id = MaterialId::random().unwrap();
    helper.make_for_owner(id, FOLDER, MaterialSeed::new(&mut [3; 16])).map(|_| id)
}

fn refusal<T>(result: Result<T, ClientError>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn helper_may_only_make_stored_material() {
    let dir = Folder::new();
    make_helper_keys(&dir);
    let server = serving_batches_in(&dir, |_| {});
    let (id, name) = (MaterialId([1; 16]), InputId(1));
    let mut channel = server.opened("gateway", "one");
    for request in [
        Request::List,
        Request::Ask(Ask { name, notice: None, material: None, terms: Terms::default() }),
        Request::Announce(Announce { name, expected_ms: None, ttl_ms: None }),
        Request::Cancel { name },
        Request::Prepare { id, folder: None, of: None },
        Request::Prepare { id, folder: Some(FOLDER), of: Some(name) },
        Request::Refill { id, folder: FOLDER, held: 0, most: 1 },
        infer_with(id),
        Request::Infer { id: None, of: None },
        Request::Stored,
        Request::Reconcile { folder: FOLDER, after: None },
        Request::Halves { after: None },
        Request::Discard { ids: vec![id], lost_by: None },
        Request::Batch { inputs: 2 },
        Request::Call { inputs: 1 },
        Request::Uploads,
        Request::DeleteUpload { name: [1; 32] },
    ] {
        let Reply::Refused { reason, .. } = ask(&mut channel, &request) else { panic!("granted: {request:?}") };
        assert!(reason.contains("a helper's"), "{request:?}: {reason}");
    }
    // HTTP does not answer a helper at all.
    let mut http = server.http("gateway");
    let _ = http.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut response = Vec::new();
    let _ = http.read_to_end(&mut response);
    assert!(response.is_empty(), "{}", String::from_utf8_lossy(&response));
}

#[test]
fn helper_makes_material_for_owner_within_limits() {
    let dir = Folder::new();
    let [helper_id, owner_id] = make_helper_keys(&dir);
    let access = write_rules(&dir, "", "");
    let server = serving_batches_in(&dir, |config| {
        config.access = Some(access.clone());
        config.stored_per_client = 2;
    });
    let mut first = helper(&server).unwrap();
    make(&mut first).unwrap();
    make(&mut first).unwrap();
    assert!(refusal(make(&mut first)).contains("2"), "the owner's quota is used up");
    assert!(refusal(first.infer(&vec![0.0; first.interface().input_len()])).contains("a helper's"));
    let store = server_store(&dir);
    let stored = || store.list(None).unwrap();
    assert!(stored().iter().all(|e| (e.binding.client, e.maker, e.peer) == (owner_id, Some(helper_id), FOLDER)));
    assert_eq!(stored().len(), 2);
    server.change_rules("", "models = ['one']");
    assert!(refusal(make(&mut first)).contains("no longer offered"));
    assert!(refusal(helper(&server)).contains("no model `net`"));
    server.change_rules("", "");
    let mut cut = helper(&server).unwrap();
    // The helper's revocation burns what it made, and does not concern its owner.
    std::fs::write(&access, format!("[client.{helper_id}]\nrevoked = true\n")).unwrap();
    server.handle.reload_access().unwrap();
    wait_until("its material is burnt", || stored().is_empty());
    assert!(make(&mut cut).is_err());
    assert!(refusal(helper(&server)).contains("this helper's access was revoked"));
    let mut owner = Connection::connect(batching(), server.config("alice")).unwrap().open("net", None).unwrap();
    owner.prepare().unwrap();
    assert_eq!(stored().iter().map(|e| e.maker).collect::<Vec<_>>(), [None]);
}

#[test]
fn revoked_owner_revokes_helper() {
    let dir = Folder::new();
    make_helper_keys(&dir);
    let access = write_rules(&dir, "", "revoked = true");
    let server = serving_batches_in(&dir, |config| config.access = Some(access));
    assert!(refusal(helper(&server)).contains("revoked"));
}
