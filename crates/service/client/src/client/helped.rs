//! Material that this client's helper makes: ordering, fetching and assembling it.
use crate::helper::HelperLine;
use crate::helper::wire::{Answer, Ask, Job, MAX_JOBS, Standing, What};
use crate::{Client, ClientError, SecretsFolder};
use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tacit_backends::Preparation;
use tacit_backends::seam::{MaterialSeed, digest, fresh_seed};
use tacit_ids::{ClientId, MaterialId};
use tacit_store::managed::is_hex_named;
use tacit_store::seal::{Kind, read_own_file};
use tacit_store::{
    Binding, FolderKind, MAX_MATERIAL_BYTES, ManagedFolder, Origin, SealKey, Store, StoreError, open_private,
};
use zeroize::Zeroizing;

/// Subfolder of the material folder for downloads from a helper.
const FETCHED: &str = "fetched";
const FOLDER: FolderKind = FolderKind::private("client", "sealed material that is being fetched");

/// Most bytes that a seal adds to a material, beside a tag of 16 bytes for each 64 KiB.
const MAX_AROUND: u64 = 1 << 10;

/// Result of fetching from a helper.
#[derive(Debug, Default)]
pub struct HelperDelivery {
    /// Material that is ready now.
    pub got: Vec<FetchedMaterial>,
    /// Ordered material that will not be made, and why. It can be ordered again, under other ids.
    pub lost: Vec<(MaterialId, String)>,
    /// Number of materials of this model that the helper has yet to make.
    pub waiting: usize,
}

/// Material that was fetched.
#[derive(Debug, Clone, Copy)]
pub struct FetchedMaterial {
    /// Its name.
    pub id: MaterialId,
    /// Bytes of the material.
    pub bytes: u64,
    /// Bytes that the helper sent for it, sealed.
    pub sealed: u64,
}

/// The master key from which seeds and seals for a helper are derived. It stays at this client.
struct Master(Zeroizing<[u8; 32]>);

/// What identifies a material among all that are derived from a master key.
fn parts<'a>(id: &'a MaterialId, binding: &'a Binding) -> [&'a [u8]; 4] {
    [&id.0, &binding.client.0, &binding.model, &binding.plan]
}

impl Master {
    fn seed(&self, id: MaterialId, binding: &Binding) -> MaterialSeed {
        MaterialSeed::derive(&self.0, &parts(&id, binding))
    }

    fn seal(&self, id: MaterialId, binding: &Binding) -> Zeroizing<[u8; 32]> {
        let [id, client, model, plan] = parts(&id, binding);
        let parts = [&self.0[..], id, client, model, plan];
        Zeroizing::new(digest("tacit 2026-11 seal of what a helper returns", &parts))
    }

    fn job(&self, id: MaterialId, binding: &Binding) -> Job {
        Job { id, seed: self.seed(id, binding).into_seed().0, seal: *self.seal(id, binding) }
    }
}

impl Client {
    /// Orders material for `count` inputs from this client's helper (`docs/threat-model.md`);
    /// returns its ids.
    ///
    /// # Errors
    /// [`ClientError::Usage`] without a store, or if two parties do not make the back end's
    /// material; [`ClientError::Helper`]; errors of the store or the connection to the helper.
    /// [`collect`](Self::collect) reports orders that were placed in spite of an error.
    pub fn order(&mut self, line: &mut HelperLine, count: usize) -> Result<Vec<MaterialId>, ClientError> {
        self.check_stores()?;
        if self.model.preparation() != Preparation::TwoParty {
            let text =
                format!("a helper makes nothing for the back end {}: its material is not two parties'", self.backend);
            return Err(ClientError::Usage(text));
        }
        self.set_batch(1)?;
        let master = self.master(line.helper())?;
        let store = self.folder();
        let what = What {
            model: self.model_name.clone(),
            backend: self.backend.clone(),
            public: self.binding.model,
            plan: self.binding.plan,
            folder: store.folder(),
        };
        let mut ordered = Vec::new();
        while ordered.len() < count {
            let ids = (0..MAX_JOBS.min(count - ordered.len())).map(|_| MaterialId::random());
            let ids: Vec<MaterialId> = ids.collect::<Result<_, _>>()?;
            // Noted before the helper knows them, so that the server's halves do not count as lost.
            store.order(&ids, self.binding, line.helper())?;
            let jobs = ids.iter().map(|id| master.job(*id, &self.binding)).collect();
            match line.ask(&Ask::Make { what: what.clone(), jobs }) {
                Ok(Answer::Done) => ordered.extend(ids),
                Ok(other) => return Err(line.misplaced(&other)),
                Err(e) => {
                    if let ClientError::Helper { .. } = e {
                        store.end_orders(&ids)?;
                    }
                    return Err(e);
                }
            }
        }
        Ok(ordered)
    }

