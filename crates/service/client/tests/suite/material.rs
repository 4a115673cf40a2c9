//! Stored material is used once, whatever the server lists, offers or forgets.
use crate::common::expected;
use crate::peer::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tacit_client::wire::{MAX_IDS, Reply, Request};
use tacit_client::{Client, ClientError, Connection};
use tacit_ids::MaterialId;
use tacit_store::StoreError;

fn connect(server: &Server, store: &Path) -> Result<Connection, ClientError> {
    Connection::connect(registry(), config(server, Some(store)))
}

fn open(server: &Server, store: &Path) -> Client {
    connect(server, store).unwrap().open("tiny", None).unwrap()
}

/// `count` ids from a number on.
fn ids(first: u64, count: usize) -> Vec<MaterialId> {
    (first..).take(count).map(MaterialId::numbered).collect()
}

#[test]
fn rejects_inconsistent_lists() {
    type Page = fn() -> Vec<MaterialId>;
    let pages: [(&str, Page); 3] = [
        ("2049 ids to the list of material", || ids(1, MAX_IDS + 1)),
        ("2048 ids to the list of material, 0 of them new", || ids(1, MAX_IDS)),
        ("2048 ids to the list of material, 2047 of them new", || [ids(1, MAX_IDS - 1), ids(1, 1)].concat()),
    ];
    for (wanted, page) in pages {
        let server = Server::lying(&Shared::default(), move |_, peer, request| {
            assert!(matches!(request, Request::Reconcile { .. }));
            peer.reply(&Reply::Reconciled { folder: None, ids: page() }).map(|()| true)
        });
        let dir = tempfile::tempdir().unwrap();
        let error = connect(&server, dir.path()).err().unwrap().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn counts_only_requested_deletions() {
    let [asked, other] = [1, 2].map(MaterialId::numbered);
    for (reply, wanted) in [(vec![], Ok(0)), (vec![asked, asked], Ok(1)), (vec![asked, other], Err("not asked for"))] {
        let server = Server::lying(&Shared::default(), move |_, peer, request| match request {
            Request::Discard { .. } => peer.reply(&Reply::Ids(reply.clone())).map(|()| true),
            _ => Ok(false),
        });
        let dir = tempfile::tempdir().unwrap();
        match (connect(&server, dir.path()).unwrap().discard(&[asked]), wanted) {
            (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (got, wanted) => assert_eq!(got.ok(), wanted.ok()),
        }
    }
}

#[test]
fn uses_material_once_with_lying_server() {
    let (dir, shop) = (tempfile::tempdir().unwrap(), Shared::default());
    let store = folder(dir.path());
    let ever = Mutex::new(Vec::new());
    let server = Server::lying(&shop, move |_, peer, request| {
        let mut ever = ever.lock().unwrap();
        let lie = match request {
            Request::Prepare { id, .. } => {
                ever.push(*id);
                return Ok(false);
            }
            // All that there ever was, twice, and what nobody has made.
            Request::Stored => Reply::Ids([&ever[..], &[MaterialId([7; 16])], &ever[..]].concat()),
            Request::Reconcile { .. } => Reply::Reconciled { folder: Some(HERE), ids: ever.clone() },
            // It says that it has destroyed what is used, and keeps it.
            Request::Discard { ids, .. } => Reply::Ids(ids.clone()),
            _ => return Ok(false),
        };
        peer.reply(&lie).map(|()| true)
    });
    let made: BTreeSet<MaterialId> = {
        let mut client = open(&server, dir.path());
        let made = (0..3).map(|_| client.prepare().unwrap().id).collect();
        assert_eq!(client.list_stored().unwrap().len(), 3);
        (0..2).for_each(|_| assert_eq!(client.infer(&X).unwrap().values, expected(1, &X)));
        made
    };
    let mut client = open(&server, dir.path());
    assert_eq!(ready(&store).len(), 1);
    (0..2).for_each(|_| assert_eq!(client.infer(&X).unwrap().values, expected(1, &X)));
    assert_eq!(ready(&store), []);
    drop(client);
    let used: BTreeSet<MaterialId> = shop.lock().used.iter().map(|(id, _)| *id).collect();
    assert_eq!((used.len(), made.difference(&used).count()), (4, 0), "three of the folder, one made anew");
}

#[test]
fn never_uses_material_destroyed_meanwhile() {
    let (dir, shop) = (tempfile::tempdir().unwrap(), Shared::default());
    let other = Arc::new(folder(dir.path()));
    let rival = Arc::clone(&other);
    let sent: Arc<Mutex<Option<bool>>> = Arc::default();
    let heard = Arc::clone(&sent);
    let server = Server::lying(&shop, move |_, peer, request| {
        if let Request::Infer { id: Some(id), .. } = request {
            // Between the choice of the material and the turn.
            assert_eq!(rival.discard(&[*id], None).unwrap(), [*id]);
            peer.reply(&Reply::Go)?;
            *heard.lock().unwrap() = Some(peer.masked().is_ok());
            return Err(over());
        }
        Ok(false)
    });
    let mut client = open(&server, dir.path());
    let id = client.prepare().unwrap().id;
    let error = client.infer(&X).unwrap_err();
    assert!(matches!(error, ClientError::Store(StoreError::Burnt(burnt)) if burnt == id), "{error}");
    assert!(client.infer(&X).is_err(), "the connection is cut");
    server.settle();
    assert_eq!(*sent.lock().unwrap(), Some(false));
    assert_eq!(ready(&other), []);
}
