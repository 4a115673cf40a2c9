//! Everything that can go wrong with material, keys and sealed files, by name.
use crate::limits::MAX_MATERIAL_BYTES;
use crate::seal::{Kind, SealFault};
use std::path::{Path, PathBuf};
use tacit_ids::MaterialId;
use tacit_net::NetError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such material (or it was never finished).
    #[error("material {0} does not exist here: it was never made, or was destroyed")]
    NoMaterial(MaterialId),
    /// Material is used at most once, and its id with it.
    #[error("material {0} was used already: material serves one input, make new with `tacit prepare`")]
    Burnt(MaterialId),
    /// The id is taken by material that is ready or being made.
    #[error("material {0} exists already")]
    Exists(MaterialId),
    /// Material of another client, model or plan.
    #[error("material {id} belongs to another {what}")]
    WrongBinding {
        /// The material.
        id: MaterialId,
        /// "client", "model" or "plan", see [`Binding::other`](crate::Binding::other).
        what: &'static str,
    },
    /// A material file does not hold what was written.
    #[error("material {id} is damaged ({what}) and was destroyed")]
    Damaged {
        /// The material.
        id: MaterialId,
        /// What is wrong with the file.
        what: String,
    },
    /// More than [`MAX_MATERIAL_BYTES`](crate::MAX_MATERIAL_BYTES).
    #[error("material {id} has {bytes} bytes, the limit is {limit}", limit = MAX_MATERIAL_BYTES)]
    TooLarge {
        /// The material.
        id: MaterialId,
        /// Its size.
        bytes: u64,
    },
    /// The client has its share of the disk.
    #[error("{held} materials are stored for this client, as many as it may have")]
    Full {
        /// How many it has, those being made included.
        held: u64,
    },
    /// The client has its share of what is kept of what clients send once.
    #[error("{held} bytes are kept for this client, and it may have {most}")]
    NoRoom {
        /// Bytes that it has.
        held: u64,
        /// Bytes that it may have.
        most: u64,
    },
    /// What a client sends to be kept was deleted, or has expired, while it was being sent.
    #[error("what this client sends is not kept any more: it was deleted in the meantime")]
    UploadEnded,
    /// The folder holds the other party's halves.
    #[error(
        "{path} holds the {holds}'s halves of material: the {wanted} needs a folder of its own, or both halves would lie in one place"
    )]
    OtherParty {
        /// The folder.
        path: PathBuf,
        /// "client" or "server".
        holds: &'static str,
        /// The other one.
        wanted: &'static str,
    },
    /// A folder that is to be managed holds what was not made for it.
    #[error(
        "{path} holds `{found}`, which is nothing of the {party}'s {what}, and the folder has no mark of tacit's: nothing in it was \
         touched; name a new or an empty folder, or move away what else it holds"
    )]
    NotManaged {
        /// The folder.
        path: PathBuf,
        /// The name of something in it.
        found: String,
        /// "material".
        what: &'static str,
        /// "client".
        party: &'static str,
    },
    /// A managed folder of another party or kind, or of a later version.
    #[error(
        "{path} holds {holds}, and {wanted} needs a folder of its own: nothing in it was touched; name another folder"
    )]
    OtherFolder {
        /// The folder.
        path: PathBuf,
        /// "the client's material (version 1)".
        holds: String,
        /// The same of what it was opened for.
        wanted: String,
    },
    /// No folder of material.
    #[error("{0}: there is no folder of material here")]
    NoFolder(PathBuf),
    /// A file or folder cannot be used.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted: "reading".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// Material that no file has the name of cannot be written or read.
    #[error("material in a file without a name: {0}")]
    Spool(std::io::Error),
    /// A file or folder that is not this user's alone, and cannot be made so.
    #[error("{path} cannot hold secrets: {what}")]
    NotPrivate {
        /// The file or folder.
        path: PathBuf,
        /// Why, and what to do.
        what: String,
    },
    /// The ledger cannot be read or written.
    #[error("ledger {path}: {source}")]
    Ledger {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The ledger is none that this program can use.
    #[error("ledger {path}: {what}")]
    ForeignLedger {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What was made sealed is opened without a key.
    #[error("{0} is sealed: give the key that it was sealed with (--seal)")]
    KeyNeeded(PathBuf),
    /// A key is given, and the file is not sealed: nobody knows who has put it there.
    #[error(
        "{0} is not sealed, so that the key says nothing of who made it: seal it first (`tacit model seal`), or leave the key out"
    )]
    Plain(PathBuf),
    /// Another key than the one that the folder was made with.
    #[error("{0} is sealed with another key than the one given")]
    WrongKey(PathBuf),
    /// A key is given for a folder that holds material in the clear.
    #[error(
        "{0} was made without sealing, so a key cannot protect what it holds: choose a new folder for sealed material, or use up or \
         discard what is here, remove the folder, and begin again with the key"
    )]
    NotSealed(PathBuf),
    /// A sealed file does not open.
    #[error("{path}: {fault}")]
    Sealed {
        /// The file.
        path: PathBuf,
        /// Why not.
        fault: SealFault,
    },
    /// What is to be written would replace something else.
    #[error(
        "{path} exists, and holds something else than {kind}: nothing is overwritten; choose another name, or remove it first"
    )]
    NotReplaced {
        /// The file.
        path: PathBuf,
        /// What was to be written there.
        kind: Kind,
    },
    /// A file is larger than what its reader takes.
    #[error("{path}: {bytes} bytes of {kind}, the limit is {limit}")]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        kind: Kind,
        /// Its size.
        bytes: u64,
        /// Most that was asked for.
        limit: u64,
    },
    /// A key for sealing cannot be had.
    #[error("the sealing key from {origin}: {what}")]
    SealKey {
        /// Where it was to come from.
        origin: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Certificates cannot be made or used.
    #[error("keys: {0}")]
    Keys(#[from] rcgen::Error),
    /// A key folder has a certificate authority already.
    #[error("{0}: there is a CA here already: add clients with `tacit keys add-client`, or choose another folder")]
    CaExists(PathBuf),
    /// A name that no client can have.
    #[error("`{0}` cannot name a client: use 1 to 64 letters, digits, `-` and `_`; not `ca` or `server`")]
    ClientName(String),
    /// A client is to be made twice.
    #[error("client `{0}` is named twice: each client has a name of its own")]
    ClientTwice(String),
    /// What clients cannot reach a server by.
    #[error("`{host}` cannot be in a certificate (a DNS name or an IP address can, without port or scheme): {source}")]
    Host {
        /// What was given.
        host: String,
        /// What is wrong with it.
        source: NetError,
    },
    /// A certificate that is not for servers, where the server's is.
    #[error(
        "{0} is not a server's certificate (a client's, copied here?): `tacit keys init` makes server.pem and server.key, which belong here"
    )]
    NotServer(PathBuf),
    /// TLS refuses the keys.
    #[error(
        "the keys in {} ({name}.pem, {name}.key, ca.pem) cannot be used: {source}; make new ones with `tacit keys init`, or copy these \
         again from where they were made",
        .dir.display()
    )]
    Unusable {
        /// Their folder.
        dir: PathBuf,
        /// Whose they are.
        name: String,
        /// What is wrong, and with which of them.
        source: NetError,
    },
    /// The operating system gives no random bytes.
    #[error("no randomness from the operating system: {0}")]
    Random(#[from] getrandom::Error),
    /// The system clock stands before this program was made.
    #[error("the clock of this machine is not set: it shows a time before 2026; set it first")]
    Clock,
    /// The clock stands far from where it should by when a folder was last used.
    #[error(
        "the clock of this machine shows a time {days} days {way} that at which {folder} was last used: nothing was destroyed or \
         counted by it. Set the clock if it is wrong; if it is right, say so once (--accept-clock), and what is too old by it expires"
    )]
    ClockJump {
        /// The folder.
        folder: PathBuf,
        /// How far it stands off.
        days: u64,
        /// "after" or "before".
        way: &'static str,
    },
}

impl StoreError {
    /// An operating-system error with the file it is about.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// Whether this is a clock that has jumped.
    #[must_use]
    pub fn is_of_clock(&self) -> bool {
        matches!(self, Self::ClockJump { .. })
    }

    /// Whether this says something about the material that was asked for, and nothing about this machine:
    /// what a peer may be told.
    #[must_use]
    pub fn about_material(&self) -> bool {
        matches!(
            self,
            Self::NoMaterial(_)
                | Self::Burnt(_)
                | Self::Exists(_)
                | Self::WrongBinding { .. }
                | Self::Damaged { .. }
                | Self::TooLarge { .. }
        )
    }
}
