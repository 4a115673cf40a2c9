//! A server and its clients over TLS on loopback, with a toy back end.
use crate::by_hand::infer_with;
use crate::common::*;
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::Sides;
use tacit_client::wire::{Reply, Request, recv_reply};
use tacit_client::{ClientError, Connection, infer_many};
use tacit_graph::Units;
use tacit_ids::MaterialId;
use tacit_store::StoreError;

const X: [f32; 4] = [10.0, -20.5, 30.25, 5.0];

#[test]
fn client_lists_opens_and_infers() {
    let server = Running::start(|_| {});
    let mut connection = server.connection("alice");
    let models = connection.models().unwrap();
    assert_eq!(models.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert!(models.iter().all(|m| m.backends.len() == 1 && m.backends[0].backend == "toy"));
    let mut client = connection.open("two", None).unwrap();
    assert_eq!((client.model_name(), client.backend(), client.interface().name.as_str()), ("two", "toy", "tiny"));
    let answer = client.infer(&X).unwrap();
    assert_eq!(answer.values, expected(2, &X));
    assert_eq!(answer.class, usize::from(answer.values[1] > answer.values[0]));
    let (setup, prepared) = (answer.setup.unwrap(), answer.prepared.unwrap());
    assert_eq!(prepared.bytes, Sides { client: 9, server: 9 });
    for report in [setup, prepared.offline, answer.online] {
        assert!(report.client.wall_s > 0.0);
        assert!(report.server.wall_s > 0.0);
        assert!(report.client.peak_rss_bytes > 1 << 20);
        assert_eq!(report.client.sent_bytes, report.server.received_bytes);
        assert_eq!(report.client.received_bytes, report.server.sent_bytes);
    }
    assert_eq!(answer.online.client.sent_bytes, 4 * 8 + 10);
    assert_eq!((answer.online.client.rounds, answer.online.server.rounds), (1, 0));
    assert!(client.infer(&X).unwrap().setup.is_none(), "a second setup of one connection");
    assert_eq!(client.infer(&[1.0, 0.5, -1.0, 2.0]).unwrap().values, expected(2, &[1.0, 0.5, -1.0, 2.0]));
    assert!(matches!(client.infer(&[f32::NAN; 4]), Err(ClientError::Graph(_))));
    assert!(matches!(client.infer(&[0.0; 5]), Err(ClientError::Graph(_))));
    client.close().unwrap();
    server.settle();
    assert_eq!(server.handle.served(), 3);
}

#[test]
fn stored_material_is_used_once() {
    let server = Running::start(|_| {});
    let mut first = server.client("alice", "one");
    let ids: Vec<MaterialId> = (0..3).map(|_| first.prepare().unwrap().id).collect();
    drop(first);
    let mut later = server.client("alice", "one");
    assert_eq!(later.list_stored().unwrap().len(), 3);
    assert_eq!(later.discard(&ids[2..]).unwrap(), 1);
    assert!(later.infer(&[f32::INFINITY; 4]).is_err(), "a refused input costs no material");
    for _ in 0..2 {
        let answer = later.infer(&X).unwrap();
        assert_eq!(answer.values, expected(1, &X));
        assert!(answer.prepared.is_none());
        assert!(answer.setup.is_none());
    }
    assert!(later.list_stored().unwrap().is_empty());
    assert!(later.infer(&X).unwrap().prepared.is_some());
    let error = server_store(&server.dir).claim(ids[0], later.binding()).unwrap_err();
    assert!(matches!(error, StoreError::Burnt(id) if id == ids[0]), "{error}");
}

#[test]
fn material_is_bound_to_client_and_model() {
    let server = Running::start(|_| {});
    let mut alice = server.client("alice", "one");
    let id = alice.prepare().unwrap().id;
    let mut bob = server.client("bob", "one");
    assert!(bob.stored_at_server().unwrap().is_empty());
    assert_eq!(bob.discard(&[id]).unwrap(), 0);
    // The server's half stays ready for Alice when Bob asks with hers.
    check_refused(&ask(&mut server.opened("bob", "one"), &infer_with(id)), "another client");
    let mut other = server.client("alice", "two");
    assert!(other.list_stored().unwrap().is_empty());
    assert!(alice.infer(&X).unwrap().prepared.is_none());
    // A client discards its material whichever model it has open.
    let id = alice.prepare().unwrap().id;
    assert_eq!(other.discard(&[id]).unwrap(), 1);
    assert!(alice.list_stored().unwrap().is_empty());
}

#[test]
fn never_uses_half_that_server_lost() {
    let server = Running::start(|_| {});
    let mut client = server.client("alice", "one");
    let id = client.prepare().unwrap().id;
    server_store(&server.dir).discard(&[id], None).unwrap();
    assert!(client.list_stored().unwrap().is_empty());
    let answer = client.infer(&X).unwrap();
    assert_eq!(answer.values, expected(1, &X));
    assert!(answer.prepared.is_some());
}

#[test]
fn serves_concurrent_clients_in_order() {
    let server = Running::start(|c| c.threads = 2);
    thread::scope(|scope| {
        for (who, name, salt) in [("alice", "one", 1u8), ("bob", "two", 2), ("bob", "one", 1)] {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client(who, name);
                let inputs: Vec<Vec<f32>> = (0..12u8).map(f32::from).map(|i| vec![i, 2.0 * i, -i, 3.0]).collect();
                let mut indices = Vec::new();
                infer_many(&mut client, Units::Network, &inputs, |index, answer| {
                    assert_eq!(answer.values, expected(salt, &inputs[index]));
                    assert!(answer.prepared.is_some());
                    assert_eq!(answer.setup.is_some(), index == 0);
                    indices.push(index);
                    Ok(())
                })
                .unwrap();
                assert_eq!(indices, (0..12).collect::<Vec<_>>());
                let wrong = [X.to_vec(), vec![0.0]];
                let never = |_, _| panic!("no input is asked before all are checked");
                assert!(matches!(infer_many(&mut client, Units::Network, &wrong, never), Err(ClientError::Graph(_))));
            });
        }
    });
    server.settle();
    assert_eq!(server.handle.served(), 36);
}

