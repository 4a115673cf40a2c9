//! Which phases start when: one at a time where there is one core, in the policy's order, and nothing is left
//! of what nobody wants any more.
use crate::common::*;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tacit_client::wire::{
    Announce, Ask, Deadline, InputId, MAX_REPLY_BYTES, REPLY, REQUEST, Reply, Request, Terms, recv_reply, send,
};
use tacit_client::{Client, ClientError};
use tacit_graph::Units;
use tacit_ids::{FolderId, MaterialId};
use tacit_net::{Channel, Tag};
use tacit_serve::ServerConfig;
use tacit_store::{Store, StoreError};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const PAD: Tag = Tag::new(0xf101, "toy pad");

/// One core, whatever the machine.
fn one_core(policy: &str) -> impl FnOnce(&mut ServerConfig) {
    let policy = policy.parse().unwrap();
    move |config| {
        config.cores = 1;
        config.policy = policy;
        config.memory_per_client = 16;
        config.sign_of_life = Duration::from_millis(50);
    }
}

/// A connection that has its keys.
fn ready(server: &Running, dir: &Path, who: &str) -> Channel {
    let mut channel = server.opened(dir, who, "one");
    set_up(&mut channel);
    channel
}

fn prepare(id: u64, input: Option<u64>) -> Request {
    Request::Prepare { id: MaterialId::numbered(id), folder: None, of: input.map(InputId) }
}

fn asking(name: u64, notice: Option<u64>) -> Request {
    Request::Ask(Ask { name: InputId(name), notice: notice.map(InputId), material: None, terms: Terms::default() })
}

fn announcing(name: u64) -> Request {
    Request::Announce(Announce { name: InputId(name), expected_ms: Some(1000), ttl_ms: None })
}

fn noted(reply: Reply) -> Option<String> {
    match reply {
        Reply::Noted { notice_ignored } => notice_ignored,
        other => panic!("not noted: {other:?}"),
    }
}

fn refused(reply: Reply) -> String {
    match reply {
        Reply::Refused { reason, .. } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// The next answer that says more than that the server lives.
fn turn(channel: &mut Channel) -> Reply {
    loop {
        match recv_reply(channel).unwrap() {
            Reply::Waiting { .. } => {}
            reply => return reply,
        }
    }
}

/// Nothing but signs of life has come, for as long as a job takes to start many times over.
fn still_waits(channel: &mut Channel) {
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(10));
        if let Some(reply) = channel.try_recv(REPLY, MAX_REPLY_BYTES).unwrap() {
            // The second variant with a number in it; anything else has started or ended.
            let waiting = postcard::to_stdvec(&Reply::Waiting { queued: 0 }).unwrap();
            assert_eq!(reply[0], waiting[0], "it does not wait any more");
        }
    }
}

/// The client's part of the toy's offline phase, which has begun.
fn finish_offline(channel: &mut Channel) {
    channel.send(PAD, &[1; 8]).unwrap();
    channel.flush().unwrap();
    assert!(matches!(recv_reply(channel).unwrap(), Reply::Done { .. }));
}

#[test]
fn a_job_waits_for_a_core_and_its_client_hears_that_the_server_lives() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let [mut first, mut second] = ["alice", "bob"].map(|who| ready(&server, dir.path(), who));
    assert_eq!(ask(&mut first, &prepare(1, None)), Reply::Go);
    send(&mut second, REQUEST, &prepare(2, None)).unwrap();
    assert_eq!(recv_reply(&mut second).unwrap(), Reply::Waiting { queued: 1 });
    still_waits(&mut second);
    // What needs no core is answered meanwhile.
    let mut third = server.greeted(dir.path(), "bob");
    assert!(matches!(ask(&mut third, &Request::List), Reply::Models(_)));
    finish_offline(&mut first);
    assert_eq!(turn(&mut second), Reply::Go);
    // A client that leaves with a core gives it back.
    send(&mut first, REQUEST, &prepare(3, None)).unwrap();
    drop(second);
    assert_eq!(turn(&mut first), Reply::Go);
    finish_offline(&mut first);
}

