//! Several back ends on one server: the choice among them, refusals, and back ends with nothing to prepare.
use crate::by_hand::{infer_with, prepare};
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

#[track_caller]
fn check_open_error(connection: Connection, model: &str, backend: Option<&str>, text: &str) {
    check_contains(&connection.open(model, backend).err().unwrap().to_string(), &[text]);
}

#[test]
fn chooses_private_back_end() {
    let mut catalog = Catalog::new(true);
    offer(&mut catalog, "both", &open_toy(), 1, "");
    offer(&mut catalog, "both", &Toy::default(), 1, "");
    offer(&mut catalog, "open only", &open_toy(), 2, "");
    let server = Running::serving(catalog, |_| {});
    let models = server.connection("alice").models().unwrap();
    let names: Vec<&str> = models[0].backends.iter().map(|o| o.backend.as_str()).collect();
    assert_eq!(names, ["open", "toy"]);
    for (asked, used) in [(None, "toy"), (Some("toy"), "toy"), (Some("open"), "open")] {
        let mut client = server.connection("alice").open("both", asked).unwrap();
        assert_eq!(client.backend(), used);
        check_answer(&mut client, 1);
    }
    check_open_error(server.connection("alice"), "open only", None, "`open` (the server sees the input)");
    let only = Registry::new(vec![Arc::new(open_toy())]);
    let without_toy = Connection::connect(only, server.config("bob")).unwrap();
    check_open_error(without_toy, "both", None, "`toy` (this client does not have it)");
}

#[test]
fn client_applies_normalisation_and_softmax() {
    let mut ends = model(1);
    // y = W n + b with n = x / 2 - 1, and a softmax at the end.
    ends.interface.input.moved = Some(ChannelAffine { scale: vec![0.5], shift: vec![-1.0] });
    ends.interface.input.range = Interval { low: -1.0, high: 1.0 };
    ends.interface.final_activation = Some(FinalActivation::LogSoftmax);
    let mut catalog = Catalog::new(false);
    let toy = Toy::default();
    catalog.offer("ends", &toy, toy.lower(&ends, &"".parse().unwrap()).unwrap()).unwrap();
    let server = Running::serving(catalog, |_| {});
    let mut client = server.connection("alice").open("ends", None).unwrap();
    let normalised = X.map(|x| 0.5 * x - 1.0);
    let revealed = expected(1, &normalised);
    let log_sum = revealed[1] + (1.0 + (revealed[0] - revealed[1]).exp()).ln();
    for (units, input) in [(Units::Network, X), (Units::Normalised, normalised), (Units::Pixels, X.map(|x| 255.0 * x))]
    {
        let answer = client.infer_in(units, &input).unwrap();
        assert_eq!((answer.class, answer.revealed.len()), (1, 2));
        for ((value, raw), wanted) in answer.values.iter().zip(&answer.revealed).zip(&revealed) {
            // Pixels are rounded.
            let bound = if units == Units::Pixels { 1e-5 } else { 0.0 };
            assert!((raw - wanted).abs() <= bound, "{units:?}: {answer:?}");
            assert!((value - (wanted - log_sum)).abs() <= bound + 1e-9, "{units:?}: {answer:?}");
        }
    }
    assert_eq!(client.infer(&X).unwrap().revealed, revealed);
    let error = client.infer(&[1.0, 2.0, 3.0, 9.0]).unwrap_err().to_string();
    check_contains(&error, &["value 3 is 9, the model accepts 0 to 4"]);
    infer_many(&mut client, Units::Network, &[X.to_vec()], |_, answer| {
        assert_eq!(answer.revealed, revealed);
        Ok(())
    })
    .unwrap();
}

