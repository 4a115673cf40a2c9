//! Keys that outlive connections and processes: uploads that are resumed, sets that are found
//! again, sets that are refused.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tacit_arith::prg::{Prg, Seed, SplitPrg};
use tacit_graph::{Model, Watch};
use tacit_he::ckks::{KeyMaker, PartFile};
use tacit_mpc::run_pair;
use tacit_net::{Channel, HEADER_BYTES, NetError, tcp_pair};
use zeroize::Zeroizing;

use super::Ckks;
use super::client::{Keys, Shared};
use super::model::plan_digest;
use super::networks_for_tests::{input, residual};
use super::public::Public;
use super::tests::{assert_near, assert_words, both, serve, set_up};
use super::wire::{DIGEST, HELLO, HELLO_BYTES, Hello, KEY, WELCOME, WELCOME_BYTES, Welcome, key_digest};
use tacit_backend_api::seam::{NoRoom, Secrets, UploadName, Uploads};
use tacit_backend_api::{Backend, BackendError, ClientModel, ConnectionResources, Material, Result, ServerModel};

/// A stored secret of a version: a seed and a name.
fn stored_secret(version: u8, byte: u8) -> Vec<u8> {
    [&[version][..], &[byte; 16], &[byte + 1; 32]].concat()
}

/// The keys that follow from a secret of the current version.
fn derive_keys(shared: &Shared, byte: u8) -> Keys {
    Keys::from_stored(&shared.context, &stored_secret(2, byte), true).unwrap()
}

/// A folder that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tacit-kept-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client's secrets and a server's record of its uploads, in memory except for the files.
struct TestStore {
    folder: PathBuf,
    max_bytes: u64,
    is_deleted: AtomicBool,
    whole: Mutex<HashMap<UploadName, bool>>,
    secret: Mutex<Option<Vec<u8>>>,
}

impl TestStore {
    fn new(folder: &Path, max_bytes: u64) -> Arc<Self> {
        let (is_deleted, secret) = (AtomicBool::new(false), Mutex::new(Some(stored_secret(2, 9))));
        Arc::new(Self { folder: folder.to_owned(), max_bytes, is_deleted, whole: Mutex::default(), secret })
    }

    /// The connection resources of client and server.
    fn resources(self: &Arc<Self>) -> [ConnectionResources; 2] {
        [
            ConnectionResources { secrets: Some(self.clone()), ..ConnectionResources::default() },
            ConnectionResources { uploads: Some(self.clone()), ..ConnectionResources::default() },
        ]
    }
}

impl Secrets for TestStore {
    fn secret(&self, _: &[u8; 32], fresh: Zeroizing<Vec<u8>>) -> Result<(Zeroizing<Vec<u8>>, bool)> {
        let mut stored = self.secret.lock().unwrap();
        let was_stored = stored.is_some();
        Ok((Zeroizing::new(stored.get_or_insert(fresh.to_vec()).clone()), was_stored))
    }

    fn forget(&self, _: &[u8; 32]) -> Result<()> {
        *self.secret.lock().unwrap() = None;
        Ok(())
    }

    fn expire(&self) -> Result<()> {
        Ok(())
    }
}

impl Uploads for TestStore {
    fn place(
        &self,
        _: &[u8; 32],
        name: &UploadName,
        bytes: u64,
        lasts: bool,
    ) -> Result<Result<(PathBuf, bool), NoRoom>> {
        assert!(lasts);
        if bytes > self.max_bytes {
            return Ok(Err(NoRoom { held: 5, most: self.max_bytes }));
        }
        let is_whole = *self.whole.lock().unwrap().entry(*name).or_default();
        Ok(Ok((self.folder.join("set"), is_whole)))
    }

    fn set_whole(&self, _: &[u8; 32], name: &UploadName, is_whole: bool) -> Result<()> {
        if self.is_deleted.load(Ordering::Relaxed) {
            return Err(BackendError::Keeping { what: "it was deleted in the meantime".into() });
        }
        self.whole.lock().unwrap().insert(*name, is_whole);
        Ok(())
    }
}

