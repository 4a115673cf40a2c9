//! When phases start: on one core one at a time, in the policy's order. What cancelled inputs leave behind.
use crate::common::*;
use std::thread;
use std::time::Duration;
use tacit_client::wire::{
    Announce, Ask, Deadline, InputId, MAX_REPLY_BYTES, REPLY, REQUEST, Reply, Request, Terms, recv_reply, send,
};
use tacit_client::{Client, ClientError};
use tacit_graph::Units;
use tacit_ids::{FolderId, MaterialId};
use tacit_net::Channel;
use tacit_serve::ServerConfig;
use tacit_store::{Store, StoreError};

fn one_core(policy: &str) -> impl FnOnce(&mut ServerConfig) {
    let policy = policy.parse().unwrap();
    move |config| {
        config.cores = 1;
        config.policy = policy;
        config.memory_per_client = 16;
        config.sign_of_life = Duration::from_millis(50);
    }
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

fn check_noted(channel: &mut Channel, request: &Request) {
    assert_eq!(noted(ask(channel, request)), None);
}

/// Checks that for 300 ms, in which a job would start, nothing but signs of life comes.
fn check_still_waits(channel: &mut Channel) {
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(10));
        if let Some(reply) = channel.try_recv(REPLY, MAX_REPLY_BYTES).unwrap() {
            // Replies start with the number of their variant.
            let waiting = postcard::to_stdvec(&Reply::Waiting { queued: 0 }).unwrap();
            assert_eq!(reply[0], waiting[0]);
        }
    }
}

/// Sends a request and returns the next reply that is not a sign of life.
fn request_turn(channel: &mut Channel, request: &Request) -> Reply {
    send(channel, REQUEST, request).unwrap();
    next_reply(channel)
}

/// Sends a request that must wait in the queue.
fn queue(channel: &mut Channel, request: &Request) {
    send(channel, REQUEST, request).unwrap();
    assert!(matches!(recv_reply(channel).unwrap(), Reply::Waiting { .. }));
}

#[test]
fn queued_job_gets_signs_of_life() {
    let server = Running::start(one_core("fcfs"));
    let [mut first, mut second] = ["alice", "bob"].map(|who| server.ready_channel(who));
    assert_eq!(ask(&mut first, &prepare(1, None)), Reply::Go);
    send(&mut second, REQUEST, &prepare(2, None)).unwrap();
    assert_eq!(recv_reply(&mut second).unwrap(), Reply::Waiting { queued: 1 });
    check_still_waits(&mut second);
    // A list of models needs no core.
    assert!(matches!(ask(&mut server.greeted("bob"), &Request::List), Reply::Models(_)));
    finish_offline(&mut first);
    assert_eq!(next_reply(&mut second), Reply::Go);
    // A client that leaves frees its core.
    send(&mut first, REQUEST, &prepare(3, None)).unwrap();
    drop(second);
    assert_eq!(next_reply(&mut first), Reply::Go);
    finish_offline(&mut first);
}

#[test]
fn disconnect_leaves_queue_clean() {
    let server = Running::start(one_core("fcfs"));
    let [mut first, mut second, mut third] = ["alice", "bob", "bob"].map(|who| server.ready_channel(who));
    assert_eq!(ask(&mut first, &prepare(1, None)), Reply::Go);
    queue(&mut second, &prepare(2, None));
    send(&mut third, REQUEST, &prepare(3, None)).unwrap();
    drop(second);
    wait_until("the second has left", || server.handle.connections() == 2);
    finish_offline(&mut first);
    assert_eq!(next_reply(&mut third), Reply::Go);
    finish_offline(&mut third);
}

