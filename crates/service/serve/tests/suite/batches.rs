//! Batches of inputs between a client and a server: how many are run as one, what is made, kept and burnt for
//! them, what they count as.
use crate::common::*;
use std::path::Path;
use std::time::Duration;
use tacit_backends::Backend;
use tacit_backends::cheetah::Cheetah;
use tacit_backends::seam::batch_digest;
use tacit_client::wire::{InputId, PUBLIC, Reply, Request, public_digest};
use tacit_client::{
    Answer, BatchPart, Client, ClientConfig, ClientError, Connection, NoticeState, Notices, infer_many,
};
use tacit_graph::Units;
use tacit_ids::MaterialId;
use tacit_net::{Channel, Hello, handshake};
use tacit_store::{Binding, Party, Store, StoreError};

fn opened(config: ClientConfig) -> Client {
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

fn many(client: &mut Client, inputs: &[Vec<f32>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    infer_many(client, Units::Network, inputs, |index, answer| {
        assert_eq!(index, answers.len(), "in order");
        answers.push(answer);
        Ok(())
    })
    .unwrap();
    check_all(&answers, inputs);
    answers
}

#[test]
fn inputs_of_one_call_are_run_as_one_in_the_exchanges_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
    let single = client.infer(&inputs(1)[0]).unwrap();
    assert_eq!(single.part, BatchPart { index: 0, inputs: 1 });
    let answers = many(&mut client, &inputs(5));
    for (place, answer) in answers.iter().enumerate() {
        assert_eq!(
            (answer.part, answer.name),
            (BatchPart { index: place, inputs: 5 }, answers[0].name),
            "one input of the scheduler's"
        );
        let rounds = |answer: &Answer| (answer.online.client.rounds, answer.online.server.rounds);
        assert_eq!(rounds(answer), rounds(&single));
        assert_eq!(answer.prepared.unwrap().id, answers[0].prepared.unwrap().id);
    }
    let sent = |answer: &Answer| answer.online.client.sent_bytes;
    assert!(sent(&answers[0]) > sent(&single));
    assert!(sent(&answers[0]) < 5 * sent(&single));
    // The connection goes back to one input at a time, with its keys.
    let last_answer = client.infer(&inputs(3)[2]).unwrap();
    check(&last_answer, &inputs(3)[2]);
    assert!(last_answer.part == BatchPart { index: 0, inputs: 1 });
    assert!(last_answer.setup.is_none());
    client.close().unwrap();
    server.settle();
    assert_eq!(server.handle.served(), 7, "each input of a batch counts");
}

#[test]
fn more_than_the_server_runs_as_one_are_split() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |c| c.max_batch = 2);
    let mut client = opened(server.config(dir.path(), "alice"));
    let parts = |answers: &[Answer]| answers.iter().map(|a| [a.part.index, a.part.inputs]).collect::<Vec<_>>();
    assert_eq!(parts(&many(&mut client, &inputs(5))), [[0, 2], [1, 2], [0, 2], [1, 2], [0, 1]]);
    let error = client.infer_batch(Units::Network, &inputs(3)).unwrap_err().to_string();
    assert!(error.contains("3 inputs cannot be run as one"), "{error}");
    assert!(error.contains("take 2"), "{error}");
    check_all(&client.infer_batch(Units::Network, &inputs(2)).unwrap(), &inputs(2));
    client.set_max_batch(1);
    assert_eq!(parts(&many(&mut client, &inputs(2))), [[0, 1], [0, 1]]);
    // What jobs may hold together is a limit, too.
    let model = Cheetah.lower(&two_layers(), &"frac_bits=8".parse().unwrap()).unwrap();
    let peak = |batch: usize| {
        let costs = model.batched(batch).unwrap().costs();
        costs.offline.server.peak_memory_bytes.max(costs.online.server.peak_memory_bytes)
    };
    let small = tempfile::tempdir().unwrap();
    let server = serving_batches(small.path(), |c| c.job_memory = peak(3));
    let mut client = opened(server.config(small.path(), "alice"));
    assert_eq!(parts(&many(&mut client, &inputs(4))), [[0, 3], [1, 3], [2, 3], [0, 1]]);
    // So is half of what the client says that it has.
    let at_client = |batch: usize| {
        let costs = model.batched(batch).unwrap().costs();
        costs.offline.client.peak_memory_bytes.max(costs.online.client.peak_memory_bytes)
    };
    let roomy = tempfile::tempdir().unwrap();
    let server_of_all = serving_batches(roomy.path(), |_| {});
    let granted = |memory| {
        let config = ClientConfig { memory: Some(memory), ..server_of_all.config(roomy.path(), "alice") };
        many(&mut opened(config), &inputs(4))[0].part.inputs
    };
    assert_eq!(granted(1 << 40), 4);
    assert!(at_client(2) > 1 << 19, "a megabyte is not enough for two");
    assert_eq!(granted(1 << 20), 1);
    // A back end that gains nothing by it.
    let mut toy = server.client(small.path(), "alice", "one");
    assert_eq!(parts(&many_of(&mut toy, 3)), [[0, 1]; 3]);
    assert!(toy.prepare_batch(2).unwrap_err().to_string().contains("take 1"));
}