/// Opens the client's state anew, as another process would.
fn shared(server: &dyn ServerModel) -> Shared {
    let bytes = server.public_bytes();
    Shared::new(Public::read(bytes).unwrap(), plan_digest(bytes)).unwrap()
}

/// Sends the next keys of the first secret's set, and breaks the connection off.
fn break_off(server: &Arc<dyn ServerModel>, resources: &ConnectionResources, there: u64, keys: usize) {
    let shared = shared(&**server);
    let send = |channel: &mut Channel| {
        let Keys { secret, name, .. } = derive_keys(&shared, 9);
        channel.send(HELLO, &Hello { name: *name, lasts: true }.to_bytes()).unwrap();
        channel.flush().unwrap();
        let welcome = Welcome::from_bytes(&channel.recv(WELCOME, WELCOME_BYTES).unwrap());
        assert_eq!(welcome, Ok(Welcome::Send { there }));
        let mut prg = SplitPrg::new(Prg::from_seed(Seed([there as u8; 16])));
        let mut maker = KeyMaker::new(&secret, &mut prg);
        for (index, record) in shared.public.keys.iter().enumerate().skip(there as usize).take(keys) {
            let mut bytes = Vec::new();
            maker.make(record.id()).unwrap().write(&shared.context, &mut bytes).unwrap();
            let digest = key_digest(&shared.digest, &*name, index, &bytes);
            bytes.extend_from_slice(&digest);
            channel.send(KEY, &bytes).unwrap();
        }
        channel.flush().unwrap();
    };
    let serve = |channel: &mut Channel| server.clone().connect(resources).unwrap().setup(channel);
    let ((), served) = run_pair(send, serve);
    assert!(matches!(served, Err(BackendError::Net(_))), "{served:?}");
}

/// Runs one inference with a client that has opened the model anew. Returns the bytes that its setup
/// sends, and the bytes that stored keys save.
fn once(model: &Model, server: &Arc<dyn ServerModel>, resources: &[ConnectionResources; 2]) -> Result<[u64; 2]> {
    let client: Arc<dyn ClientModel> = Ckks.open(server.public_bytes())?;
    let [client_resources, server_resources] = resources.clone().map(|resources| resources.stopped_by(&resources.stop));
    let x = input(model, 5);
    let ask = |channel: &mut Channel| {
        let mut side = set_up(&client, &client_resources, channel)?;
        let sent = channel.total_traffic().sent;
        Ok::<_, BackendError>((side.online(channel, Material::nothing(), &x)?, sent))
    };
    let (asked, served) = run_pair(ask, |channel| serve(server, &server_resources, channel, 1));
    let (answer, sent) = asked?;
    served?;
    assert_near(server, &x, &answer);
    Ok([sent, client_resources.spared.load(Ordering::Relaxed)])
}

#[test]
fn upload_resumes_and_keys_are_sent_once() {
    let (model, folder) = (residual(), Folder::new("resume"));
    let (server, _) = both(&model, "rotations=chained");
    let place = TestStore::new(&folder.0, u64::MAX);
    let resources = place.resources();
    break_off(&server, &resources[1], 0, 2);
    break_off(&server, &resources[1], 2, 1);
    let full_bytes = server.costs().setup.up_bytes;
    let [sent, spared] = once(&model, &server, &resources).unwrap();
    assert!(spared > 0);
    assert!(sent > 1 << 20, "{sent}");
    assert!(sent + spared <= full_bytes + 1000, "{sent} and {spared} of {full_bytes}");
    // Both ends are new processes.
    let again = Ckks.load(server.public_bytes(), &server.private_bytes().unwrap()).unwrap();
    let [second, spared] = once(&model, &again, &resources).unwrap();
    assert!(second < 200, "{second}");
    assert_eq!(spared, full_bytes);
    // A damaged key is sent again, with all keys after it.
    drop(server);
    let path = folder.0.join("set");
    let length = path.metadata().unwrap().len();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0x55; 16], length - 100).unwrap();
    let last = Ckks.load(again.public_bytes(), &again.private_bytes().unwrap()).unwrap();
    let [third, _] = once(&model, &last, &resources).unwrap();
    assert!((10_001..sent).contains(&third), "{third}");
    assert!(once(&model, &last, &resources).unwrap()[0] < 200);
    // The file is damaged without the server's notice. A setup does not read the file through, the
    // next inference fails, and then the keys are sent again.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&[0xaa; 16], length - 100).unwrap();
    file.set_modified(modified).unwrap();
    assert!(once(&model, &last, &resources).is_err());
    assert_eq!(once(&model, &last, &resources).unwrap()[0], third);
}