#[test]
fn whoever_leaves_the_queue_leaves_nothing_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let [mut first, second, mut third] = ["alice", "bob", "bob"].map(|who| ready(&server, dir.path(), who));
    assert_eq!(ask(&mut first, &prepare(1, None)), Reply::Go);
    let mut second = second;
    send(&mut second, REQUEST, &prepare(2, None)).unwrap();
    assert!(matches!(recv_reply(&mut second).unwrap(), Reply::Waiting { .. }));
    send(&mut third, REQUEST, &prepare(3, None)).unwrap();
    drop(second);
    wait_until("the second has left", || server.handle.connections() == 2);
    finish_offline(&mut first);
    assert_eq!(turn(&mut third), Reply::Go);
    finish_offline(&mut third);
}

#[test]
fn a_request_ends_with_its_time_and_its_material_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let [mut holder, mut late] = ["alice", "bob"].map(|who| ready(&server, dir.path(), who));
    let terms = Terms { timeout_ms: Some(100), deadline: Deadline::Interactive };
    let request = Request::Ask(Ask { name: InputId(7), notice: None, material: None, terms });
    assert_eq!(ask(&mut holder, &prepare(1, None)), Reply::Go);
    assert_eq!(noted(ask(&mut late, &request)), None);
    send(&mut late, REQUEST, &prepare(2, Some(7))).unwrap();
    assert!(refused(turn(&mut late)).contains("time for its answer is over"));
    assert!(refused(ask(&mut late, &prepare(3, Some(7)))).contains("under this name"), "it has ended");
    finish_offline(&mut holder);
    // The name is free again, and so is the core.
    assert_eq!(noted(ask(&mut late, &asking(7, None))), None);
    assert!(refused(ask(&mut late, &asking(7, None))).contains("in use"));
    assert_eq!(turn_of(&mut late, &prepare(4, Some(7))), Reply::Go);
    finish_offline(&mut late);
    // Taken back after its offline phase: the material is gone.
    assert_eq!(noted(ask(&mut late, &Request::Cancel { name: InputId(7) })), None);
    let id = Some(MaterialId::numbered(4));
    assert!(refused(ask(&mut late, &Request::Infer { id, of: Some(InputId(7)) })).contains("under this name"));
    assert!(refused(ask(&mut late, &Request::Infer { id, of: None })).contains("does not exist"));
}

/// Alice has one material in stock, Bob has the one core.
fn one_in_stock_and_the_core_taken(server: &Running, dir: &Path) -> (Client, MaterialId, Channel) {
    let mut alice = server.client(dir, "alice", "one");
    let id = alice.prepare().unwrap().id;
    let mut bob = ready(server, dir, "bob");
    assert_eq!(turn_of(&mut bob, &prepare(1, None)), Reply::Go);
    (alice, id, bob)
}

/// Whether one input with its material waits for the core. The server is asked and not the folder: whoever
/// picks material to see whether somebody has it in hand has it in hand, and the client takes other material.
fn one_waits(server: &Running, dir: &Path) -> bool {
    value(&scraped(server, dir), "tacit_jobs{name=\"ready\"}") == 1
}

#[test]
fn an_input_whose_time_is_over_costs_no_stock() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let (mut alice, id, mut bob) = one_in_stock_and_the_core_taken(&server, dir.path());
    let usual = Terms::default();
    alice.set_terms(Terms { timeout_ms: Some(100), ..usual });
    for _ in 0..2 {
        let error = alice.infer(&X).unwrap_err().to_string();
        assert!(error.contains("time for its answer is over"), "{error}");
    }
    alice.set_terms(usual);
    finish_offline(&mut bob);
    assert_eq!(alice.stored().unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>(), [id]);
    // Nor does one whose client goes while it waits.
    assert_eq!(turn_of(&mut bob, &prepare(2, None)), Reply::Go);
    let closer = alice.closer();
    let waiting = thread::spawn(move || alice.infer(&X).unwrap_err());
    wait_until("she waits", || one_waits(&server, dir.path()));
    closer.close();
    waiting.join().unwrap();
    wait_until("she is gone", || server.handle.connections() == 1);
    finish_offline(&mut bob);
    let mut again = server.client(dir.path(), "alice", "one");
    assert!(again.infer(&X).unwrap().prepared.is_none(), "it is as good as it was");
}