fn many_of(client: &mut Client, count: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    infer_many(client, Units::Network, &inputs(count), |_, answer| {
        answers.push(answer);
        Ok(())
    })
    .unwrap();
    answers
}

/// The states of material in both parties' folders, by what a claim says.
fn claimed(dir: &Path, id: MaterialId, binding: Binding) -> [Result<(), StoreError>; 2] {
    [("alice-material", Party::Client), ("server-material", Party::Server)]
        .map(|(folder, party)| Store::open(&dir.join(folder), party, None).unwrap().claim(id, binding).map(drop))
}

fn is_burnt(claims: &[Result<(), StoreError>; 2]) -> bool {
    claims.iter().all(|claim| matches!(claim, Err(StoreError::Burnt(_))))
}

#[test]
fn material_of_a_batch_is_claimed_and_burnt_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
    let of_one = client.binding();
    let id = client.prepare_batch(3).unwrap().id;
    let binding = client.binding();
    assert_eq!(binding.plan, batch_digest(&of_one.plan, 3), "bound to the size");
    client.close().unwrap();
    let mut client = opened(server.config(dir.path(), "alice"));
    assert_eq!(client.stored_batches().unwrap(), [3], "both parties still have it");
    assert!(client.stored().unwrap().is_empty(), "it is none for a single input");
    assert!(client.infer(&inputs(1)[0]).unwrap().prepared.is_some());
    let answers = client.infer_batch(Units::Network, &inputs(3)).unwrap();
    check_all(&answers, &inputs(3));
    assert!(answers.iter().all(|a| a.prepared.is_none() && a.part.inputs == 3), "with what was stored");
    assert!(client.stored_batches().unwrap().is_empty());
    assert!(is_burnt(&claimed(dir.path(), id, binding)));
    assert!(client.infer_batch(Units::Network, &inputs(3)).unwrap()[0].prepared.is_some(), "made anew");
}

#[test]
fn a_batch_is_announced_before_there_is_a_connection_and_answered_over_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |c| c.max_batch = 4);
    let notices = Notices::of(&server.config(dir.path(), "alice")).unwrap();
    let noted = notices.announce("net", "cheetah", 3, None, None).unwrap();
    assert_eq!((noted.inputs, noted.state), (3, NoticeState::Announced));
    assert_eq!(notices.state(noted.name, Duration::ZERO).unwrap(), Some(noted));
    assert_eq!(
        notices.announce("net", "cheetah", 9, None, None).unwrap().inputs,
        4,
        "as many as the server runs as one"
    );
    assert_eq!(notices.announce("one", "toy", 9, None, None).unwrap().inputs, 1, "as the back end does");
    let mut client = opened(server.config(dir.path(), "alice"));
    let maker = |size: usize| {
        let mut maker = client.again().unwrap();
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
    // Over a connection, and used for a part of it.
    let announced = client.announce_over(other, None).unwrap();
    let (answers, _) = client.infer_announced_batch(announced, Units::Network, &inputs(1), |_| ()).unwrap();
    check_all(&answers, &inputs(1));
    let announced = client.announce(None).unwrap();
    let error = client.infer_announced_batch(announced, Units::Network, &inputs(2), |_| ()).err().unwrap();
    assert!(error.to_string().contains("2 inputs, and 1 were announced"), "{error}");
}

