//! Announcements by the client library over HTTP, and the phases that follow over the protocol.
use crate::by_hand::prepare;
use crate::common::*;
use std::thread;
use std::time::Duration;
use tacit_client::wire::{Ask, InputId, LinkClass, Reply, Request, Terms};
use tacit_client::{ClientConfig, ClientError, NoticeState, Notices, Standing};
use tacit_graph::Units;
use tacit_ids::MaterialId;

fn denied<T>(result: Result<T, ClientError>) -> (u16, String) {
    match result {
        Err(ClientError::Denied { status, why, .. }) => (status, why),
        Err(e) => panic!("not denied, but {e:?}"),
        Ok(_) => panic!("not denied"),
    }
}

#[test]
fn announces_input_over_http() {
    let server = Running::start(|config| config.cores = 1);
    let [alice, bob] = ["alice", "bob"].map(|who| Notices::new(&server.config(who)).unwrap());
    let chosen = alice.choose(&registry(), Some("one"), None).unwrap();
    assert_eq!((&*chosen.model, &*chosen.backend), ("one", "toy"));
    let (minute, state) = (Some(Duration::from_secs(60)), NoticeState::Announced);
    let noted = alice.announce("one", "toy", 1, minute, minute).unwrap();
    assert_eq!(noted, Standing { name: noted.name, state, inputs: 1, turn: true });
    assert_eq!(alice.state(noted.name, Duration::ZERO).unwrap(), Some(noted));
    assert_eq!(bob.state(noted.name, Duration::ZERO).unwrap(), None);
    assert!(!bob.take_back(noted.name).unwrap());
    // The turn of an announced input comes when the only core is free.
    let mut busy = server.ready_channel("bob");
    assert_eq!(ask(&mut busy, &prepare(1)), Reply::Go);
    let now = alice.wait_for_turn(noted.name, Duration::from_millis(200)).unwrap().unwrap();
    assert!(!now.turn, "{now:?}");
    assert!(now.state == NoticeState::Announced, "{now:?}");
    let waits = thread::spawn(move || (alice.wait_for_turn(noted.name, Duration::from_secs(3600)), alice));
    drop(busy);
    let (turn, alice) = waits.join().unwrap();
    assert_eq!(turn.unwrap(), Some(noted));
    // The input is asked for over the first connection of the protocol.
    let mut client = server.client("alice", "one");
    let taken = client.take_up(client.connect_again().unwrap(), noted.name).unwrap();
    let answered = client.infer_announced(taken, Units::Network, &X).unwrap();
    assert!(answered.values == expected(1, &X));
    assert!(answered.prepared.is_some());
    assert_eq!(alice.state(noted.name, Duration::ZERO).unwrap(), None);
    assert_eq!(alice.wait_for_turn(noted.name, Duration::from_secs(3600)).unwrap(), None);
}

#[test]
fn notice_holds_for_another_link() {
    let server = Running::start(|_| {});
    let config = ClientConfig { threads: 8, link: LinkClass::Slow, ..server.config("alice") };
    let alice = Notices::new(&config).unwrap();
    let announce = |model| alice.announce(model, "toy", 1, None, None).unwrap().name;
    let [same, other] = ["one", "two"].map(announce);
    let mut channel = server.ready_channel("alice");
    let mut asks = |name, notice| {
        let asking = Ask { name: InputId(name), notice: Some(notice), material: None, terms: Terms::default() };
        ask(&mut channel, &Request::Ask(asking))
    };
    assert_eq!(asks(1, same), Reply::Noted { notice_ignored: None });
    let Reply::Noted { notice_ignored: Some(why) } = asks(2, other) else { panic!("used for another model") };
    assert!(why.contains("another model"), "{why}");
    let prepare_for = |of| Request::Prepare { id: MaterialId::numbered(1), folder: None, of: Some(of) };
    check_refused(&ask(&mut channel, &prepare_for(other)), "another model");
    assert_eq!(ask(&mut channel, &prepare_for(same)), Reply::Go);
}

#[test]
fn cancels_notices_and_refuses_wrong_ones() {
    let server = Running::start(|config| config.queued_per_client = 2);
    let config = server.config("alice");
    let alice = Notices::new(&config).unwrap();
    let announce = |model: &str, backend: &str| alice.announce(model, backend, 1, None, None);
    let [first, second] = [(); 2].map(|()| announce("one", "toy").unwrap().name);
    assert_ne!(first, second);
    let (status, why) = denied(announce("one", "toy"));
    assert_eq!(status, 429, "{why}");
    assert!(alice.take_back(first).unwrap());
    assert!(!alice.take_back(first).unwrap());
    assert!(!alice.take_back(InputId(7)).unwrap());
    announce("two", "toy").unwrap();
    assert_eq!(denied(announce("none", "toy")).0, 404);
    assert_eq!(denied(announce("one", "none")).0, 404);
    let year = Some(Duration::from_secs(365 * 86_400));
    assert!(denied(alice.announce("one", "toy", 1, year, None)).1.contains("expected_s"));
    // Ambiguous and unknown names are not chosen.
    let choose = |model, backend| alice.choose(&registry(), model, backend).unwrap_err().to_string();
    assert!(choose(None, None).contains("several models, name one: one, two"));
    assert!(choose(Some("none"), None).contains("no model `none`; there are: one, two"));
    let nobody = tacit_backends::Registry::new(vec![]);
    let none = alice.choose(&nobody, Some("one"), None).unwrap_err().to_string();
    assert!(none.contains("`toy` (this client does not have it)"), "{none}");
    for threads in [0, tacit_client::MAX_THREADS + 1] {
        assert!(matches!(Notices::new(&ClientConfig { threads, ..config.clone() }), Err(ClientError::Usage(_))));
    }
}

#[test]
fn names_unreachable_control_interface() {
    let dir = Folder::new();
    let server = Running::start_in(&dir, |config| config.max_control = 0);
    let mut config = server.config("alice");
    let error_text = |config: &ClientConfig| {
        let notices = Notices::new(config).unwrap();
        notices.announce("one", "toy", 1, None, None).unwrap_err().to_string()
    };
    check_contains(&error_text(&config), &["/v1/inputs", &server.address]);
    drop(server);
    check_contains(&error_text(&config), &["/v1/inputs", &config.address]);
    config.address = "nonsense".into();
    assert!(Notices::new(&config).is_err());
}