#[test]
fn timeout_ends_request_and_material() {
    let server = Running::start(one_core("fcfs"));
    let [mut holder, mut late] = ["alice", "bob"].map(|who| server.ready_channel(who));
    let terms = Terms { timeout_ms: Some(100), deadline: Deadline::Interactive };
    let request = Request::Ask(Ask { name: InputId(7), notice: None, material: None, terms });
    assert_eq!(ask(&mut holder, &prepare(1, None)), Reply::Go);
    check_noted(&mut late, &request);
    send(&mut late, REQUEST, &prepare(2, Some(7))).unwrap();
    check_refused(&next_reply(&mut late), "time for its answer is over");
    check_refused(&ask(&mut late, &prepare(3, Some(7))), "under this name");
    finish_offline(&mut holder);
    // The name and the core are free again.
    check_noted(&mut late, &asking(7, None));
    check_refused(&ask(&mut late, &asking(7, None)), "in use");
    assert_eq!(request_turn(&mut late, &prepare(4, Some(7))), Reply::Go);
    finish_offline(&mut late);
    // A cancelled input takes its material along.
    check_noted(&mut late, &Request::Cancel { name: InputId(7) });
    let id = Some(MaterialId::numbered(4));
    check_refused(&ask(&mut late, &Request::Infer { id, of: Some(InputId(7)) }), "under this name");
    check_refused(&ask(&mut late, &Request::Infer { id, of: None }), "does not exist");
}

/// Alice has one material in stock, Bob has the one core.
fn one_in_stock_and_the_core_taken(server: &Running) -> (Client, MaterialId, Channel) {
    let mut alice = server.client("alice", "one");
    let id = alice.prepare().unwrap().id;
    let mut bob = server.ready_channel("bob");
    assert_eq!(request_turn(&mut bob, &prepare(1, None)), Reply::Go);
    (alice, id, bob)
}

/// Whether one input with its material waits for the core. A claim in the folder would take the material.
fn one_waits(server: &Running) -> bool {
    value(&scraped(server), "tacit_jobs{name=\"ready\"}") == 1
}

#[test]
fn timed_out_input_costs_no_stock() {
    let server = Running::start(one_core("fcfs"));
    let (mut alice, id, mut bob) = one_in_stock_and_the_core_taken(&server);
    let usual = Terms::default();
    alice.set_terms(Terms { timeout_ms: Some(100), ..usual });
    for _ in 0..2 {
        let error = alice.infer(&X).unwrap_err().to_string();
        assert!(error.contains("time for its answer is over"), "{error}");
    }
    alice.set_terms(usual);
    finish_offline(&mut bob);
    assert_eq!(alice.list_stored().unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>(), [id]);
    // A client that leaves while its input waits loses no stock.
    assert_eq!(request_turn(&mut bob, &prepare(2, None)), Reply::Go);
    let closer = alice.closer();
    let waiting = thread::spawn(move || alice.infer(&X).unwrap_err());
    wait_until("alice waits", || one_waits(&server));
    closer.close();
    waiting.join().unwrap();
    wait_until("alice is gone", || server.handle.connections() == 1);
    finish_offline(&mut bob);
    let mut again = server.client("alice", "one");
    assert!(again.infer(&X).unwrap().prepared.is_none());
}

#[test]
fn discarded_stock_ends_its_waiting_input() {
    let server = Running::start(one_core("fcfs"));
    let (mut alice, id, mut bob) = one_in_stock_and_the_core_taken(&server);
    let waiting = thread::spawn(move || alice.infer(&X).unwrap_err());
    wait_until("alice waits", || one_waits(&server));
    let store = Store::open_existing(&server.dir.join("alice-material"), None).unwrap();
    store.discard(&[id], None).unwrap();
    finish_offline(&mut bob);
    let error = waiting.join().unwrap();
    assert!(matches!(error, ClientError::Store(StoreError::Burnt(burnt)) if burnt == id), "{error}");
    assert_eq!(request_turn(&mut bob, &prepare(2, None)), Reply::Go);
}

/// Alice has made her material, Bob waits behind her for the one core.
fn one_made_and_one_waits(server: &Running) -> [Channel; 2] {
    let [mut alice, mut bob] = ["alice", "bob"].map(|who| server.ready_channel(who));
    check_noted(&mut alice, &asking(1, None));
    assert_eq!(request_turn(&mut alice, &prepare(1, Some(1))), Reply::Go);
    check_noted(&mut bob, &asking(2, None));
    queue(&mut bob, &prepare(2, Some(2)));
    finish_offline(&mut alice);
    [alice, bob]
}

#[test]
fn keeps_core_between_phases() {
    let server = Running::start(|config| {
        one_core("fcfs")(config);
        config.handover_timeout = Duration::from_secs(100);
    });
    let [mut alice, mut bob] = one_made_and_one_waits(&server);
    // By `fcfs` the core is idle until Alice comes.
    check_still_waits(&mut bob);
    let infer = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(1)) };
    assert_eq!(request_turn(&mut alice, &infer), Reply::Go);
    check_still_waits(&mut bob);
    drop(alice);
    assert_eq!(next_reply(&mut bob), Reply::Go);
    finish_offline(&mut bob);
    // A client that leaves between its phases frees the core.
    let mut third = server.ready_channel("alice");
    check_noted(&mut third, &asking(3, None));
    queue(&mut third, &prepare(3, Some(3)));
    drop(bob);
    assert_eq!(next_reply(&mut third), Reply::Go);
}