#[test]
fn partial_use_burns_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
    let ids = [5, 4].map(|size| client.prepare_batch(size).unwrap().id);
    let binding = client.binding();
    assert_eq!(client.stored_batches().unwrap(), [5, 4]);
    let answers = client.infer_batch(Units::Network, &inputs(2)).unwrap();
    check_all(&answers, &inputs(2));
    assert!(answers[1].part == BatchPart { index: 1, inputs: 4 }, "the smallest that is enough");
    assert!(answers[1].prepared.is_none(), "the smallest that is enough");
    assert!(is_burnt(&claimed(dir.path(), ids[1], binding)));
    assert_eq!(client.stored_batches().unwrap(), [5]);
}

#[test]
fn stored_material_is_used_first_and_the_rest_is_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
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

/// A connection that speaks for itself, with `net` open and `batch` inputs at once.
fn by_hand(server: &Running, dir: &Path, who: &str, batch: u32) -> Channel {
    let mut channel = server.greeted(dir, who);
    let open = Request::Open { model: "net".into(), backend: "cheetah".into(), device: DEVICE };
    let Reply::Model { bytes } = ask(&mut channel, &open) else { panic!("no model") };
    let public = channel.recv_max(PUBLIC, bytes as usize).unwrap();
    let plan = Cheetah.open(&public).unwrap().digest();
    handshake(&mut channel, &Hello::opened(plan, public_digest(&public))).unwrap();
    assert_eq!(ask(&mut channel, &Request::Batch { inputs: batch }), Reply::Batch { inputs: batch });
    channel
}

#[test]
fn a_connection_that_breaks_in_a_batch_has_used_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
    let [id, another] = [(); 2].map(|()| client.prepare_batch(2).unwrap().id);
    let binding = client.binding();
    client.close().unwrap();
    let infer = Request::Infer { id: Some(id), of: None };
    // Of another client it is not there, and for another size it is of no use.
    let mut bob = by_hand(&server, dir.path(), "bob", 2);
    let refused = format!("{:?}", ask(&mut bob, &infer));
    assert!(refused.contains("another client"), "{refused}");
    let mut other = by_hand(&server, dir.path(), "alice", 3);
    let refused = format!("{:?}", ask(&mut other, &Request::Infer { id: Some(another), of: None }));
    assert!(refused.contains("another plan"), "{refused}");
    let mut channel = by_hand(&server, dir.path(), "alice", 2);
    assert_eq!(ask(&mut channel, &infer), Reply::Go);
    // The server waits for both inputs; none comes.
    drop(channel);
    let at_server = Store::open(&dir.path().join("server-material"), Party::Server, None).unwrap();
    assert!(matches!(at_server.claim(id, binding), Err(StoreError::Burnt(_))));
    // What this end has left is of no use, and is destroyed when the client comes back.
    drop(opened(server.config(dir.path(), "alice")));
    assert!(is_burnt(&claimed(dir.path(), id, binding)));
}