/// A name is only a claim: a set in memory belongs to the client that sent it.
#[test]
fn key_sets_in_memory_are_bound_to_their_client() {
    let (model, folder) = (residual(), Folder::new("memory"));
    let (server, _) = both(&model, "rotations=chained");
    // Both clients have the same secret, and so the same name.
    let [secrets, _] = TestStore::new(&folder.0, 0).resources();
    let client_resources =
        |client: u8| [secrets.clone(), ConnectionResources { client: [client; 32], ..ConnectionResources::default() }];
    let sent = |client: u8| once(&model, &server, &client_resources(client)).unwrap()[0];
    let full_bytes = sent(1);
    assert!(full_bytes > 1 << 20, "{full_bytes}");
    assert!(sent(1) < 200);
    assert_eq!(sent(2), full_bytes);
    assert!(sent(1) < 200);
    assert!(sent(2) < 200);
}

#[test]
fn refuses_key_sets_without_room_and_of_others() {
    let (model, folder) = (residual(), Folder::new("refused"));
    let (server, _) = both(&model, "rotations=chained");
    let refused = |place: &Arc<TestStore>| once(&model, &server, &place.resources()).unwrap_err().to_string();
    let small = TestStore::new(&folder.0, 1000);
    let error = refused(&small);
    assert_words(&error, &["keeps 1000 bytes", "tacit keyset delete"]);
    // The server has a set that this client has never made.
    let place = TestStore::new(&folder.0, u64::MAX);
    once(&model, &server, &place.resources()).unwrap();
    let shared = shared(&*server);
    let name = [10; 32];
    assert_eq!(*place.whole.lock().unwrap(), HashMap::from([(name, true)]));
    // The file of a whole set belongs to another client or plan: the server does not use it, and
    // the keys are sent anew.
    let stranger = TestStore::new(&folder.0, u64::MAX);
    *stranger.secret.lock().unwrap() = Some(stored_secret(2, 3));
    stranger.whole.lock().unwrap().insert([4; 32], true);
    assert!(once(&model, &server, &stranger.resources()).unwrap()[0] > 1 << 20);
    // A secret of another version.
    *place.secret.lock().unwrap() = Some(stored_secret(1, 9));
    assert!(refused(&place).contains("another version"));
    // Two connections at once.
    *place.secret.lock().unwrap() = Some(stored_secret(2, 9));
    place.set_whole(&[0; 32], &name, false).unwrap();
    let part = PartFile::resume(&folder.0.join("set"), &shared.context, &[0; 32], &[], |_| false).unwrap().unwrap();
    assert!(refused(&place).contains("sends these keys now"));
    drop(part);
    // The server claims to know a name that it has never received.
    let fresh = TestStore::new(&folder.0, u64::MAX);
    *fresh.secret.lock().unwrap() = None;
    let lie = |channel: &mut Channel| {
        channel.recv(HELLO, HELLO_BYTES).unwrap();
        channel.send(WELCOME, &Welcome::Known.to_bytes()).unwrap();
        channel.flush().unwrap();
    };
    let client = Ckks.open(server.public_bytes()).unwrap();
    // The claim is refused each time.
    for _ in 0..2 {
        let ask = |channel: &mut Channel| set_up(&client, &fresh.resources()[0], channel).map(drop);
        let (asked, ()) = run_pair(ask, lie);
        assert!(asked.unwrap_err().to_string().contains("never made"));
        assert!(fresh.secret.lock().unwrap().is_none());
    }
}

