//! Announcements by the client library over HTTP, and the phases that follow over the protocol.
use crate::common::*;
use std::thread;
use std::time::Duration;
use tacit_client::wire::{Ask, InputId, LinkClass, Reply, Request, Terms};
use tacit_client::{ClientConfig, ClientError, NoticeState, Notices, Standing};
use tacit_graph::Units;
use tacit_ids::MaterialId;

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

fn denied<T>(result: Result<T, ClientError>) -> (u16, String) {
    match result {
        Err(ClientError::Denied { status, why, .. }) => (status, why),
        Err(e) => panic!("not denied, but {e:?}"),
        Ok(_) => panic!("not denied"),
    }
}

#[test]
fn an_input_is_announced_before_there_is_a_connection_and_answered_over_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.cores = 1);
    let [alice, bob] = ["alice", "bob"].map(|who| Notices::of(&server.config(dir.path(), who)).unwrap());
    let chosen = alice.choose(&registry(), Some("one"), None).unwrap();
    assert_eq!((&*chosen.model, &*chosen.backend), ("one", "toy"));
    let (minute, state) = (Some(Duration::from_secs(60)), NoticeState::Announced);
    let noted = alice.announce("one", "toy", 1, minute, minute).unwrap();
    assert_eq!(noted, Standing { name: noted.name, state, inputs: 1, turn: true });
    assert_eq!(alice.state(noted.name, Duration::ZERO).unwrap(), Some(noted));
    assert_eq!(bob.state(noted.name, Duration::ZERO).unwrap(), None, "it is another client's");
    assert!(!bob.take_back(noted.name).unwrap());
    // While the one core is taken, its turn does not come; whoever waits for it hears when it has.
    let mut busy = server.opened(dir.path(), "bob", "one");
    set_up(&mut busy);
    let id = MaterialId::numbered(1);
    assert_eq!(ask(&mut busy, &Request::Prepare { id, folder: None, of: None }), Reply::Go);
    let now = alice.wait_for_turn(noted.name, Duration::from_millis(200)).unwrap().unwrap();
    assert!(!now.turn, "{now:?}");
    assert!(now.state == NoticeState::Announced, "{now:?}");
    let waits = thread::spawn(move || (alice.wait_for_turn(noted.name, Duration::from_secs(3600)), alice));
    drop(busy);
    let (turn, alice) = waits.join().unwrap();
    assert_eq!(turn.unwrap(), Some(noted));
    // No connection of the protocol was needed so far; now there is one.
    let mut client = server.client(dir.path(), "alice", "one");
    let taken = client.take_up(client.again().unwrap(), noted.name).unwrap();
    let answered = client.infer_announced(taken, Units::Network, &X).unwrap();
    assert!(answered.values == expected(1, &X));
    assert!(answered.prepared.is_some());
    assert_eq!(alice.state(noted.name, Duration::ZERO).unwrap(), None, "it has ended");
    assert_eq!(alice.wait_for_turn(noted.name, Duration::from_secs(3600)).unwrap(), None);
}

#[test]
fn a_client_may_come_over_another_link_than_it_announced() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let config = ClientConfig { threads: 8, link: LinkClass::Slow, ..server.config(dir.path(), "alice") };
    let alice = Notices::of(&config).unwrap();
    let announce = |model| alice.announce(model, "toy", 1, None, None).unwrap().name;
    let [same, other] = ["one", "two"].map(announce);
    let mut channel = server.opened(dir.path(), "alice", "one");
    set_up(&mut channel);
    let mut asks = |name, notice| {
        ask(
            &mut channel,
            &Request::Ask(Ask { name: InputId(name), notice: Some(notice), material: None, terms: Terms::default() }),
        )
    };
    assert_eq!(asks(1, same), Reply::Noted { notice_ignored: None });
    let Reply::Noted { notice_ignored: Some(why) } = asks(2, other) else { panic!("another model's is not it") };
    assert!(why.contains("another model"), "{why}");
    let prepare = |of| Request::Prepare { id: MaterialId::numbered(1), folder: None, of: Some(of) };
    let Reply::Refused { reason, .. } = ask(&mut channel, &prepare(other)) else { panic!("prepared") };
    assert!(reason.contains("another model"), "{reason}");
    assert_eq!(ask(&mut channel, &prepare(same)), Reply::Go);
}

#[test]
fn notices_are_taken_back_and_wrong_ones_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.queued_per_client = 2);
    let config = server.config(dir.path(), "alice");
    let alice = Notices::of(&config).unwrap();
    let announce = |model: &str, backend: &str| alice.announce(model, backend, 1, None, None);
    let [first, second] = [(); 2].map(|()| announce("one", "toy").unwrap().name);
    assert_ne!(first, second);
    let (status, why) = denied(announce("one", "toy"));
    assert!(status == 429, "{why}");
    assert!(alice.take_back(first).unwrap());
    assert!(!alice.take_back(first).unwrap());
    assert!(!alice.take_back(InputId(7)).unwrap());
    announce("two", "toy").unwrap();
    assert_eq!(denied(announce("none", "toy")).0, 404);
    assert_eq!(denied(announce("one", "none")).0, 404);
    let year = Some(Duration::from_secs(365 * 86_400));
    assert!(denied(alice.announce("one", "toy", 1, year, None)).1.contains("expected_s"));
    // What is not clear is not chosen.
    let choose = |model, backend| alice.choose(&registry(), model, backend).unwrap_err().to_string();
    assert!(choose(None, None).contains("several models, name one: one, two"));
    assert!(choose(Some("none"), None).contains("no model `none`; there are: one, two"));
    let nobody = tacit_backends::Registry::new(vec![]);
    let none = alice.choose(&nobody, Some("one"), None).unwrap_err().to_string();
    assert!(none.contains("`toy` (this client does not have it)"), "{none}");
    for threads in [0, tacit_client::MAX_THREADS + 1] {
        assert!(matches!(Notices::of(&ClientConfig { threads, ..config.clone() }), Err(ClientError::Usage(_))));
    }
}

#[test]
fn a_server_that_is_not_there_or_has_no_such_interface_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| config.max_control = 0);
    let mut config = server.config(dir.path(), "alice");
    let error_text = |config: &ClientConfig| {
        let notices = Notices::of(config).unwrap();
        notices.announce("one", "toy", 1, None, None).unwrap_err().to_string()
    };
    let silent = error_text(&config);
    assert!(silent.contains("/v1/inputs"), "{silent}");
    assert!(silent.contains(&server.address), "{silent}");
    drop(server);
    let absent = error_text(&config);
    assert!(absent.contains("/v1/inputs"), "{absent}");
    assert!(absent.contains(&config.address), "{absent}");
    config.address = "nonsense".into();
    assert!(Notices::of(&config).is_err());
}
