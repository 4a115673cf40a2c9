//! What a client takes of its helper, and what it says of one that lies.
use crate::peer::*;
use std::fs;
use std::sync::Mutex;
use tacit_client::helper::wire::{ANSWER, ASK, Answer, Ask, BYTES, Standing};
use tacit_client::{Client, Connection, HelperLine};
use tacit_ids::MaterialId;
use tacit_net::Hello;
use tacit_store::seal::{Kind, write_file};
use tacit_store::{SealKey, Store, keys};

/// A sealed material, as a helper makes it: zeros are as good as any.
fn sealed(id: MaterialId, seal: &[u8; 32], bytes: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (path, key) = (dir.path().join("sealed"), SealKey::from_bytes(seal).unwrap());
    write_file(&path, Kind::Material(id), Some(&key), &vec![0; bytes as usize]).unwrap();
    fs::read(path).unwrap()
}

/// A helper that makes the first material for each order, and lies to asks of one kind.
fn helper(lie: Option<(char, Answer)>) -> Server {
    let made: Mutex<Vec<(MaterialId, Vec<u8>)>> = Mutex::default();
    let rest = net().costs().offline.client.stored_bytes - 16;
    Server::with(keys::load_helper(&key_folder(), "gateway").unwrap().1, move |_, peer| {
        peer.hello(Hello::without_model())?;
        loop {
            let ask = Ask::from_bytes(&peer.hear(ASK)?).unwrap();
            let mut made = made.lock().unwrap();
            let size = made.first().map_or(0, |(_, bytes)| bytes.len() as u64);
            let mut follow = vec![];
            let (kind, honest) = match &ask {
                Ask::Make { jobs, .. } => {
                    for job in jobs {
                        let again = made.first().map(|(_, bytes)| bytes.clone());
                        made.push((job.id, again.unwrap_or_else(|| sealed(job.id, &job.seal, rest))));
                    }
                    ('m', Answer::Done)
                }
                Ask::Stand { ids } => ('s', Answer::Standings(vec![Standing::Made { bytes: size }; ids.len()])),
                Ask::Fetch { id, from } => {
                    let (_, bytes) = made.iter().find(|(known, _)| known == id).unwrap();
                    follow = bytes[*from as usize..].to_vec();
                    ('f', Answer::Bytes { bytes: size })
                }
                Ask::Taken { .. } => ('t', Answer::Done),
            };
            let lie = lie.clone().filter(|(at, _)| *at == kind).map(|(_, answer)| answer);
            peer.tell(ANSWER, &lie.unwrap_or(honest))?;
            if !follow.is_empty() {
                peer.say(BYTES, &follow)?;
            }
        }
    })
}

fn line(helper: &Server) -> HelperLine {
    HelperLine::connect(&helper.address, &alice(), LONG, LONG).unwrap()
}

fn client(server: &Server, store: &Store) -> Client {
    Connection::connect(registry(), config(server, Some(store.dir()))).unwrap().open("net", Some("cheetah")).unwrap()
}

#[test]
fn lying_helper_costs_only_orders() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::honest(&Shared::default()));
    let store = folder(&dir.path().join("material"));
    let mut client = client(&server, &store);
    let stands = |standing: Standing| ('s', Answer::Standings(vec![standing]));
    let refused = || Answer::Refused { reason: "no\u{1b}[2J".into() };
    // The order's end, the lie, and the client's error.
    for (outcome, lie, why) in [
        ("none", ('m', refused()), "the helper at 127.0.0.1"),
        ("none", ('m', refused()), "no\u{fffd}[2J"),
        ("unsure", ('m', Answer::Standings(vec![])), "it answered Standings([])"),
        ("stays", ('s', Answer::Standings(vec![])), "it answered Standings([])"),
        ("stays", ('s', Answer::Standings(vec![Standing::Waits; 2])), "it answered Standings([Waits, Waits])"),
        ("stays", stands(Standing::Made { bytes: 600 }), "which was to have 600"),
        ("stays", ('f', Answer::Bytes { bytes: u64::MAX }), "it answered Bytes { bytes: 18446744073709551615 }"),
        ("stays", ('f', Answer::Bytes { bytes: 600 }), "must have 600 bytes"),
        ("stays", ('f', refused()), "no\u{fffd}[2J"),
        ("waits", stands(Standing::Waits), ""),
        ("lost", stands(Standing::Made { bytes: u64::MAX }), "are the most that it may have"),
        ("lost", stands(Standing::Failed { why: "no\u{7}luck".into() }), "no\u{fffd}luck"),
        ("lost", stands(Standing::Unknown), "does not know of it any more"),
    ] {
        let helper = helper(Some(lie));
        let mut line = line(&helper);
        let (mut waiting, mut lost) = (0, 0);
        let came = client.order(&mut line, 1).and_then(|_| client.collect(&mut line));
        let text = match came {
            Ok(came) => {
                (waiting, lost) = (came.waiting, came.lost.len());
                assert!(came.got.is_empty());
                came.lost.into_iter().map(|(_, why)| why).collect()
            }
            Err(error) => error.to_string(),
        };
        assert!(text.contains(why) && tacit_foreign::plain(&text) == text, "{text}; {why}");
        assert_eq!([waiting, lost], [outcome == "waits", outcome == "lost"].map(usize::from), "{why}");
        assert_eq!(ready(&store), []);
        let left: Vec<MaterialId> = store.ordered().unwrap().iter().map(|order| order.id).collect();
        assert_eq!(left.len(), usize::from(!matches!(outcome, "none" | "lost")), "{why}");
        store.end_orders(&left).unwrap();
    }
}

#[test]
fn delivers_each_material_once() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::honest(&Shared::default()));
    let store = folder(&dir.path().join("material"));
    let mut client = client(&server, &store);
    let helper = helper(None);
    let mut line = line(&helper);
    let [first, second] = client.order(&mut line, 2).unwrap()[..] else { panic!("two were ordered") };
    let came = client.collect(&mut line).unwrap();
    assert_eq!(came.got.iter().map(|got| got.id).collect::<Vec<_>>(), [first]);
    let [(lost, why)] = &came.lost[..] else { panic!("the same bytes again: {came:?}") };
    assert!(*lost == second && why.contains("not what this helper was ordered to make"), "{why}");
    assert_eq!(ready(&store), [first]);
    assert!(store.ordered().unwrap().is_empty());
    // A process that died before it struck off the order; the material was used since.
    store.claim(first, client.binding()).unwrap();
    store.order(&[first], client.binding(), line.helper()).unwrap();
    client.collect(&mut line).unwrap();
    assert_eq!(ready(&store), []);
    assert!(store.ordered().unwrap().is_empty());
}