/// A setup that breaks off before the server's first message is resumed under the same name. A name
/// without a stored secret is marked as such.
#[test]
fn key_set_name_outlives_broken_connection() {
    let (_, client) = both(&residual(), "rotations=chained");
    let name = |answer: Option<Welcome>| {
        let ask = |channel: &mut Channel| set_up(&client, &ConnectionResources::default(), channel).map(drop);
        let hear = |channel: &mut Channel| {
            let hello = Hello::from_bytes(&channel.recv(HELLO, HELLO_BYTES).unwrap()).unwrap();
            answer.iter().for_each(|answer| channel.send(WELCOME, &answer.to_bytes()).unwrap());
            channel.flush().unwrap();
            hello
        };
        let (asked, hello) = run_pair(ask, hear);
        (asked.unwrap_err().to_string(), hello)
    };
    let (_, first) = name(None);
    assert_eq!(name(Some(Welcome::Busy)).1, first);
    // The server has received a name, and no key.
    let (error, again) = name(Some(Welcome::Known));
    assert_eq!(again, first);
    assert!(!first.lasts);
    assert_words(&error, &["never made"]);
    assert_ne!(name(None).1, first);
}

/// Keys whose row in the store is deleted are not requested: their file would grow uncounted.
#[test]
fn deleted_key_set_is_not_requested() {
    let (model, folder) = (residual(), Folder::new("deleted"));
    let (server, _) = both(&model, "rotations=chained");
    let place = TestStore::new(&folder.0, u64::MAX);
    place.is_deleted.store(true, Ordering::Relaxed);
    let hello = |channel: &mut Channel| {
        channel.send(HELLO, &Hello { name: [7; 32], lasts: true }.to_bytes()).unwrap();
        channel.flush().unwrap();
        channel.recv(WELCOME, WELCOME_BYTES)
    };
    let serve = |channel: &mut Channel| server.clone().connect(&place.resources()[1]).unwrap().setup(channel);
    let (asked, served) = run_pair(hello, serve);
    assert!(asked.is_err(), "{served:?}");
    assert!(matches!(served, Err(BackendError::Keeping { .. })), "{served:?}");
}

#[test]
fn signs_of_life_keep_client_waiting() {
    let (model, patience) = (residual(), Duration::from_secs(2));
    let (server, client) = both(&model, "rotations=chained");
    let x = input(&model, 8);
    let run = |every: Duration| {
        let (mut client_channel, mut server_channel) = tcp_pair().unwrap();
        client_channel.set_stall_timeout(patience).unwrap();
        server_channel.set_sign_of_life(every);
        let (server, x, client) = (server.clone(), x.clone(), client.clone());
        let serving = std::thread::spawn(move || {
            let slow = Watch::new(move |step| {
                // Sleep in some of about ten steps.
                std::thread::sleep(if step.done % 4 == 1 { 2 * patience } else { Duration::ZERO });
                true
            });
            let resources = ConnectionResources { watch: slow, ..ConnectionResources::default() };
            let done = serve(&server, &resources, &mut server_channel, 1);
            (done, server_channel.total_traffic())
        });
        let mut side = set_up(&client, &ConnectionResources::default(), &mut client_channel).unwrap();
        let answer = side.online(&mut client_channel, Material::nothing(), &x);
        let traffic = client_channel.total_traffic();
        drop(client_channel);
        (answer, traffic, serving.join().unwrap())
    };
    let (silent, _, _) = run(Duration::from_secs(3600));
    assert!(matches!(silent, Err(BackendError::Net(NetError::Stalled { .. }))));
    let (answer, traffic, (done, server_traffic)) = run(patience / 10);
    done.unwrap();
    assert_near(&server, &x, &answer.unwrap());
    // The first client has sent the keys, so only their confirmation is missing.
    let stated = server.costs().setup.down_bytes + server.costs().online.down_bytes;
    assert_eq!(traffic.received, stated - (DIGEST + HEADER_BYTES) as u64);
    assert_eq!((server_traffic.received, server_traffic.sent), (traffic.sent, traffic.received));
}