#[test]
fn stock_that_goes_while_its_input_waits_ends_the_input_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let (mut alice, id, mut bob) = one_in_stock_and_the_core_taken(&server, dir.path());
    let waiting = thread::spawn(move || alice.infer(&X).unwrap_err());
    wait_until("she waits", || one_waits(&server, dir.path()));
    let store = Store::open_existing(&dir.path().join("alice-material"), None).unwrap();
    store.discard(&[id], None).unwrap();
    finish_offline(&mut bob);
    let error = waiting.join().unwrap();
    assert!(matches!(error, ClientError::Store(StoreError::Burnt(burnt)) if burnt == id), "{error}");
    assert_eq!(turn_of(&mut bob, &prepare(2, None)), Reply::Go, "the core is free");
}

/// Alice has made her material, Bob waits behind her for the one core.
fn one_made_and_one_waits(server: &Running, dir: &Path) -> [Channel; 2] {
    let [mut alice, mut bob] = ["alice", "bob"].map(|who| ready(server, dir, who));
    assert_eq!(noted(ask(&mut alice, &asking(1, None))), None);
    assert_eq!(turn_of(&mut alice, &prepare(1, Some(1))), Reply::Go);
    assert_eq!(noted(ask(&mut bob, &asking(2, None))), None);
    send(&mut bob, REQUEST, &prepare(2, Some(2))).unwrap();
    assert!(matches!(recv_reply(&mut bob).unwrap(), Reply::Waiting { .. }));
    finish_offline(&mut alice);
    [alice, bob]
}

#[test]
fn a_core_is_kept_for_a_client_between_its_phases() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| {
        one_core("fcfs")(config);
        config.handover_timeout = Duration::from_secs(100);
    });
    let [mut alice, mut bob] = one_made_and_one_waits(&server, dir.path());
    // First come, first served: the core is idle until she has come.
    still_waits(&mut bob);
    let infer = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(1)) };
    assert_eq!(turn_of(&mut alice, &infer), Reply::Go);
    still_waits(&mut bob);
    drop(alice);
    assert_eq!(turn(&mut bob), Reply::Go);
    finish_offline(&mut bob);
    // One that leaves instead of coming takes its place along.
    let mut third = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut third, &asking(3, None))), None);
    send(&mut third, REQUEST, &prepare(3, Some(3))).unwrap();
    assert!(matches!(recv_reply(&mut third).unwrap(), Reply::Waiting { .. }));
    drop(bob);
    assert_eq!(turn(&mut third), Reply::Go);
}

#[test]
fn a_core_is_not_kept_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |config| {
        one_core("fcfs")(config);
        config.handover_timeout = Duration::from_millis(1);
    });
    let [mut alice, mut bob] = one_made_and_one_waits(&server, dir.path());
    assert_eq!(turn(&mut bob), Reply::Go);
    // Her material is as good as it was.
    let infer = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(1)) };
    send(&mut alice, REQUEST, &infer).unwrap();
    still_waits(&mut alice);
    finish_offline(&mut bob);
    assert_eq!(turn(&mut alice), Reply::Go);
}

fn turn_of(channel: &mut Channel, request: &Request) -> Reply {
    send(channel, REQUEST, request).unwrap();
    turn(channel)
}

