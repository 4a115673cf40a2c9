//! Errors of material, keys and sealed files.
use crate::limits::MAX_MATERIAL_BYTES;
use crate::seal::{Kind, SealFault};
use std::io;
use std::path::{Path, PathBuf};
use tacit_ids::MaterialId;
use tacit_net::NetError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such material, or it was never finished.
    #[error("material {0} does not exist here: it was never made, or was destroyed")]
    NoMaterial(MaterialId),
    /// The material, and so its id, was used already.
    #[error("material {0} was used already: material serves one input, make new with `tacit prepare`")]
    Burnt(MaterialId),
    /// The id belongs to material that is ready or being made.
    #[error("material {0} exists already")]
    Exists(MaterialId),
    /// The material is of another client, model or plan.
    #[error("material {id} belongs to another {what}")]
    WrongBinding {
        /// The material.
        id: MaterialId,
        /// "client", "model" or "plan", see [`Binding::first_difference`](crate::Binding::first_difference).
        what: &'static str,
    },
    /// The content of a material file has changed.
    #[error("material {id} is damaged ({what}) and was destroyed")]
    Damaged {
        /// The material.
        id: MaterialId,
        /// What is wrong with the file.
        what: String,
    },
    /// The material is larger than [`MAX_MATERIAL_BYTES`](crate::MAX_MATERIAL_BYTES).
    #[error("material {id} has {bytes} bytes, the limit is {limit}", limit = MAX_MATERIAL_BYTES)]
    TooLarge {
        /// The material.
        id: MaterialId,
        /// Its size.
        bytes: u64,
    },
    /// The client has as many materials as it may have.
    #[error("{held} materials are stored for this client, as many as it may have")]
    Full {
        /// Number of its materials, those being made included.
        held: u64,
    },
    /// The client's uploads would exceed its quota.
    #[error("{held} bytes are kept for this client, and it may have {most}")]
    NoRoom {
        /// Bytes of its uploads.
        held: u64,
        /// Bytes that it may have.
        most: u64,
    },
    /// The upload was deleted, or expired, while it was being sent.
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
        /// The party that opened it.
        wanted: &'static str,
    },
    /// A folder that is to be managed holds other files.
    #[error(
        "{path} holds `{found}`, which is nothing of the {party}'s {what}, and the folder has no mark of tacit's: nothing in it was \
         touched; name a new or an empty folder, or move away what else it holds"
    )]
    NotManaged {
        /// The folder.
        path: PathBuf,
        /// The name of one of these files.
        found: String,
        /// The content of the managed folder: "material".
        what: &'static str,
        /// The party of the managed folder: "client".
        party: &'static str,
    },
    /// A managed folder of another party or kind, or of a later version.
    #[error(
        "{path} holds {holds}, and {wanted} needs a folder of its own: nothing in it was touched; name another folder"
    )]
    OtherFolder {
        /// The folder.
        path: PathBuf,
        /// Its purpose: "the client's material (version 1)".
        holds: String,
        /// The purpose for which it was opened.
        wanted: String,
    },
    /// There is no folder of material.
    #[error("{0}: there is no folder of material here")]
    NoFolder(PathBuf),
    /// A file or folder cannot be used.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted: "reading".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Temporary material, in a file without a name, cannot be written or read.
    #[error("material in a file without a name: {0}")]
    Spool(io::Error),
    /// Other users have access to a file or folder of secrets, and this cannot be changed.
    #[error("{path} cannot hold secrets: {what}")]
    NotPrivate {
        /// The file or folder.
        path: PathBuf,
        /// Cause and remedy.
        what: String,
    },
    /// The ledger cannot be read or written.
    #[error("ledger {path}: {source}")]
    Ledger {
        /// The database.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The ledger is not one that this program can use.
    #[error("ledger {path}: {what}")]
    ForeignLedger {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A sealed file or folder is opened without a key.
    #[error("{0} is sealed: give the key that it was sealed with (--seal)")]
    KeyNeeded(PathBuf),
    /// A key is given, and the file is not sealed: its origin is unknown.
    #[error(
        "{0} is not sealed, so that the key says nothing of who made it: seal it first (`tacit model seal`), or leave the key out"
    )]
    Plain(PathBuf),
    /// The folder was made with another key.
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
        /// The fault.
        fault: SealFault,
    },
    /// Writing would replace a file of another kind.
    #[error(
        "{path} exists, and holds something else than {kind}: nothing is overwritten; choose another name, or remove it first"
    )]
    NotReplaced {
        /// The file.
        path: PathBuf,
        /// Kind of the file to be written.
        kind: Kind,
    },
    /// A file is larger than its reader's limit.
    #[error("{path}: {bytes} bytes of {kind}, the limit is {limit}")]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Expected kind of the file.
        kind: Kind,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The sealing key cannot be read.
    #[error("the sealing key from {origin}: {what}")]
    SealKey {
        /// Source of the key.
        origin: String,
        /// Cause and remedy.
        what: String,
    },
    /// Certificates cannot be made or used.
    #[error("keys: {0}")]
    Keys(#[from] rcgen::Error),
    /// A key folder has a certificate authority already.
    #[error("{0}: there is a CA here already: add clients with `tacit keys add-client`, or choose another folder")]
    CaExists(PathBuf),
    /// A name that a client cannot have.
    #[error("`{0}` cannot name a client: use 1 to 64 letters, digits, `-` and `_`; not `ca` or `server`")]
    ClientName(String),
    /// A client is named twice.
    #[error("client `{0}` is named twice: each client has a name of its own")]
    ClientTwice(String),
    /// A host that a certificate cannot name.
    #[error("`{host}` cannot be in a certificate (a DNS name or an IP address can, without port or scheme): {source}")]
    Host {
        /// The host.
        host: String,
        /// The fault.
        source: NetError,
    },
    /// The certificate at the place of the server's is not for servers.
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
        /// Base name of the files.
        name: String,
        /// The fault, and the file that has it.
        source: NetError,
    },
    /// The operating system gives no random bytes.
    #[error("no randomness from the operating system: {0}")]
    Random(#[from] getrandom::Error),
    /// The system clock is earlier than this program.
    #[error("the clock of this machine is not set: it shows a time before 2026; set it first")]
    Clock,
    /// The clock is far from its expected time, judged by the last use of a folder.
    #[error(
        "the clock of this machine shows a time {days} days {way} that at which {folder} was last used: nothing was destroyed or \
         counted by it. Set the clock if it is wrong; if it is right, say so once (--accept-clock), and what is too old by it expires"
    )]
    ClockJump {
        /// The folder.
        folder: PathBuf,
        /// Difference in days.
        days: u64,
        /// "after" or "before".
        way: &'static str,
    },
}

impl StoreError {
    /// Adds what was attempted ("reading") and the file to an operating-system error.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// As [`file`](Self::file) for a system call's result; `None` if the file does not exist.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub fn if_found<T>(result: io::Result<T>, doing: &'static str, path: &Path) -> Result<Option<T>, Self> {
        match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some).map_err(Self::file(doing, path)),
        }
    }

    /// Whether a peer may learn the error: it is about the requested material alone and reveals
    /// nothing about this machine.
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
