//! The toy back end keeps to the seam: phases over a channel, material as bytes, foreign bytes refused.
use crate::common::{expected, model};
use std::thread;
use tacit_backends::toy::Toy;
use tacit_backends::*;
use tacit_net::{Channel, Phase, mem_pair};

const X: [f32; 4] = [1.5, -2.0, 3.0, 0.25];

fn lower(options: &str) -> (std::sync::Arc<dyn ServerModel>, std::sync::Arc<dyn ClientModel>) {
    let server = Toy::default().lower(&model(1), &options.parse().unwrap()).unwrap();
    let client = Toy::default().open(server.public_bytes()).unwrap();
    assert_eq!(server.digest(), client.digest());
    (server, client)
}

/// Both parties through setup, offline with a detour over bytes, and online; the payload bytes of both
/// directions by phase.
fn run(options: &str) -> (Vec<f64>, [[u64; 2]; 3]) {
    let (server, client) = lower(options);
    let prepares = client.preparation() == Preparation::TwoParty;
    let (mut ours, mut theirs) = mem_pair();
    let serving = thread::spawn(move || -> Result<Channel, BackendError> {
        let mut side = server.connect(&ConnectionResources::default())?;
        side.setup(&mut theirs)?;
        theirs.set_phase(Phase::Offline);
        let material = if prepares { side.offline(&mut theirs)? } else { Material::nothing() };
        let bytes = material.to_bytes().unwrap();
        let material = if prepares { side.read_material(&bytes)? } else { material };
        theirs.set_phase(Phase::Online);
        side.online(&mut theirs, material)?;
        theirs.flush()?;
        Ok(theirs)
    });
    let mut side = client.connect(&ConnectionResources::default()).unwrap();
    side.setup(&mut ours).unwrap();
    ours.set_phase(Phase::Offline);
    let material = if prepares { side.offline(&mut ours).unwrap() } else { Material::nothing() };
    ours.set_phase(Phase::Online);
    let answer = side.online(&mut ours, material, &X).unwrap();
    let theirs = serving.join().unwrap().unwrap();
    let sent = |c: &Channel, phase| c.traffic(phase).sent;
    (answer, Phase::ALL.map(|phase| [sent(&ours, phase), sent(&theirs, phase)]))
}

#[test]
fn answers_are_exact_at_planned_cost() {
    for options in ["", "preparation=nothing"] {
        let (answer, bytes) = run(options);
        assert_eq!(answer, expected(1, &X), "{options}");
        let costs = lower(options).1.costs();
        let stated = [costs.setup, costs.offline, costs.online].map(|p| [p.up_bytes, p.down_bytes]);
        assert_eq!(bytes, stated, "{options}");
    }
}

#[test]
fn refuses_foreign_material_and_wrong_order() {
    let (server, client) = lower("");
    let side = server.connect(&ConnectionResources::default()).unwrap();
    assert!(matches!(side.read_material(&[1; 9]), Err(BackendError::Material { .. })), "the client's half");
    assert!(matches!(side.read_material(&[2; 8]), Err(BackendError::Material { .. })), "cut short");
    let (mut ours, _theirs) = mem_pair();
    let mut side = client.connect(&ConnectionResources::default()).unwrap();
    assert!(matches!(side.offline(&mut ours), Err(BackendError::Misuse(_))), "the setup comes first");
    assert!(matches!(side.online(&mut ours, Material::nothing(), &X), Err(BackendError::Misuse(_))));
    let error = Toy::default().lower(&model(1), &"preparation=dealt".parse().unwrap()).err().unwrap();
    assert!(error.to_string().contains("two-party"), "{error}");
}

#[test]
fn rejects_foreign_public_parts() {
    let good = lower("").0.public_bytes().to_vec();
    for cut in 0..good.len() {
        assert!(Toy::default().open(&good[..cut]).is_err(), "cut at {cut}");
    }
    for i in 0..good.len() {
        let mut bytes = good.clone();
        bytes[i] ^= 0xff;
        // Another model, or none: never a panic.
        drop(Toy::default().open(&bytes));
    }
    assert!(matches!(Toy::default().open(&[good, vec![0]].concat()), Err(BackendError::Public { .. })));
}