#[test]
fn names_full_server_and_full_quota() {
    let server = Running::start(|c| {
        c.max_connections = 1;
        c.stored_per_client = 2;
    });
    let mut client = server.client("alice", "one");
    let refused = Connection::connect(registry(), server.config("bob")).err().unwrap();
    assert!(refused.to_string().contains("all places are taken"), "{refused}");
    client.prepare().unwrap();
    client.prepare().unwrap();
    let refused = client.prepare().unwrap_err();
    assert!(refused.to_string().contains("2 materials are stored"), "{refused}");
    assert!(client.infer(&X).is_ok(), "a refusal leaves the connection usable");
}

#[test]
fn shutdown_ends_idle_connections() {
    let server = Running::start(|_| {});
    let mut client = server.client("alice", "one");
    let started = Instant::now();
    server.handle.shutdown(Duration::from_secs(100));
    assert!(started.elapsed().as_secs() < 60);
    assert_eq!(server.handle.connections(), 0);
    // The client learns the reason with its next request.
    let error = client.infer(&X).unwrap_err();
    assert!(matches!(&error, ClientError::Ended { reason, .. } if reason.contains("being stopped")), "{error}");
    assert!(error.to_string().contains(&server.address), "{error}");
    assert!(Connection::connect(registry(), server.config("alice")).is_err());
    server.handle.shutdown(Duration::ZERO);
}

#[test]
fn shutdown_cuts_unfinished_job() {
    let server = Running::start(|_| {});
    let mut channel = server.opened("alice", "one");
    assert_eq!(ask(&mut channel, &Request::Setup), Reply::Go);
    server.handle.shutdown(Duration::from_millis(50));
    assert_eq!(server.handle.connections(), 0);
    channel.recv_max(tacit_net::Tag::new(0xf100, "toy key"), 8).unwrap();
    assert!(recv_reply(&mut channel).is_err());
}

#[test]
fn paced_client_keeps_its_rate() {
    let server = Running::start(|config| config.pace = "1gbit".parse().ok());
    let mut config = server.config("alice");
    let pace: tacit_net::Rate = "60kbit".parse().unwrap();
    config.pace = Some(pace);
    let mut client = Connection::connect(registry(), config).unwrap().open("one", None).unwrap();
    let (start, mut sent) = (Instant::now(), 0);
    while sent < tacit_net::burst_bytes(pace) + 3000 {
        let answer = client.infer(&X).unwrap();
        assert_eq!(answer.values, expected(1, &X));
        sent += answer.online.client.sent_bytes + answer.prepared.unwrap().offline.client.sent_bytes;
    }
    let least = (sent - tacit_net::burst_bytes(pace)) as f64 * 8.0 / 60e3;
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds >= least, "{sent} bytes in {seconds} s: at least {least} s at {pace}");
}