#[test]
fn sizes_that_make_no_sense_are_cut_to_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut channel = by_hand(&server, dir.path(), "alice", 1);
    for (wanted, granted) in [(0, 1), (u32::MAX, 8), (9, 8), (3, 3), (1, 1)] {
        assert_eq!(ask(&mut channel, &Request::Batch { inputs: wanted }), Reply::Batch { inputs: granted });
    }
    // What was asked for with one size is not answered with another.
    let ask_for =
        |name| tacit_client::wire::Ask { name: InputId(name), notice: None, material: None, terms: Default::default() };
    assert_eq!(ask(&mut channel, &Request::Ask(ask_for(1))), Reply::Noted { notice_ignored: None });
    assert_eq!(ask(&mut channel, &Request::Batch { inputs: 2 }), Reply::Batch { inputs: 2 });
    let prepare = Request::Prepare { id: MaterialId::numbered(1), folder: None, of: Some(InputId(1)) };
    let reply = ask(&mut channel, &prepare);
    assert!(matches!(&reply, Reply::Refused { .. }), "{reply:?}");
    assert!(matches!(ask(&mut channel, &Request::Cancel { name: InputId(1) }), Reply::Noted { .. }));
    let mut early = server.greeted(dir.path(), "bob");
    assert!(format!("{:?}", ask(&mut early, &Request::Batch { inputs: 2 })).contains("no model is open"));
}

#[test]
fn every_input_of_a_batch_counts_against_quota_and_rate() {
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "queries_per_day = 4");
    let server = serving_batches(dir.path(), |c| c.access = Some(access));
    let mut client = opened(server.config(dir.path(), "alice"));
    assert_eq!(many(&mut client, &inputs(3))[0].part, BatchPart { index: 0, inputs: 3 });
    let none = |_, _| panic!("two more are over the quota");
    match infer_many(&mut client, Units::Network, &inputs(2), none) {
        Err(ClientError::Refused { reason, .. }) => assert!(reason.contains("has 1 left, and 2 inputs"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(client.stored().unwrap().is_empty(), "nothing was made for them");
    check(&client.infer(&inputs(1)[0]).unwrap(), &inputs(1)[0]);
    assert!(matches!(client.infer(&inputs(1)[0]), Err(ClientError::Refused { .. })), "four are answered");
    drop(server);
    let dir = tempfile::tempdir().unwrap();
    let access = rules(dir.path(), "", "rate_per_minute = 3");
    let server = serving_batches(dir.path(), |c| c.access = Some(access));
    let mut client = opened(server.config(dir.path(), "alice"));
    assert_eq!(many(&mut client, &inputs(3))[0].part, BatchPart { index: 0, inputs: 3 }, "as many as a minute brings");
    assert!(matches!(client.infer(&inputs(1)[0]), Err(ClientError::Refused { .. })), "the minute's are used up");
}

#[test]
fn estimates_are_learned_for_each_size() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    let mut client = opened(server.config(dir.path(), "alice"));
    let plan = client.binding().plan;
    client.infer(&inputs(1)[0]).unwrap();
    many(&mut client, &inputs(4));
    client.close().unwrap();
    drop(server);
    let db = rusqlite::Connection::open(dir.path().join("server-material/server.sqlite")).unwrap();
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
fn two_clients_are_never_gathered() {
    let dir = tempfile::tempdir().unwrap();
    let server = serving_batches(dir.path(), |_| {});
    std::thread::scope(|scope| {
        for who in ["alice", "bob"] {
            let (server, dir) = (&server, dir.path());
            scope.spawn(move || {
                let mut client = opened(server.config(dir, who));
                for _ in 0..3 {
                    let answers = many(&mut client, &inputs(3));
                    assert!(answers.iter().all(|answer| answer.part.inputs == 3), "hers alone");
                }
            });
        }
    });
    server.settle();
    drop(server);
    let db = rusqlite::Connection::open(dir.path().join("server-material/server.sqlite")).unwrap();
    let sql = "SELECT count(*), count(DISTINCT input), max(clients) FROM
               (SELECT input, count(DISTINCT client) AS clients FROM audit WHERE phase = 'online' GROUP BY input)";
    let counts: (i64, i64, i64) = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(counts, (6, 6, 1), "six online phases for eighteen inputs, each of one client");
}
