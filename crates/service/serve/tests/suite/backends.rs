//! Several back ends on one server: who chooses, what is refused, and back ends with nothing to prepare.
use crate::common::*;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::ckks::Ckks;
use tacit_backends::{Backend, BackendError, Registry, ServerModel};
use tacit_client::wire::{ModelAndBackend, Reply, Request};
use tacit_client::{ClientConfig, ClientError, Connection, OpenedModels, infer_many};
use tacit_graph::{ChannelAffine, FinalActivation, Interval, Units};
use tacit_ids::MaterialId;
use tacit_net::NetError;
use tacit_serve::{Catalog, ServeError};

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn one_model_with_two_back_ends_and_the_private_one_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = Catalog::new(true);
    offer(&mut catalog, "both", &open_toy(), 1, "");
    offer(&mut catalog, "both", &Toy::default(), 1, "");
    offer(&mut catalog, "open only", &open_toy(), 2, "");
    let server = Running::with(dir.path(), catalog, |_| {});
    let models = server.connection(dir.path(), "alice").models().unwrap();
    let names: Vec<&str> = models[0].backends.iter().map(|o| o.backend.as_str()).collect();
    assert_eq!(names, ["open", "toy"]);
    for (asked, used) in [(None, "toy"), (Some("toy"), "toy"), (Some("open"), "open")] {
        let mut client = server.connection(dir.path(), "alice").open("both", asked).unwrap();
        assert_eq!(client.backend(), used);
        assert_eq!(client.infer(&X).unwrap().values, expected(1, &X));
    }
    let error = server.connection(dir.path(), "alice").open("open only", None).err().unwrap();
    assert!(error.to_string().contains("`open` (the server sees the input)"), "{error}");
    // A client that does not have the back end is not talked into another.
    let only = Registry::new(vec![Arc::new(open_toy())]);
    let error = Connection::connect(only, server.config(dir.path(), "bob")).unwrap().open("both", None).err().unwrap();
    assert!(error.to_string().contains("`toy` (this client does not have it)"), "{error}");
}

#[test]
fn the_client_applies_what_the_importer_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut ends = model(1);
    // y = W n + b with n = x / 2 - 1, and a softmax at the end.
    ends.interface.input.moved = Some(ChannelAffine { scale: vec![0.5], shift: vec![-1.0] });
    ends.interface.input.range = Interval { low: -1.0, high: 1.0 };
    ends.interface.final_activation = Some(FinalActivation::LogSoftmax);
    let mut catalog = Catalog::new(false);
    let toy = Toy::default();
    catalog.offer("ends", &toy, toy.lower(&ends, &"".parse().unwrap()).unwrap()).unwrap();
    let server = Running::with(dir.path(), catalog, |_| {});
    let mut client = server.connection(dir.path(), "alice").open("ends", None).unwrap();
    let normalised = X.map(|x| 0.5 * x - 1.0);
    let revealed = expected(1, &normalised);
    let log_sum = revealed[1] + (1.0 + (revealed[0] - revealed[1]).exp()).ln();
    for (units, input) in [(Units::Network, X), (Units::Normalised, normalised), (Units::Pixels, X.map(|x| 255.0 * x))]
    {
        let answer = client.infer_in(units, &input).unwrap();
        assert_eq!((answer.class, answer.revealed.len()), (1, 2));
        for ((value, raw), wanted) in answer.values.iter().zip(&answer.revealed).zip(&revealed) {
            // Pixels are rounded on their way.
            let bound = if units == Units::Pixels { 1e-5 } else { 0.0 };
            assert!((raw - wanted).abs() <= bound, "{units:?}: {answer:?}");
            assert!((value - (wanted - log_sum)).abs() <= bound + 1e-9, "{units:?}: {answer:?}");
        }
    }
    assert_eq!(client.infer(&X).unwrap().revealed, revealed, "floats are the network's own input");
    let error = client.infer(&[1.0, 2.0, 3.0, 9.0]).unwrap_err().to_string();
    assert!(error.contains("value 3 is 9, the model accepts 0 to 4"), "{error}");
    infer_many(&mut client, Units::Network, &[X.to_vec()], |_, answer| {
        assert_eq!(answer.revealed, revealed);
        Ok(())
    })
    .unwrap();
}

