//! The cheetah back end over TLS: stored material, in-memory material, pipelined inputs, against the reference.
mod common;
use common::{expected, model};
use std::thread;
use std::time::Duration;
use tacit_backends::cheetah::Cheetah;
use tacit_serve::*;
use tacit_store::keys;

#[test]
fn a_small_model_is_answered_privately_in_every_way_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let key_dir = dir.path().join("keys");
    keys::init(&key_dir, &[], &["alice".into()]).unwrap();
    let mut catalog = Catalog::new(Cheetah::default());
    catalog.add("one", model(1)).unwrap();
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Some(keys::load_server(&key_dir).unwrap()));
    config.store = Some(dir.path().join("server"));
    let server = Server::bind(catalog, config).unwrap();
    let (handle, address) = (server.handle(), server.address().to_string());
    let running = thread::spawn(move || server.run());

    let mut config = ClientConfig::new(&address, Some(keys::load_client(&key_dir, "alice").unwrap()));
    config.store = Some(dir.path().join("client"));
    let connect = || Lobby::connect(Cheetah::default(), config.clone()).unwrap().open("one").unwrap();
    let near = |answer: &Answer, x: &[i64]| {
        // One linear layer without truncation: off by the linear error bound at most.
        let close = answer.integers.iter().zip(expected(1, x)).all(|(a, b)| a.abs_diff(b) <= 1);
        assert!(close, "{:?} for {:?}", answer.integers, expected(1, x));
    };
    let x = [300, -200, 100, -50];
    let mut client = connect();
    let prepared = client.prepare().unwrap();
    assert!(prepared.bytes[0] > 0 && prepared.offline.client.sent_bytes > 0);
    drop(client);
    let mut client = connect();
    let answer = client.infer_integers(&x).unwrap();
    near(&answer, &x);
    assert!(answer.prepared.is_none() && answer.setup.is_none(), "no base OTs for stored material");
    let answer = client.infer_integers(&x).unwrap();
    near(&answer, &x);
    assert!(answer.prepared.is_some() && answer.setup.is_some());
    let inputs: Vec<Vec<i64>> = (0..3).map(|i| vec![i, 40 * i, -7, 1000]).collect();
    infer_many(&mut client, &inputs, |i, answer| {
        near(&answer, &inputs[i]);
        Ok(())
    })
    .unwrap();
    client.close().unwrap();
    handle.shutdown(Duration::from_secs(2));
    running.join().unwrap();
}
