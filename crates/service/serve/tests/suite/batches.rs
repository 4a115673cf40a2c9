//! Batches between a client and a server: their sizes, their material, and what they cost of a quota.
use crate::by_hand::{infer_with, server_state};
use crate::common::*;
use std::path::Path;
use std::time::Duration;
use tacit_backends::Backend;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::seam::batch_digest;
use tacit_client::wire::{Ask, InputId, PUBLIC, Reply, Request, Terms, public_digest};
use tacit_client::{
    Answer, BatchPart, Client, ClientConfig, ClientError, Connection, NoticeState, Notices, infer_many,
};
use tacit_graph::Units;
use tacit_ids::MaterialId;
use tacit_net::{Channel, Hello, handshake};
use tacit_store::{Binding, Party, Store, StoreError};

fn open_net(config: ClientConfig) -> Client {
    Connection::connect(batching(), config).unwrap().open("net", None).unwrap()
}

fn inputs(count: usize) -> Vec<Vec<f32>> {
    (0..count).map(|i| (0..4).map(|j| ((5 * i + 3 * j) % 9) as f32 / 4.0 - 1.0).collect()).collect()
}

fn check(answer: &Answer, input: &[f32]) {
    let wanted = two_layers().run(input).unwrap();
    let near = answer.values.iter().zip(&wanted).all(|(got, want)| (got - want).abs() < 0.1);
    assert!(near, "{:?} instead of {wanted:?}", answer.values);
}

fn check_all(answers: &[Answer], inputs: &[Vec<f32>]) {
    assert_eq!(answers.len(), inputs.len());
    answers.iter().zip(inputs).for_each(|(answer, input)| check(answer, input));
}