#[test]
fn wrong_names_are_refused_with_those_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let error = server.connection(dir.path(), "alice").open("three", None).err().unwrap();
    assert!(error.to_string().contains("no model `three`; there are: one, two"), "{error}");
    let error = server.connection(dir.path(), "alice").open("three", Some("toy")).err().unwrap();
    assert!(error.to_string().contains("no model `three`; there are: one, two"), "{error}");
    let error = server.connection(dir.path(), "alice").open("one", Some("open")).err().unwrap();
    assert!(error.to_string().contains("not offered with `open`, but with: toy"), "{error}");
    let error = server.connection(dir.path(), "alice").open("one", Some("none")).err().unwrap();
    assert!(matches!(error, ClientError::Backend(BackendError::Unknown { .. })), "{error}");
    // The refusal leaves a connection usable.
    let mut channel = server.greeted(dir.path(), "alice");
    let wrong = Request::Open { model: "one".into(), backend: "x".repeat(1000), device: DEVICE };
    assert!(matches!(ask(&mut channel, &wrong), Reply::Refused { reason, .. } if reason.len() < 200));
    assert!(matches!(ask(&mut channel, &Request::List), Reply::Models(models) if models.len() == 2));
}

#[test]
fn parties_that_plan_differently_part_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(dir.path(), |_| {});
    let other = Registry::new(vec![Arc::new(Toy { plan: 9, ..Toy::default() })]);
    let error =
        Connection::connect(other, server.config(dir.path(), "alice")).unwrap().open("one", None).err().unwrap();
    assert!(matches!(error, ClientError::Net(NetError::PlanMismatch { .. })), "{error}");
    server.settle();
    assert_eq!(server.client(dir.path(), "alice", "one").infer(&X).unwrap().values, expected(1, &X));
}

#[test]
fn catalog_refuses_open_backends_and_duplicates() {
    let lowered = |toy: &Toy| toy.lower(&model(1), &"".parse().unwrap()).unwrap();
    let mut catalog = Catalog::new(false);
    let error = catalog.offer("one", &open_toy(), lowered(&open_toy())).unwrap_err();
    assert!(matches!(error, ServeError::Usage(ref text) if text.contains("the server sees every input")), "{error}");
    assert!(catalog.list().is_empty());
    catalog.offer("one", &Toy::default(), lowered(&Toy::default())).unwrap();
    let error = catalog.offer("one", &Toy::default(), lowered(&Toy::default())).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
}

#[test]
fn a_back_end_with_nothing_to_prepare_is_asked_right_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog();
    offer(&mut catalog, "direct", &Toy::default(), 3, "preparation=nothing");
    let server = Running::with(dir.path(), catalog, |_| {});
    let mut client = server.client(dir.path(), "alice", "direct");
    let answer = client.infer(&X).unwrap();
    assert_eq!(answer.values, expected(3, &X));
    assert!(answer.setup.is_some(), "keys come before the first answer");
    assert!(answer.prepared.is_none(), "nothing is prepared");
    assert!(client.infer(&X).unwrap().setup.is_none());
    let error = client.prepare().unwrap_err();
    assert!(error.to_string().contains("nothing to prepare"), "{error}");
    let mut answer_count = 0;
    infer_many(&mut client, Units::Network, &[X.to_vec(), X.to_vec()], |_, answer| {
        assert_eq!(answer.values, expected(3, &X));
        answer_count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(answer_count, 2);
    // The server refuses what comes before the setup or does not fit the plan: `direct` has no
    // materials, and `one` needs one that exists.
    let id = MaterialId::numbered(1);
    let mut direct = server.opened(dir.path(), "bob", "direct");
    for request in [Request::Prepare { id, folder: None, of: None }, Request::Infer { id: None, of: None }] {
        assert!(matches!(ask(&mut direct, &request), Reply::Refused { .. }), "{request:?}");
    }
    set_up(&mut direct);
    assert!(matches!(ask(&mut direct, &Request::Infer { id: Some(id), of: None }), Reply::Refused { .. }));
    let mut prepared = server.opened(dir.path(), "bob", "one");
    for request in [Request::Prepare { id, folder: None, of: None }, Request::Infer { id: None, of: None }] {
        assert!(matches!(ask(&mut prepared, &request), Reply::Refused { .. }), "{request:?}");
    }
    assert!(matches!(ask(&mut prepared, &Request::Infer { id: Some(id), of: None }), Reply::Refused { .. }));
}

/// A network on encrypted slots, which vouches for inputs like [`X`].
fn slots_model() -> Arc<dyn ServerModel> {
    let mut model = model(1);
    model.interface.input.range = Interval { low: 0.0, high: 4.0 };
    model.calibration.samples = vec![X.to_vec()];
    model.calibration.wanted = vec![expected(1, &X).iter().map(|&v| v as f32).collect()];
    Ckks.lower(&model, &"".parse().unwrap()).unwrap()
}

/// A catalog with a network on encrypted slots.
fn slots(model: &Arc<dyn ServerModel>) -> Catalog {
    let mut catalog = Catalog::new(false);
    catalog.offer("slots", &Ckks, Arc::clone(model)).unwrap();
    catalog
}

fn slots_connection(config: &ClientConfig) -> Connection {
    Connection::connect(Registry::new(vec![Arc::new(Ckks)]), config.clone()).unwrap()
}

/// Asks once. Returns the bytes that the setup sent.
fn keys_for_an_answer(config: &ClientConfig) -> u64 {
    let mut client = slots_connection(config).open("slots", None).unwrap();
    let bound = client.model().error_bound(&[]);
    let answer = client.infer(&X).unwrap();
    for (value, wanted) in answer.values.iter().zip(expected(1, &X)) {
        assert!((value - wanted).abs() <= bound + 0.01, "{value}, {wanted}, {bound}");
    }
    answer.setup.expect("a connection says which keys it uses").client.sent_bytes
}

/// Keys on encrypted slots are large: they go up once for a configuration, whatever connects, also where
/// neither party has a folder.
#[test]
fn connections_of_one_configuration_share_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let model = slots_model();
    let server = Running::with(dir.path(), slots(&model), |c| c.store = None);
    let config = ClientConfig { store: None, ..server.config(dir.path(), "alice") };
    let [first, second] = [&config; 2].map(keys_for_an_answer);
    assert!(first > 100_000, "{first} and {second} bytes went up");
    assert!(second < 1_000, "{first} and {second} bytes went up");
    let stranger = ClientConfig { opened: OpenedModels::default(), ..config.clone() };
    assert_eq!(keys_for_an_answer(&stranger), first, "it has keys of its own");
    assert_eq!(keys_for_an_answer(&config), second);
}