#[test]
fn a_notice_makes_the_material_of_the_request_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("adaptive"));
    let mut channel = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut channel, &announcing(1))), None);
    assert_eq!(turn_of(&mut channel, &prepare(1, Some(1))), Reply::Go);
    finish_offline(&mut channel);
    assert_eq!(noted(ask(&mut channel, &asking(2, Some(1)))), None, "it helps");
    let wrong = Request::Infer { id: Some(MaterialId::numbered(9)), of: Some(InputId(2)) };
    assert!(refused(turn_of(&mut channel, &wrong)).contains("not the material of that input"));
    // Whoever comes with something else has spoilt it.
    let right = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(2)) };
    assert!(refused(ask(&mut channel, &right)).contains("under this name"));
    // The request comes first, and then whoever makes the material that was announced.
    assert_eq!(noted(ask(&mut channel, &announcing(6))), None);
    assert_eq!(noted(ask(&mut channel, &asking(7, Some(6)))), None);
    assert_eq!(turn_of(&mut channel, &prepare(6, Some(6))), Reply::Go);
    finish_offline(&mut channel);
    assert!(refused(turn_of(&mut channel, &prepare(8, Some(7)))).contains("another phase"), "it is made already");
    let why = noted(ask(&mut channel, &asking(3, Some(1)))).unwrap();
    assert!(why.contains("no such notice"), "{why}");
    let mut other = ready(&server, dir.path(), "bob");
    assert_eq!(noted(ask(&mut channel, &announcing(4))), None);
    let why = noted(ask(&mut other, &asking(5, Some(4)))).unwrap();
    assert!(why.contains("no such notice"), "another client's notice is none: {why}");
}

#[test]
fn announced_inputs_are_answered_with_what_was_made_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("adaptive"));
    let mut client = server.client(dir.path(), "alice", "one");
    let early = client.announce(Some(Duration::from_secs(1))).unwrap();
    wait_until("its material is made", || early.is_settled());
    let answer = client.infer_announced(early, Units::Network, &X).unwrap();
    assert_eq!(answer.values, expected(1, &X));
    assert!(answer.prepared.is_some());
    // Asked before its material is made, and one that is never asked for.
    let (late, unused) = (client.announce(None).unwrap(), client.announce(None).unwrap());
    assert_eq!(client.infer_announced(late, Units::Network, &X).unwrap().values, expected(1, &X));
    drop(unused);
    wait_until("the unused one is withdrawn", || server.handle.connections() == 1);
    assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    // Over a connection that was there before; not over one that has another model open.
    let mut there = client.again().unwrap();
    there.setup().unwrap();
    let over = client.announce_over(there, None).unwrap();
    assert_eq!(client.infer_announced(over, Units::Network, &X).unwrap().values, expected(1, &X));
    let other = server.client(dir.path(), "alice", "two");
    let why = client.announce_over(other, None).err().expect("its material is another model's").to_string();
    assert!(why.contains("another client or model"), "{why}");
}

#[test]
fn what_a_notice_made_on_disk_is_there_for_its_client_that_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let (folder, id) = (FolderId([3; 16]), MaterialId::numbered(1));
    let mut before = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut before, &announcing(1))), None);
    let request = Request::Prepare { id, folder: Some(folder), of: Some(InputId(1)) };
    assert_eq!(turn_of(&mut before, &request), Reply::Go);
    finish_offline(&mut before);
    drop(before);
    wait_until("she is gone", || server.handle.connections() == 0);
    let mut after = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut after, &asking(2, Some(1)))), None, "the notice holds");
    assert_eq!(turn_of(&mut after, &Request::Infer { id: Some(id), of: Some(InputId(2)) }), Reply::Go);
}

#[test]
fn a_fair_policy_lets_others_pass_a_flood() {
    for (policy, expected) in [("fcfs", [0, 1, 2, 3]), ("fcfs+fair", [3, 0, 1, 2])] {
        let dir = tempfile::tempdir().unwrap();
        let server = Running::start(dir.path(), one_core(policy));
        let mut holder = ready(&server, dir.path(), "alice");
        // Jobs that take their time, so that a client's earlier ones weigh something.
        for id in [100, 101] {
            assert_eq!(turn_of(&mut holder, &prepare(id, None)), Reply::Go);
            thread::sleep(Duration::from_millis(500));
            finish_offline(&mut holder);
        }
        assert_eq!(turn_of(&mut holder, &prepare(102, None)), Reply::Go);
        // Three of hers, then one of his, all behind the one that runs.
        let mut queued: Vec<Channel> =
            ["alice", "alice", "alice", "bob"].iter().map(|who| ready(&server, dir.path(), who)).collect();
        for (i, channel) in queued.iter_mut().enumerate() {
            send(channel, REQUEST, &prepare(i as u64, None)).unwrap();
            assert!(matches!(recv_reply(channel).unwrap(), Reply::Waiting { .. }));
        }
        finish_offline(&mut holder);
        let mut order = Vec::new();
        for _ in 0..queued.len() {
            let mut started = None;
            wait_until("one starts", || {
                started = queued.iter_mut().position(|channel| {
                    let reply = channel.try_recv(REPLY, MAX_REPLY_BYTES).unwrap();
                    reply == Some(postcard::to_stdvec(&Reply::Go).unwrap())
                });
                started.is_some()
            });
            let number = started.unwrap();
            finish_offline(&mut queued[number]);
            order.push(number);
        }
        assert_eq!(order, expected, "{policy}");
    }
}