/// Asks for answers, which must come in order.
fn infer_all(client: &mut Client, inputs: &[Vec<f32>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    infer_many(client, Units::Network, inputs, |index, answer| {
        assert_eq!(index, answers.len());
        answers.push(answer);
        Ok(())
    })
    .unwrap();
    answers
}

/// As [`infer_all`], and checks the answers of `net`.
fn answered(client: &mut Client, inputs: &[Vec<f32>]) -> Vec<Answer> {
    let answers = infer_all(client, inputs);
    check_all(&answers, inputs);
    answers
}

#[test]
fn batch_takes_round_trips_of_one_input() {
    let server = serving_batches(|_| {});
    let mut client = open_net(server.config("alice"));
    let single = client.infer(&inputs(1)[0]).unwrap();
    assert_eq!(single.part, BatchPart { index: 0, inputs: 1 });
    let answers = answered(&mut client, &inputs(5));
    for (place, answer) in answers.iter().enumerate() {
        assert_eq!((answer.part, answer.name), (BatchPart { index: place, inputs: 5 }, answers[0].name));
        let rounds = |answer: &Answer| (answer.online.client.rounds, answer.online.server.rounds);
        assert_eq!(rounds(answer), rounds(&single));
        assert_eq!(answer.prepared.unwrap().id, answers[0].prepared.unwrap().id);
    }
    let sent = |answer: &Answer| answer.online.client.sent_bytes;
    assert!(sent(&answers[0]) > sent(&single));
    assert!(sent(&answers[0]) < 5 * sent(&single));
    // The connection goes back to single inputs and keeps its keys.
    let last_answer = client.infer(&inputs(3)[2]).unwrap();
    check(&last_answer, &inputs(3)[2]);
    assert_eq!(last_answer.part, BatchPart { index: 0, inputs: 1 });
    assert!(last_answer.setup.is_none());
    client.close().unwrap();
    server.settle();
    assert_eq!(server.handle.served(), 7);
}

#[test]
fn splits_batches_above_server_limits() {
    let server = serving_batches(|c| c.max_batch = 2);
    let mut client = open_net(server.config("alice"));
    let parts = |answers: &[Answer]| answers.iter().map(|a| [a.part.index, a.part.inputs]).collect::<Vec<_>>();
    assert_eq!(parts(&answered(&mut client, &inputs(5))), [[0, 2], [1, 2], [0, 2], [1, 2], [0, 1]]);
    let error = client.infer_batch(Units::Network, &inputs(3)).unwrap_err().to_string();
    check_contains(&error, &["3 inputs cannot be run as one", "take 2"]);
    check_all(&client.infer_batch(Units::Network, &inputs(2)).unwrap(), &inputs(2));
    client.set_max_batch(1);
    assert_eq!(parts(&answered(&mut client, &inputs(2))), [[0, 1], [0, 1]]);
    // The memory of the server's jobs limits a batch.
    let model = Cheetah.lower(&two_layers(), &"frac_bits=8".parse().unwrap()).unwrap();
    let costs = |batch: usize| model.batched(batch).unwrap().costs();
    let at_server = |batch: usize| {
        let costs = costs(batch);
        costs.offline.server.peak_memory_bytes.max(costs.online.server.peak_memory_bytes)
    };
    let server = serving_batches(|c| c.job_memory = at_server(3));
    let mut client = open_net(server.config("alice"));
    assert_eq!(parts(&answered(&mut client, &inputs(4))), [[0, 3], [1, 3], [2, 3], [0, 1]]);
    // So does half of the client's memory.
    let at_client = |batch: usize| {
        let costs = costs(batch);
        costs.offline.client.peak_memory_bytes.max(costs.online.client.peak_memory_bytes)
    };
    let unlimited = serving_batches(|_| {});
    let granted = |memory| {
        let config = ClientConfig { memory: Some(memory), ..unlimited.config("alice") };
        answered(&mut open_net(config), &inputs(4))[0].part.inputs
    };
    assert_eq!(granted(1 << 40), 4);
    assert!(at_client(2) > 1 << 19, "a megabyte is not enough for two");
    assert_eq!(granted(1 << 20), 1);
    // The toy runs no batches.
    let mut toy = server.client("alice", "one");
    assert_eq!(parts(&infer_all(&mut toy, &inputs(3))), [[0, 1]; 3]);
    assert!(toy.prepare_batch(2).unwrap_err().to_string().contains("take 1"));
}

/// What claims of this material return at client and server.
fn claimed(dir: &Path, id: MaterialId, binding: Binding) -> [Result<(), StoreError>; 2] {
    [("alice-material", Party::Client), ("server-material", Party::Server)]
        .map(|(folder, party)| Store::open(&dir.join(folder), party, None).unwrap().claim(id, binding).map(drop))
}

fn is_burnt(claims: &[Result<(), StoreError>; 2]) -> bool {
    claims.iter().all(|claim| matches!(claim, Err(StoreError::Burnt(_))))
}

#[test]
fn claims_and_burns_batch_as_one() {
    let server = serving_batches(|_| {});
    let mut client = open_net(server.config("alice"));
    let of_one = client.binding();
    let id = client.prepare_batch(3).unwrap().id;
    let binding = client.binding();
    assert_eq!(binding.plan, batch_digest(&of_one.plan, 3), "bound to the size");
    client.close().unwrap();
    let mut client = open_net(server.config("alice"));
    assert_eq!(client.stored_batches().unwrap(), [3]);
    assert!(client.list_stored().unwrap().is_empty(), "material for a single input");
    assert!(client.infer(&inputs(1)[0]).unwrap().prepared.is_some());
    let answers = client.infer_batch(Units::Network, &inputs(3)).unwrap();
    check_all(&answers, &inputs(3));
    assert!(answers.iter().all(|a| a.prepared.is_none() && a.part.inputs == 3), "made anew");
    assert!(client.stored_batches().unwrap().is_empty());
    assert!(is_burnt(&claimed(&server.dir, id, binding)));
    assert!(client.infer_batch(Units::Network, &inputs(3)).unwrap()[0].prepared.is_some());
}

#[test]
fn announces_batch_over_http() {
    let server = serving_batches(|c| c.max_batch = 4);
    let notices = Notices::new(&server.config("alice")).unwrap();
    let noted = notices.announce("net", "cheetah", 3, None, None).unwrap();
    assert_eq!((noted.inputs, noted.state), (3, NoticeState::Announced));
    assert_eq!(notices.state(noted.name, Duration::ZERO).unwrap(), Some(noted));
    for (model, backend, inputs) in [("net", "cheetah", 4), ("one", "toy", 1)] {
        assert_eq!(notices.announce(model, backend, 9, None, None).unwrap().inputs, inputs, "{model}");
    }
    let mut client = open_net(server.config("alice"));
    let maker = |size: usize| {
        let mut maker = client.connect_again().unwrap();
        assert_eq!(maker.ask_batch(size).unwrap(), size);
        maker
    };
    let (maker, other) = (maker(3), maker(2));
    let taken = client.take_up(maker, noted.name).unwrap();
    let (answers, maker) = client.infer_announced_batch(taken, Units::Network, &inputs(3), |_| ()).unwrap();
    assert!(maker.is_some());
    assert!(answers.iter().enumerate().all(|(at, answer)| answer.part == BatchPart { index: at, inputs: 3 }));
    check_all(&answers, &inputs(3));
    wait_until("they are counted", || server.handle.served() == 3);
    // A batch that was announced over a connection answers fewer inputs than announced, but not more.
    let announced = client.announce_over(other, None).unwrap();
    let (answers, _) = client.infer_announced_batch(announced, Units::Network, &inputs(1), |_| ()).unwrap();
    check_all(&answers, &inputs(1));
    let announced = client.announce(None).unwrap();
    let error = client.infer_announced_batch(announced, Units::Network, &inputs(2), |_| ()).err().unwrap();
    assert!(error.to_string().contains("2 inputs, and 1 were announced"), "{error}");
}

#[test]
fn partial_use_burns_the_rest() {
    let server = serving_batches(|_| {});
    let mut client = open_net(server.config("alice"));
    let ids = [5, 4].map(|size| client.prepare_batch(size).unwrap().id);
    let binding = client.binding();
    assert_eq!(client.stored_batches().unwrap(), [5, 4]);
    let answers = client.infer_batch(Units::Network, &inputs(2)).unwrap();
    check_all(&answers, &inputs(2));
    assert_eq!(answers[1].part, BatchPart { index: 1, inputs: 4 }, "the smallest that is enough");
    assert!(answers[1].prepared.is_none());
    assert!(is_burnt(&claimed(&server.dir, ids[1], binding)));
    assert_eq!(client.stored_batches().unwrap(), [5]);
}

#[test]
fn uses_stored_material_first() {
    let server = serving_batches(|_| {});
    let mut client = open_net(server.config("alice"));
    client.prepare().unwrap();
    client.prepare_batch(2).unwrap();
    let (inputs, mut answers) = (inputs(6), Vec::new());
    client.begin_call(inputs.len()).unwrap();
    let mut used = Vec::new();
    while answers.len() < inputs.len() {
        used.push(client.next_stored(inputs.len() - answers.len()).unwrap());
        answers.extend(client.infer_next(Units::Network, &inputs[answers.len()..]).unwrap());
    }
    check_all(&answers, &inputs);
    assert_eq!(used, [Some(1), Some(2), None]);
    let parts: Vec<_> = answers.iter().map(|a| ([a.part.index, a.part.inputs], a.prepared.is_some())).collect();
    let parts_of = |size, made| (0..size).map(move |place| ([place, size], made));
    assert_eq!(parts, parts_of(1, false).chain(parts_of(2, false)).chain(parts_of(3, true)).collect::<Vec<_>>());
    assert!(client.infer_next(Units::Network, &[]).is_err());
}

/// A channel on which `net` is open for batches of this size.
fn net_channel(server: &Running, who: &str, batch: u32) -> Channel {
    let mut channel = server.greeted(who);
    let open = Request::Open { model: "net".into(), backend: "cheetah".into(), device: DEVICE };
    let Reply::Model { bytes } = ask(&mut channel, &open) else { panic!("no model") };
    let public = channel.recv_max(PUBLIC, bytes as usize).unwrap();
    let plan = Cheetah.open(&public).unwrap().digest();
    handshake(&mut channel, &Hello::for_model(plan, public_digest(&public))).unwrap();
    assert_eq!(ask(&mut channel, &Request::Batch { inputs: batch }), Reply::Batch { inputs: batch });
    channel
}

#[test]
fn broken_connection_burns_batch() {
    let server = serving_batches(|_| {});
    let mut client = open_net(server.config("alice"));
    let [id, another] = [(); 2].map(|()| client.prepare_batch(2).unwrap().id);
    let binding = client.binding();
    client.close().unwrap();
    // The material is bound to its client and to its size.
    let mut bob = net_channel(&server, "bob", 2);
    check_refused(&ask(&mut bob, &infer_with(id)), "another client");
    let mut other = net_channel(&server, "alice", 3);
    check_refused(&ask(&mut other, &infer_with(another)), "another plan");
    let mut channel = net_channel(&server, "alice", 2);
    assert_eq!(ask(&mut channel, &infer_with(id)), Reply::Go);
    // The connection ends while the server waits for both inputs.
    drop(channel);
    assert!(matches!(server_store(&server.dir).claim(id, binding), Err(StoreError::Burnt(_))));
    // The client burns its half when it connects again.
    drop(open_net(server.config("alice")));
    assert!(is_burnt(&claimed(&server.dir, id, binding)));
}

#[test]
fn clamps_batch_sizes() {
    let server = serving_batches(|_| {});
    let mut channel = net_channel(&server, "alice", 1);
    for (wanted, granted) in [(0, 1), (u32::MAX, 8), (9, 8), (3, 3), (1, 1)] {
        assert_eq!(ask(&mut channel, &Request::Batch { inputs: wanted }), Reply::Batch { inputs: granted });
    }
    // An input keeps the size with which it was asked for.
    let name = InputId(1);
    let asking = Request::Ask(Ask { name, notice: None, material: None, terms: Terms::default() });
    assert_eq!(ask(&mut channel, &asking), Reply::Noted { notice_ignored: None });
    assert_eq!(ask(&mut channel, &Request::Batch { inputs: 2 }), Reply::Batch { inputs: 2 });
    let prepare = Request::Prepare { id: MaterialId::numbered(1), folder: None, of: Some(name) };
    assert!(matches!(ask(&mut channel, &prepare), Reply::Refused { .. }));
    assert!(matches!(ask(&mut channel, &Request::Cancel { name }), Reply::Noted { .. }));
    check_refused(&ask(&mut server.greeted("bob"), &Request::Batch { inputs: 2 }), "no model is open");
}

#[test]
fn inputs_of_a_batch_count_against_quota_and_rate() {
    let whole = BatchPart { index: 0, inputs: 3 };
    let serve_with = |rule: &str| {
        Running::in_own_folder(|dir| {
            let access = write_rules(dir, "", rule);
            serving_batches_in(dir, |c| c.access = Some(access))
        })
    };
    let server = serve_with("queries_per_day = 4");
    let mut client = open_net(server.config("alice"));
    assert_eq!(answered(&mut client, &inputs(3))[0].part, whole);
    let none = |_, _| panic!("two more are over the quota");
    match infer_many(&mut client, Units::Network, &inputs(2), none) {
        Err(ClientError::Refused { reason, .. }) => assert!(reason.contains("has 1 left, and 2 inputs"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(client.list_stored().unwrap().is_empty());
    check(&client.infer(&inputs(1)[0]).unwrap(), &inputs(1)[0]);
    assert!(matches!(client.infer(&inputs(1)[0]), Err(ClientError::Refused { .. })));
    let server = serve_with("rate_per_minute = 3");
    let mut client = open_net(server.config("alice"));
    assert_eq!(answered(&mut client, &inputs(3))[0].part, whole);
    assert!(matches!(client.infer(&inputs(1)[0]), Err(ClientError::Refused { .. })));
}

#[test]
fn learns_estimates_by_batch_size() {
    let dir = Folder::new();
    let server = serving_batches_in(&dir, |_| {});
    let mut client = open_net(server.config("alice"));
    let plan = client.binding().plan;
    client.infer(&inputs(1)[0]).unwrap();
    answered(&mut client, &inputs(4));
    client.close().unwrap();
    drop(server);
    let db = server_state(&dir);
    let phases = |plan: [u8; 32]| -> Vec<String> {
        let mut sql = db.prepare("SELECT phase FROM profile WHERE plan = ?1 ORDER BY phase").unwrap();
        sql.query_map([&plan[..]], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    for (batch, known) in [(1, true), (2, false), (4, true)] {
        let expected: &[&str] = if known { &["offline", "online"] } else { &[] };
        assert_eq!(phases(batch_digest(&plan, batch)), expected, "{batch} inputs");
    }
}

#[test]
fn never_batches_across_clients() {
    let dir = Folder::new();
    let server = serving_batches_in(&dir, |_| {});
    std::thread::scope(|scope| {
        for who in ["alice", "bob"] {
            let server = &server;
            scope.spawn(move || {
                let mut client = open_net(server.config(who));
                for _ in 0..3 {
                    let answers = answered(&mut client, &inputs(3));
                    assert!(answers.iter().all(|answer| answer.part.inputs == 3));
                }
            });
        }
    });
    server.settle();
    drop(server);
    let db = server_state(&dir);
    let sql = "SELECT count(*), count(DISTINCT input), max(clients) FROM
               (SELECT input, count(DISTINCT client) AS clients FROM audit WHERE phase = 'online' GROUP BY input)";
    let counts: (i64, i64, i64) = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(counts, (6, 6, 1), "six online phases for eighteen inputs, each of one client");
}
