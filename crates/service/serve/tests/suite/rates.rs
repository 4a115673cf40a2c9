//! Rates: each input costs its client one token, with all that belongs to it.
use crate::access::infer;
use crate::by_hand::infer_with;
use crate::common::*;
use std::thread;
use tacit_client::wire::{Reply, Request};
use tacit_graph::Units;
use tacit_ids::MaterialId;

#[test]
fn rates_are_per_client() {
    let server = Running::start_with_rules("", "rate_per_minute = 2", |_| {});
    let infer = infer_with(MaterialId::numbered(1));
    let reasons = |name: &str| {
        let mut channel = server.ready_channel(name);
        (0..3).map(|_| format!("{:?}", ask(&mut channel, &infer))).collect::<Vec<_>>()
    };
    let is_slowed = |reason: &String| reason.contains("more than 2 requests within a minute");
    assert_eq!(reasons("alice").iter().map(is_slowed).collect::<Vec<_>>(), [false, false, true]);
    assert!(is_slowed(&reasons("alice")[0]), "over another connection");
    assert!(!reasons("bob").iter().any(is_slowed));
    assert!(matches!(ask(&mut server.greeted("alice"), &Request::List), Reply::Models(_)), "a list has no rate");
}

#[test]
fn input_costs_one_token() {
    let server = Running::start_with_rules("", "rate_per_minute = 30", |_| {});
    thread::scope(|scope| {
        let asking: Vec<_> = (0..30).map(|_| scope.spawn(|| infer(&mut server.client("alice", "one")))).collect();
        for handle in asking {
            handle.join().unwrap().unwrap();
        }
    });
    assert_eq!(server.handle.served(), 30);
}

#[test]
fn notices_and_stock_cost_tokens() {
    let server = Running::start_with_rules("", "rate_per_minute = 2", |_| {});
    let mut client = server.client("alice", "one");
    client.prepare().unwrap();
    let notice = client.announce(None).unwrap();
    assert_eq!(client.infer_announced(notice, Units::Network, &X).unwrap().values, expected(1, &X));
    infer(&mut client).unwrap();
    check_contains(&infer(&mut client).unwrap_err().to_string(), &["more than 2 requests within a minute"]);
    assert_eq!(server.handle.served(), 2);
    assert!(client.list_stored().unwrap().is_empty());
}