#[test]
fn gives_up_kept_core_after_timeout() {
    let server = Running::start(|config| {
        one_core("fcfs")(config);
        config.handover_timeout = Duration::from_millis(1);
    });
    let [mut alice, mut bob] = one_made_and_one_waits(&server);
    assert_eq!(next_reply(&mut bob), Reply::Go);
    // Alice's material remains valid.
    let infer = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(1)) };
    send(&mut alice, REQUEST, &infer).unwrap();
    check_still_waits(&mut alice);
    finish_offline(&mut bob);
    assert_eq!(next_reply(&mut alice), Reply::Go);
}

#[test]
fn request_uses_material_of_its_notice() {
    let server = Running::start(one_core("adaptive"));
    let mut channel = server.ready_channel("alice");
    check_noted(&mut channel, &announcing(1));
    assert_eq!(request_turn(&mut channel, &prepare(1, Some(1))), Reply::Go);
    finish_offline(&mut channel);
    check_noted(&mut channel, &asking(2, Some(1)));
    let wrong = Request::Infer { id: Some(MaterialId::numbered(9)), of: Some(InputId(2)) };
    check_refused(&request_turn(&mut channel, &wrong), "not the material of that input");
    // A request with other material ends the input.
    let right = Request::Infer { id: Some(MaterialId::numbered(1)), of: Some(InputId(2)) };
    check_refused(&ask(&mut channel, &right), "under this name");
    // The request comes before the announced material is made.
    check_noted(&mut channel, &announcing(6));
    check_noted(&mut channel, &asking(7, Some(6)));
    assert_eq!(request_turn(&mut channel, &prepare(6, Some(6))), Reply::Go);
    finish_offline(&mut channel);
    check_refused(&request_turn(&mut channel, &prepare(8, Some(7))), "another phase");
    check_contains(&noted(ask(&mut channel, &asking(3, Some(1)))).unwrap(), &["no such notice"]);
    let mut other = server.ready_channel("bob");
    check_noted(&mut channel, &announcing(4));
    check_contains(&noted(ask(&mut other, &asking(5, Some(4)))).unwrap(), &["no such notice"]);
}

#[test]
fn announced_inputs_use_their_material() {
    let server = Running::start(one_core("adaptive"));
    let mut client = server.client("alice", "one");
    let early = client.announce(Some(Duration::from_secs(1))).unwrap();
    wait_until("its material is made", || early.is_settled());
    let answer = client.infer_announced(early, Units::Network, &X).unwrap();
    assert_eq!(answer.values, expected(1, &X));
    assert!(answer.prepared.is_some());
    // An input that is asked for before its material is made, and one that is never asked for.
    let (late, unused) = (client.announce(None).unwrap(), client.announce(None).unwrap());
    assert_eq!(client.infer_announced(late, Units::Network, &X).unwrap().values, expected(1, &X));
    drop(unused);
    wait_until("the unused one is withdrawn", || server.handle.connections() == 1);
    check_answer(&mut client, 1);
    // Announcements use an open connection, but not one for another model.
    let mut there = client.connect_again().unwrap();
    there.setup().unwrap();
    let over = client.announce_over(there, None).unwrap();
    assert_eq!(client.infer_announced(over, Units::Network, &X).unwrap().values, expected(1, &X));
    let other = server.client("alice", "two");
    check_contains(&client.announce_over(other, None).err().unwrap().to_string(), &["another client or model"]);
}

#[test]
fn stored_material_of_notice_outlives_connection() {
    let server = Running::start(one_core("fcfs"));
    let (folder, id) = (FolderId([3; 16]), MaterialId::numbered(1));
    let mut before = server.ready_channel("alice");
    check_noted(&mut before, &announcing(1));
    let request = Request::Prepare { id, folder: Some(folder), of: Some(InputId(1)) };
    assert_eq!(request_turn(&mut before, &request), Reply::Go);
    finish_offline(&mut before);
    drop(before);
    wait_until("alice is gone", || server.handle.connections() == 0);
    let mut after = server.ready_channel("alice");
    check_noted(&mut after, &asking(2, Some(1)));
    assert_eq!(request_turn(&mut after, &Request::Infer { id: Some(id), of: Some(InputId(2)) }), Reply::Go);
}

