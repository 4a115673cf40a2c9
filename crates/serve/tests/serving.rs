//! A server and its clients over TLS on loopback, with a toy back end.
mod common;
use common::*;
use std::thread;
use tacit_ids::MaterialId;
use tacit_serve::*;
use tacit_store::{Store, StoreError};

const X: [i64; 4] = [10, -20, 30, 5];

#[test]
fn a_client_lists_opens_sets_up_and_infers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut lobby = Lobby::connect(Toy::default(), server.config(dir.path(), "alice")).unwrap();
    let names: Vec<String> = lobby.models().unwrap().into_iter().map(|m| m.name).collect();
    assert_eq!(names, ["one", "two"]);
    let mut client = lobby.open("two").unwrap();
    assert_eq!(client.public().digest, model(2).digest);
    let answer = client.infer_integers(&X).unwrap();
    assert_eq!(answer.integers, expected(2, &X));
    assert_eq!(answer.class, usize::from(answer.integers[1] > answer.integers[0]));
    let (setup, prepared) = (answer.setup.unwrap(), answer.prepared.unwrap());
    assert_eq!(prepared.bytes, [8, 8]);
    for report in [setup, prepared.offline, answer.online] {
        assert!(report.client.wall_s > 0.0 && report.server.wall_s > 0.0);
        assert!(report.client.peak_rss_bytes > 1 << 20);
        assert_eq!(report.client.sent_bytes, report.server.received_bytes);
        assert_eq!(report.client.received_bytes, report.server.sent_bytes);
    }
    assert_eq!(answer.online.client.sent_bytes, 4 * 8 + 10);
    assert_eq!((answer.online.client.rounds, answer.online.server.rounds), (1, 0));
    // Setup is made once per connection.
    assert!(client.infer_integers(&X).unwrap().setup.is_none());
    let real = client.infer(&[1.0, 0.5, -1.0, 2.0]).unwrap();
    assert_eq!(real.integers, expected(2, &[256, 128, -256, 512]));
    assert!(client.infer(&[f32::NAN; 4]).is_err());
    client.close().unwrap();
    server.settle();
    assert_eq!(server.handle.served(), 3);
}

#[test]
fn stored_material_serves_later_connections_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut first = server.client(dir.path(), "alice", "one");
    let ids: Vec<MaterialId> = (0..3).map(|_| first.prepare().unwrap().id).collect();
    drop(first);
    let mut later = server.client(dir.path(), "alice", "one");
    assert_eq!(later.stored().unwrap().len(), 3);
    assert_eq!(later.discard(&ids[2..]).unwrap(), 1);
    for _ in 0..2 {
        let answer = later.infer_integers(&X).unwrap();
        assert_eq!(answer.integers, expected(1, &X));
        assert!(answer.prepared.is_none() && answer.setup.is_none(), "stored material needs no offline work");
    }
    assert!(later.stored().unwrap().is_empty());
    assert!(later.infer_integers(&X).unwrap().prepared.is_some());
    let server_store = Store::open(&dir.path().join("server-material"), None).unwrap();
    let error = server_store.claim(ids[0], later.binding()).unwrap_err();
    assert!(matches!(error, StoreError::Burnt(id) if id == ids[0]), "{error}");
}

#[test]
fn material_is_bound_to_client_and_model() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut alice = server.client(dir.path(), "alice", "one");
    let id = alice.prepare().unwrap().id;
    let mut bob = server.client(dir.path(), "bob", "one");
    assert!(bob.stored_at_server().unwrap().is_empty());
    assert!(bob.discard(&[id]).unwrap_err().to_string().contains("another client"));
    // Bob steals Alice's file: his ledger knows nothing of it, and hers stays ready.
    let theft = dir.path().join("bob-material");
    let name = format!("{id}.material");
    std::fs::copy(dir.path().join("alice-material").join(&name), theft.join(&name)).unwrap();
    assert!(bob.infer_integers(&X).unwrap().prepared.is_some());
    let mut other = server.client(dir.path(), "alice", "two");
    assert!(other.stored().unwrap().is_empty());
    assert!(other.discard(&[id]).unwrap_err().to_string().contains("another model"));
    assert!(alice.infer_integers(&X).unwrap().prepared.is_none());
}

#[test]
fn a_half_that_is_missing_at_the_server_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    let id = client.prepare().unwrap().id;
    Store::open(&dir.path().join("server-material"), None).unwrap().discard(id).unwrap();
    assert!(client.stored().unwrap().is_empty());
    let answer = client.infer_integers(&X).unwrap();
    assert_eq!(answer.integers, expected(1, &X));
    assert!(answer.prepared.is_some());
}

#[test]
fn several_clients_at_once_and_inputs_in_a_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    thread::scope(|scope| {
        for (who, name, salt) in [("alice", "one", 1u8), ("bob", "two", 2), ("bob", "one", 1)] {
            let (server, dir) = (&server, dir.path());
            scope.spawn(move || {
                let mut client = server.client(dir, who, name);
                let inputs: Vec<Vec<i64>> = (0..12).map(|i| vec![i, 2 * i, -i, 3]).collect();
                let mut seen = Vec::new();
                infer_many(&mut client, &inputs, |index, answer| {
                    assert_eq!(answer.integers, expected(salt, &inputs[index]));
                    assert!(answer.prepared.is_some() && answer.setup.is_some() == (index == 0));
                    seen.push(index);
                    Ok(())
                })
                .unwrap();
                assert_eq!(seen, (0..12).collect::<Vec<_>>());
            });
        }
    });
    server.settle();
    assert_eq!(server.handle.served(), 36);
}

#[test]
fn a_full_server_and_full_quotas_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| {
        c.max_connections = 1;
        c.stored_per_client = 2;
    });
    let mut client = server.client(dir.path(), "alice", "one");
    let refused = Lobby::connect(Toy::default(), server.config(dir.path(), "bob")).err().unwrap();
    assert!(refused.to_string().contains("all places are taken"), "{refused}");
    client.prepare().unwrap();
    client.prepare().unwrap();
    let refused = client.prepare().unwrap_err();
    assert!(refused.to_string().contains("2 materials are stored"), "{refused}");
    assert!(client.infer_integers(&X).is_ok(), "a refusal leaves the connection usable");
}

#[test]
fn a_shutdown_ends_idle_sessions_and_the_accepting_thread() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let mut client = server.client(dir.path(), "alice", "one");
    let started = std::time::Instant::now();
    server.handle.shutdown(std::time::Duration::from_secs(100));
    assert!(started.elapsed().as_secs() < 60);
    assert!(client.infer_integers(&X).is_err());
    assert!(Lobby::connect(Toy::default(), server.config(dir.path(), "alice")).is_err());
}

#[test]
fn a_paced_client_sends_no_faster_than_asked() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.pace = "1gbit".parse().ok());
    let mut config = server.config(dir.path(), "alice");
    let pace: tacit_net::Rate = "60kbit".parse().unwrap();
    config.pace = Some(pace);
    let mut client = Lobby::connect(Toy::default(), config).unwrap().open("one").unwrap();
    let (start, mut sent) = (std::time::Instant::now(), 0);
    while sent < tacit_net::burst_bytes(pace) + 3000 {
        let answer = client.infer_integers(&X).unwrap();
        assert_eq!(answer.integers, expected(1, &X));
        sent += answer.online.client.sent_bytes + answer.prepared.unwrap().offline.client.sent_bytes;
    }
    let least = (sent - tacit_net::burst_bytes(pace)) as f64 * 8.0 / 60e3;
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds >= least, "{sent} bytes in {seconds} s: at least {least} s at {pace}");
}