/// A client without a folder has another name for its keys each time: those of ended runs do not use up its
/// share, and those of a connection stay.
#[test]
fn keys_of_clients_that_keep_no_secrets_make_way() {
    let dir = tempfile::tempdir().unwrap();
    let model = slots_model();
    let bytes = model.costs().setup.server.stored_bytes;
    let server = Running::with(dir.path(), slots(&model), |c| c.uploads_per_client = bytes);
    let anew = || ClientConfig { store: None, ..server.config(dir.path(), "alice") };
    let first = keys_for_an_answer(&anew());
    // They are in use until the server has seen that their connection has ended.
    let mut open = None;
    wait_until("the first run's keys make way", || {
        let mut client = slots_connection(&anew()).open("slots", None).unwrap();
        let answer = client.infer(&X);
        open = answer.is_ok_and(|answer| answer.setup.unwrap().client.sent_bytes == first).then_some(client);
        open.is_some()
    });
    let error = slots_connection(&anew()).open("slots", None).unwrap().infer(&X).unwrap_err().to_string();
    assert!(error.contains("tacit keyset delete"), "{error}");
    open.unwrap().infer(&X).unwrap();
}

/// With folders they outlive the processes of both parties, until they are deleted.
#[test]
fn keys_are_kept_over_restarts_until_they_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let model = slots_model();
    let start = |quota: u64| Running::with(dir.path(), slots(&model), |c| c.uploads_per_client = quota);
    let config_for = |server: &Running, who: &str| server.config(dir.path(), who);
    let server = start(1 << 24);
    let first = keys_for_an_answer(&config_for(&server, "alice"));
    let second = keys_for_an_answer(&config_for(&server, "alice"));
    assert!(first > 100_000, "{first} and {second} bytes went up");
    assert!(second < 1_000, "{first} and {second} bytes went up");
    assert_eq!(keys_for_an_answer(&config_for(&server, "bob")), first, "another client has keys of its own");
    drop(server);
    let server = start(1 << 24);
    assert_eq!(keys_for_an_answer(&config_for(&server, "alice")), second, "kept over a restart");
    let mut connection = slots_connection(&config_for(&server, "alice"));
    let uploads = connection.uploads().unwrap();
    let [only] = &uploads[..] else { panic!("{uploads:?}") };
    assert!(only.is_whole, "{only:?}");
    assert!(only.offered == Some(ModelAndBackend { model: "slots".into(), backend: "ckks".into() }), "{only:?}");
    // A name is of use to its client alone.
    let mut other = slots_connection(&config_for(&server, "bob"));
    assert_eq!(other.delete_uploads(&uploads).unwrap(), 0);
    assert_eq!(connection.delete_uploads(&uploads).unwrap(), 1);
    assert!(connection.uploads().unwrap().is_empty());
    assert_eq!(keys_for_an_answer(&config_for(&server, "alice")), first, "deleted");
    drop(server);
    // The client's quota is used up by keys whose secret it has lost.
    let server = start(only.bytes);
    fs::remove_dir_all(dir.path().join("alice-material/secrets")).unwrap();
    let mut client = slots_connection(&config_for(&server, "alice")).open("slots", None).unwrap();
    let error = client.infer(&X).unwrap_err().to_string();
    assert!(error.contains("tacit keyset delete"), "{error}");
    drop(server);
    let server = Running::with(dir.path(), slots(&model), |c| c.expire = Duration::ZERO);
    assert!(slots_connection(&config_for(&server, "bob")).uploads().unwrap().is_empty(), "expired");
}