#[test]
fn refuses_unknown_names() {
    let server = Running::start(|_| {});
    for (model, backend, text) in [
        ("three", None, "no model `three`; there are: one, two"),
        ("three", Some("toy"), "no model `three`; there are: one, two"),
        ("one", Some("open"), "not offered with `open`, but with: toy"),
    ] {
        check_open_error(server.connection("alice"), model, backend, text);
    }
    let error = server.connection("alice").open("one", Some("none")).err().unwrap();
    assert!(matches!(error, ClientError::Backend(BackendError::Unknown { .. })), "{error}");
    // A refusal leaves the connection usable.
    let mut channel = server.greeted("alice");
    let wrong = Request::Open { model: "one".into(), backend: "x".repeat(1000), device: DEVICE };
    assert!(matches!(ask(&mut channel, &wrong), Reply::Refused { reason, .. } if reason.len() < 200));
    assert!(matches!(ask(&mut channel, &Request::List), Reply::Models(models) if models.len() == 2));
}

#[test]
fn refuses_other_plan() {
    let server = Running::start(|_| {});
    let other = Registry::new(vec![Arc::new(Toy { plan: 9, ..Toy::default() })]);
    let error = Connection::connect(other, server.config("alice")).unwrap().open("one", None).err().unwrap();
    assert!(matches!(error, ClientError::Net(NetError::PlanMismatch { .. })), "{error}");
    server.settle();
    check_answer(&mut server.client("alice", "one"), 1);
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
fn answers_without_offline_phase() {
    let mut catalog = catalog();
    offer(&mut catalog, "direct", &Toy::default(), 3, "preparation=nothing");
    let server = Running::serving(catalog, |_| {});
    let mut client = server.client("alice", "direct");
    let answer = client.infer(&X).unwrap();
    assert_eq!(answer.values, expected(3, &X));
    assert!(answer.setup.is_some());
    assert!(answer.prepared.is_none());
    assert!(client.infer(&X).unwrap().setup.is_none());
    check_contains(&client.prepare().unwrap_err().to_string(), &["nothing to prepare"]);
    let mut answer_count = 0;
    infer_many(&mut client, Units::Network, &[X.to_vec(), X.to_vec()], |_, answer| {
        assert_eq!(answer.values, expected(3, &X));
        answer_count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(answer_count, 2);
    // `direct` needs its setup and has no material; `one` needs material that exists.
    let with_material = infer_with(MaterialId::numbered(1));
    for model in ["direct", "one"] {
        let mut channel = server.opened("bob", model);
        for request in [prepare(1), Request::Infer { id: None, of: None }] {
            assert!(matches!(ask(&mut channel, &request), Reply::Refused { .. }), "{model}: {request:?}");
        }
        if model == "direct" {
            set_up(&mut channel);
        }
        assert!(matches!(ask(&mut channel, &with_material), Reply::Refused { .. }), "{model}");
    }
}

/// A model for `ckks` whose calibration covers [`X`].
fn slots_model() -> Arc<dyn ServerModel> {
    let mut model = model(1);
    model.interface.input.range = Interval { low: 0.0, high: 4.0 };
    model.calibration.samples = vec![X.to_vec()];
    model.calibration.wanted = vec![expected(1, &X).iter().map(|&v| v as f32).collect()];
    Ckks.lower(&model, &"".parse().unwrap()).unwrap()
}

fn slots_catalog(model: &Arc<dyn ServerModel>) -> Catalog {
    let mut catalog = Catalog::new(false);
    catalog.offer("slots", &Ckks, Arc::clone(model)).unwrap();
    catalog
}

fn slots_connection(config: &ClientConfig) -> Connection {
    Connection::connect(Registry::new(vec![Arc::new(Ckks)]), config.clone()).unwrap()
}

/// Asks once and returns the bytes that the setup sent.
fn setup_bytes(config: &ClientConfig) -> u64 {
    let mut client = slots_connection(config).open("slots", None).unwrap();
    let bound = client.model().error_bound(&[]);
    let answer = client.infer(&X).unwrap();
    for (value, wanted) in answer.values.iter().zip(expected(1, &X)) {
        assert!((value - wanted).abs() <= bound + 0.01, "{value}, {wanted}, {bound}");
    }
    answer.setup.unwrap().client.sent_bytes
}

fn check_uploaded_once(first: u64, second: u64) {
    assert!(first > 100_000, "{first} and {second} bytes of keys");
    assert!(second < 1_000, "{first} and {second} bytes of keys");
}

/// Keys are uploaded once for a configuration, even if neither party has a folder.
#[test]
fn connections_of_one_configuration_share_keys() {
    let model = slots_model();
    let server = Running::serving(slots_catalog(&model), |c| c.store = None);
    let config = ClientConfig { store: None, ..server.config("alice") };
    let [first, second] = [&config; 2].map(setup_bytes);
    check_uploaded_once(first, second);
    let stranger = ClientConfig { opened: OpenedModels::default(), ..config.clone() };
    assert_eq!(setup_bytes(&stranger), first);
    assert_eq!(setup_bytes(&config), second);
}

/// A client without a folder names its keys anew each time. Keys of ended runs make way for them, keys of
/// open connections do not.
#[test]
fn evicts_keys_of_ended_connections() {
    let model = slots_model();
    let bytes = model.costs().setup.server.stored_bytes;
    let server = Running::serving(slots_catalog(&model), |c| c.uploads_per_client = bytes);
    let anew = || ClientConfig { store: None, ..server.config("alice") };
    let first = setup_bytes(&anew());
    // The server must see first that their connection has ended.
    let mut open = None;
    wait_until("the first run's keys make way", || {
        let mut client = slots_connection(&anew()).open("slots", None).unwrap();
        let answer = client.infer(&X);
        open = answer.is_ok_and(|answer| answer.setup.unwrap().client.sent_bytes == first).then_some(client);
        open.is_some()
    });
    let error = slots_connection(&anew()).open("slots", None).unwrap().infer(&X).unwrap_err().to_string();
    check_contains(&error, &["tacit keyset delete"]);
    open.unwrap().infer(&X).unwrap();
}

#[test]
fn keeps_keys_until_deleted() {
    let dir = Folder::new();
    let model = slots_model();
    let start = |quota: u64| Running::serving_in(&dir, slots_catalog(&model), |c| c.uploads_per_client = quota);
    let server = start(1 << 24);
    let first = setup_bytes(&server.config("alice"));
    let second = setup_bytes(&server.config("alice"));
    check_uploaded_once(first, second);
    assert_eq!(setup_bytes(&server.config("bob")), first);
    drop(server);
    let server = start(1 << 24);
    assert_eq!(setup_bytes(&server.config("alice")), second);
    let mut connection = slots_connection(&server.config("alice"));
    let uploads = connection.uploads().unwrap();
    let [only] = &uploads[..] else { panic!("{uploads:?}") };
    assert!(only.is_whole, "{only:?}");
    assert!(only.offered == Some(ModelAndBackend { model: "slots".into(), backend: "ckks".into() }), "{only:?}");
    // Another client cannot delete the keys by their name.
    let mut other = slots_connection(&server.config("bob"));
    assert_eq!(other.delete_uploads(&uploads).unwrap(), 0);
    assert_eq!(connection.delete_uploads(&uploads).unwrap(), 1);
    assert!(connection.uploads().unwrap().is_empty());
    assert_eq!(setup_bytes(&server.config("alice")), first);
    drop(server);
    // The client's quota is used up by keys whose secret it has lost.
    let server = start(only.bytes);
    fs::remove_dir_all(dir.join("alice-material/secrets")).unwrap();
    let mut client = slots_connection(&server.config("alice")).open("slots", None).unwrap();
    let error = client.infer(&X).unwrap_err().to_string();
    check_contains(&error, &["tacit keyset delete"]);
    drop(server);
    let server = Running::serving_in(&dir, slots_catalog(&model), |c| c.expire = Duration::ZERO);
    assert!(slots_connection(&server.config("bob")).uploads().unwrap().is_empty(), "expired");
}