#[test]
fn a_client_has_so_many_inputs_under_way_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |c| c.queued_per_client = 2);
    let mut channel = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut channel, &asking(1, None))), None);
    assert_eq!(noted(ask(&mut channel, &announcing(2))), None);
    assert!(refused(ask(&mut channel, &asking(3, None))).contains("limit 2"));
    assert!(refused(ask(&mut channel, &prepare(1, None))).contains("limit 2"), "stock counts as well");
    let mut other = ready(&server, dir.path(), "bob");
    assert_eq!(noted(ask(&mut other, &asking(1, None))), None, "names and limits are each client's own");
    assert_eq!(noted(ask(&mut channel, &Request::Cancel { name: InputId(2) })), None);
    assert_eq!(noted(ask(&mut channel, &asking(3, None))), None);
    // Her last connection takes all of it along.
    drop(channel);
    wait_until("she is gone", || server.handle.connections() == 1);
    let mut again = ready(&server, dir.path(), "alice");
    assert_eq!(noted(ask(&mut again, &asking(1, None))), None);
    assert_eq!(noted(ask(&mut again, &asking(2, None))), None);
}

fn refill(id: u64, held: u32, most: u32) -> Request {
    Request::Refill { id: MaterialId::numbered(id), folder: FolderId([1; 16]), held, most }
}

#[test]
fn stock_is_filled_when_nobody_waits_and_as_its_client_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), one_core("fcfs"));
    let [mut first, mut second, mut other, mut asks] =
        ["alice", "bob", "bob", "alice"].map(|who| ready(&server, dir.path(), who));
    // One for a client of whom nothing is known.
    assert_eq!(ask(&mut first, &refill(1, 0, 8)), Reply::Go);
    // The core is taken; and whoever waits for an input comes before stock, though it came later.
    send(&mut second, REQUEST, &refill(2, 0, 8)).unwrap();
    assert_eq!(recv_reply(&mut second).unwrap(), Reply::Waiting { queued: 0 });
    send(&mut other, REQUEST, &prepare(3, None)).unwrap();
    assert_eq!(recv_reply(&mut other).unwrap(), Reply::Waiting { queued: 1 });
    finish_offline(&mut first);
    assert_eq!(turn(&mut other), Reply::Go);
    still_waits(&mut second);
    finish_offline(&mut other);
    assert_eq!(turn(&mut second), Reply::Go);
    finish_offline(&mut second);
    // It has what such a client needs, until one of its inputs is answered: asking alone brings nothing.
    send(&mut first, REQUEST, &refill(4, 1, 2)).unwrap();
    for name in 1..9 {
        assert_eq!(noted(ask(&mut asks, &asking(name, None))), None);
    }
    still_waits(&mut first);
    let mut client = server.client(dir.path(), "alice", "one");
    client.infer(&X).unwrap();
    assert_eq!(turn(&mut first), Reply::Go);
    finish_offline(&mut first);
    // No more than it may hold, however often that is.
    send(&mut first, REQUEST, &refill(5, 2, 2)).unwrap();
    (0..7).for_each(|_| drop(client.infer(&X).unwrap()));
    still_waits(&mut first);
    // Who leaves while it stands ready leaves nothing.
    drop((first, asks, client));
    assert_eq!(ask(&mut other, &prepare(6, None)), Reply::Go);
}
