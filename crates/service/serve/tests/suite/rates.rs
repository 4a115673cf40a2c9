//! Rates: each input costs its client one token, with all that belongs to it.
use crate::common::*;
use std::path::Path;
use std::thread;
use tacit_client::wire::{Reply, Request};
use tacit_client::{Client, ClientError};
use tacit_graph::Units;
use tacit_ids::MaterialId;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn start(dir: &Path, access: &Path) -> Running {
    Running::start(dir, |config| config.access = Some(access.to_owned()))
}

fn infer(client: &mut Client) -> Result<(), ClientError> {
    client.infer(&X).map(|answer| assert_eq!(answer.values, expected(1, &X)))
}

#[test]
fn a_rate_is_each_clients_own() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "rate_per_minute = 2");
    let server = start(dir.path(), &access);
    let infer = Request::Infer { id: Some(MaterialId::numbered(1)), of: None };
    let reasons = |name: &str| {
        let mut channel = server.opened(dir.path(), name, "one");
        set_up(&mut channel);
        (0..3).map(|_| format!("{:?}", ask(&mut channel, &infer))).collect::<Vec<_>>()
    };
    let is_slowed = |reason: &String| reason.contains("more than 2 requests within a minute");
    assert_eq!(reasons("alice").iter().map(is_slowed).collect::<Vec<_>>(), [false, false, true]);
    assert!(is_slowed(&reasons("alice")[0]), "another connection helps nothing");
    assert!(!reasons("bob").iter().any(is_slowed));
    let mut channel = server.greeted(dir.path(), "alice");
    assert!(matches!(ask(&mut channel, &Request::List), Reply::Models(_)), "what costs nothing has no rate");
}

#[test]
fn an_input_costs_one_token_with_all_its_phases_however_many_come_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "rate_per_minute = 30");
    let server = start(dir.path(), &access);
    thread::scope(|scope| {
        let asking: Vec<_> =
            (0..30).map(|_| scope.spawn(|| infer(&mut server.client(dir.path(), "alice", "one")))).collect();
        for handle in asking {
            handle.join().unwrap().expect("30 at once are within 30 a minute");
        }
    });
    assert_eq!(server.handle.served(), 30);
}

#[test]
fn a_notice_and_stock_cost_what_the_request_for_them_would() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "rate_per_minute = 2");
    let server = start(dir.path(), &access);
    let mut client = server.client(dir.path(), "alice", "one");
    // Of stock, and of an input that was announced.
    client.prepare().unwrap();
    let notice = client.announce(None).unwrap();
    assert_eq!(client.infer_announced(notice, Units::Network, &X).unwrap().values, expected(1, &X));
    infer(&mut client).unwrap();
    let refused = infer(&mut client).unwrap_err().to_string();
    assert!(refused.contains("more than 2 requests within a minute"), "{refused}");
    assert_eq!(server.handle.served(), 2);
    assert!(client.stored().unwrap().is_empty(), "nothing is made for what is refused");
}