#[test]
fn fair_policy_passes_a_flood() {
    for (policy, expected) in [("fcfs", [0, 1, 2, 3]), ("fcfs+fair", [3, 0, 1, 2])] {
        let server = Running::start(one_core(policy));
        let mut holder = server.ready_channel("alice");
        // Jobs of half a second, which fairness holds against Alice.
        for id in [100, 101] {
            assert_eq!(request_turn(&mut holder, &prepare(id, None)), Reply::Go);
            thread::sleep(Duration::from_millis(500));
            finish_offline(&mut holder);
        }
        assert_eq!(request_turn(&mut holder, &prepare(102, None)), Reply::Go);
        // Three jobs of Alice and one of Bob wait for the one that runs.
        let mut queued: Vec<Channel> =
            ["alice", "alice", "alice", "bob"].iter().map(|who| server.ready_channel(who)).collect();
        for (i, channel) in queued.iter_mut().enumerate() {
            queue(channel, &prepare(i as u64, None));
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
fn limits_pending_inputs_per_client() {
    let server = Running::start(|c| c.queued_per_client = 2);
    let mut channel = server.ready_channel("alice");
    check_noted(&mut channel, &asking(1, None));
    check_noted(&mut channel, &announcing(2));
    check_refused(&ask(&mut channel, &asking(3, None)), "limit 2");
    check_refused(&ask(&mut channel, &prepare(1, None)), "limit 2");
    let mut other = server.ready_channel("bob");
    check_noted(&mut other, &asking(1, None));
    check_noted(&mut channel, &Request::Cancel { name: InputId(2) });
    check_noted(&mut channel, &asking(3, None));
    // The inputs of a client end with its last connection.
    drop(channel);
    wait_until("alice is gone", || server.handle.connections() == 1);
    let mut again = server.ready_channel("alice");
    check_noted(&mut again, &asking(1, None));
    check_noted(&mut again, &asking(2, None));
}

fn refill(id: u64, held: u32, most: u32) -> Request {
    Request::Refill { id: MaterialId::numbered(id), folder: FolderId([1; 16]), held, most }
}

#[test]
fn refills_stock_when_idle() {
    let server = Running::start(one_core("fcfs"));
    let [mut first, mut second, mut other, mut asks] =
        ["alice", "bob", "bob", "alice"].map(|who| server.ready_channel(who));
    // An unknown client gets one material in stock.
    assert_eq!(ask(&mut first, &refill(1, 0, 8)), Reply::Go);
    // An input that waits comes before stock that has waited for longer.
    send(&mut second, REQUEST, &refill(2, 0, 8)).unwrap();
    assert_eq!(recv_reply(&mut second).unwrap(), Reply::Waiting { queued: 0 });
    send(&mut other, REQUEST, &prepare(3, None)).unwrap();
    assert_eq!(recv_reply(&mut other).unwrap(), Reply::Waiting { queued: 1 });
    finish_offline(&mut first);
    assert_eq!(next_reply(&mut other), Reply::Go);
    check_still_waits(&mut second);
    finish_offline(&mut other);
    assert_eq!(next_reply(&mut second), Reply::Go);
    finish_offline(&mut second);
    // The target of the stock grows with answers, not with requests.
    send(&mut first, REQUEST, &refill(4, 1, 2)).unwrap();
    for name in 1..9 {
        check_noted(&mut asks, &asking(name, None));
    }
    check_still_waits(&mut first);
    let mut client = server.client("alice", "one");
    client.infer(&X).unwrap();
    assert_eq!(next_reply(&mut first), Reply::Go);
    finish_offline(&mut first);
    // Stock does not pass the limit of the request.
    send(&mut first, REQUEST, &refill(5, 2, 2)).unwrap();
    (0..7).for_each(|_| drop(client.infer(&X).unwrap()));
    check_still_waits(&mut first);
    // A refill ends with its connection.
    drop((first, asks, client));
    assert_eq!(ask(&mut other, &prepare(6, None)), Reply::Go);
}