    /// Fetches the finished material of this model from the helper, stores it, and has the helper
    /// delete it. Resumes an interrupted fetch.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub fn collect(&mut self, line: &mut HelperLine) -> Result<HelperDelivery, ClientError> {
        self.check_stores()?;
        self.set_batch(1)?;
        let (store, helper) = (self.folder(), line.helper());
        let master = self.master(helper)?;
        let ordered = store.ordered()?;
        let mine = ordered.iter().filter(|ordered| ordered.helper == helper && ordered.binding == self.binding);
        let ids: Vec<MaterialId> = mine.map(|ordered| ordered.id).collect();
        let mut collected = HelperDelivery::default();
        for part in ids.chunks(MAX_JOBS) {
            let standings = match line.ask(&Ask::Stand { ids: part.to_vec() })? {
                Answer::Standings(standings) if standings.len() == part.len() => standings,
                other => return Err(line.misplaced(&other)),
            };
            for (&id, standing) in part.iter().zip(standings) {
                let came = match standing {
                    Standing::Waits => {
                        collected.waiting += 1;
                        continue;
                    }
                    Standing::Made { bytes } => self.fetched(line, &master, id, bytes)?,
                    Standing::Failed { why } => Err(why),
                    Standing::Unknown => Err("the helper does not know of it any more: it was started anew".into()),
                };
                store.end_orders(&[id])?;
                remove(&fetched_path(&store, id))?;
                match came {
                    Ok(got) => collected.got.push(got),
                    Err(why) => collected.lost.push((id, why)),
                }
                match line.ask(&Ask::Taken { ids: vec![id] })? {
                    Answer::Done => {}
                    other => return Err(line.misplaced(&other)),
                }
            }
        }
        Ok(collected)
    }

    /// Fetches one material and stores it; the inner error says what is wrong with the fetched
    /// bytes.
    fn fetched(
        &self,
        line: &mut HelperLine,
        master: &Master,
        id: MaterialId,
        sealed: u64,
    ) -> Result<Result<FetchedMaterial, String>, ClientError> {
        let most = self.material_bytes + (self.material_bytes >> 10) + MAX_AROUND;
        if sealed > most {
            return Ok(Err(format!("the helper has {sealed} bytes for it, and {most} are the most that it may have")));
        }
        let store = self.folder();
        let path = fetched_path(&store, id);
        fetch(line, id, &path, sealed)?;
        let key = SealKey::from_bytes(&*master.seal(id, &self.binding))?;
        let rest = match read_own_file(&path, Kind::Material(id), Some(&key), MAX_MATERIAL_BYTES) {
            Ok(rest) => rest,
            Err(e @ StoreError::File { .. }) => return Err(e.into()),
            Err(e) => return Ok(Err(format!("what came is not what this helper was ordered to make: {e}"))),
        };
        let material = match self.side.with_seed(master.seed(id, &self.binding), &rest) {
            Ok(material) => material.to_bytes()?,
            Err(e) => return Ok(Err(format!("what came does not fit the model: {e}"))),
        };
        let peer = self.stock.as_ref().and_then(crate::stock::Stock::peer).expect("it was checked that there is one");
        let origin = Origin { backend: &self.backend, peer, maker: Some(line.helper()) };
        match store.put(id, self.binding, origin, &material) {
            // Stored before, by a process that ended before it removed the order.
            Ok(()) | Err(StoreError::Burnt(_) | StoreError::Exists(_)) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(Ok(FetchedMaterial { id, bytes: material.len() as u64, sealed }))
    }

    fn folder(&self) -> Arc<Store> {
        Arc::clone(self.stock.as_ref().expect("it was checked that there is a folder").store())
    }

    /// The master key for a helper; draws one if there is none.
    fn master(&self, helper: ClientId) -> Result<Master, ClientError> {
        let folder = self.config.store.as_ref();
        let folder = folder.ok_or_else(|| ClientError::Usage("a helper's master key needs a folder".into()))?;
        let secrets = SecretsFolder::new(folder, self.config.seal.clone(), self.config.expire);
        let mut fresh = Zeroizing::new(Vec::with_capacity(32));
        for _ in 0..2 {
            fresh.extend_from_slice(&fresh_seed()?.0);
        }
        let name = digest("tacit 2026-11 master key for a helper", &[&self.binding.client.0, &helper.0]);
        let kept = secrets.master(&name, fresh)?;
        let mut master = Zeroizing::new([0; 32]);
        if kept.len() != master.len() {
            let text = format!("the master key for a helper has {} bytes, and not 32", kept.len());
            return Err(ClientError::Usage(text));
        }
        master.copy_from_slice(&kept);
        Ok(Master(master))
    }
}

fn fetched_path(store: &Store, id: MaterialId) -> PathBuf {
    store.dir().join(FETCHED).join(format!("{id}.sealed"))
}

fn is_fetched(path: &Path) -> bool {
    is_hex_named(path, ".sealed", 32)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    StoreError::if_found(fs::remove_file(path), "removing", path)?;
    Ok(())
}

/// Fetches the missing rest of a sealed material.
fn fetch(line: &mut HelperLine, id: MaterialId, path: &Path, bytes: u64) -> Result<(), ClientError> {
    ManagedFolder::open_or_mark(path.parent().expect("a file in a folder"), FOLDER, is_fetched)?;
    let mut file = open_private(path)?;
    let mut from = file.metadata().map_err(StoreError::file("reading", path))?.len();
    if from > bytes {
        // The file is of another version of the material.
        file.set_len(0).map_err(StoreError::file("writing", path))?;
        from = 0;
    }
    file.seek(SeekFrom::Start(from)).map_err(StoreError::file("writing", path))?;
    let mut out = BufWriter::new(file);
    let all = line.fetch(id, from, &mut out)?;
    out.flush().map_err(StoreError::file("writing", path))?;
    let found = File::open(path).and_then(|file| file.metadata()).map_err(StoreError::file("reading", path))?.len();
    if all != bytes || found != bytes {
        remove(path)?;
        return Err(line.wrong(format!("{found} of {all} bytes came of material {id}, which was to have {bytes}")));
    }
    Ok(())
}
