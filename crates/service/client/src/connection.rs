//! Connecting to a server and opening a model.
use crate::ask::{ask, expect_reply};
use crate::client::ConnectionParts;
use crate::closer::Closer;
use crate::config::ClientConfig;
use crate::stock::{self, Reconciled, Stock, StoredMaterial};
use crate::wire::Upload;
use crate::wire::{ModelInfo, PUBLIC, REQUEST, Reply, Request, misplaced, public_digest, recv_reply, send};
use crate::{Client, ClientError, SecretsFolder};
use std::sync::Arc;
use std::time::Instant;
use tacit_backends::seam::MAX_PUBLIC_BYTES;
use tacit_backends::{Options, Registry, Trust};
use tacit_foreign::plain;
use tacit_ids::MaterialId;
use tacit_net::{Channel, Hello, NetError, PacedTransport, TcpTransport, Transport, handshake, split_address};
use tacit_store::{Party, Role, Store};

/// A connection on which no model is open yet.
pub struct Connection {
    registry: Registry,
    config: ClientConfig,
    channel: Channel,
    closer: Arc<Closer>,
    stock: Option<Stock>,
}

impl Connection {
    /// Connects, authenticates and agrees on the version. With a folder of stored material, both
    /// parties then destroy the halves that the other has lost.
    ///
    /// # Errors
    /// The folder is unusable; the server cannot be reached, is another one, does not know this
    /// client, speaks another version, or is full.
    pub fn connect(registry: Registry, mut config: ClientConfig) -> Result<Self, ClientError> {
        config.device()?;
        if let (None, Some(dir)) = (&config.resources.secrets, &config.store) {
            config.resources.secrets = Some(Arc::new(SecretsFolder::new(dir, config.seal.clone(), config.expire)));
        }
        // Opens the folder first: a folder that this client cannot use is an error before the
        // server is contacted.
        let store = config.store.as_deref();
        let store = store.map(|dir| Store::open(dir, Party::Client, config.seal.clone())).transpose()?;
        if config.accept_clock {
            store.iter().try_for_each(Store::accept_clock)?;
        }
        config.resources.secrets.iter().try_for_each(|secrets| secrets.expire())?;
        let (mut channel, closer) = Self::welcomed(&config).map_err(|e| config.not_connected(e))?;
        let client = config.identity.fingerprint;
        let stock = store.map(|store| Stock::reconcile(store, client, config.expire, &mut channel)).transpose();
        let stock = stock.map_err(|e| e.of(&channel, "the comparison of material"))?;
        Ok(Self { registry, config, channel, closer, stock })
    }

    /// A connection after the server's [`Reply::Welcome`](crate::wire::Reply::Welcome).
    fn welcomed(config: &ClientConfig) -> Result<(Channel, Arc<Closer>), ClientError> {
        let end = Instant::now() + config.connect_timeout;
        let (host, _) = split_address(&config.address)?;
        let mut tcp = TcpTransport::connect(&config.address, config.connect_timeout)?;
        tcp.set_stall_timeout(config.stall_timeout).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
        tcp.set_deadline(Some(end));
        let closer = Arc::new(Closer::new(tcp.closer()?));
        let tls = config.identity.tls.connect(tcp, config.server_name.as_deref().unwrap_or(host))?;
        if matches!(tls.peer_certificate().map(Role::from_certificate), Some(Role::Helper { .. })) {
            // A helper may listen as well, for its owner's orders.
            return Err(NetError::Tls("there is a client's helper, and no server".into()).into());
        }
        let transport: Box<dyn Transport> = match config.pace {
            Some(rate) => Box::new(PacedTransport::new(tls, rate)),
            None => Box::new(tls),
        };
        let mut channel = Channel::new(transport);
        channel.set_deadline(Some(end));
        handshake(&mut channel, &Hello::without_model())?;
        match recv_reply(&mut channel)? {
            Reply::Welcome => {}
            Reply::Refused { reason, .. } | Reply::Goodbye { reason } => {
                return Err(ClientError::Refused { request: "the connection", reason, again: None });
            }
            other => return Err(misplaced("the greeting", &other).into()),
        }
        channel.set_deadline(None);
        channel.set_patience(config.patience);
        Ok((channel, closer))
    }

    /// Halves that connecting destroyed; `None` without a folder.
    #[must_use]
    pub fn reconciliation(&self) -> Option<Reconciled> {
        self.stock.as_ref().map(Stock::settled)
    }

    /// Lists all stored material of this client at either party, for any model, oldest first.
    ///
    /// # Errors
    /// [`ClientError::Usage`] without a folder; errors of the store or the connection.
    pub fn material(&mut self) -> Result<Vec<StoredMaterial>, ClientError> {
        match &self.stock {
            Some(stock) => stock.list(&mut self.channel),
            None => Err(ClientError::Usage("listing material needs the folder that it is stored in".into())),
        }
    }

    /// Destroys material of this client at both parties, for any model. Returns how many of the ids
    /// either party had.
    ///
    /// # Errors
    /// Errors of the store or the connection.
    pub fn discard(&mut self, ids: &[MaterialId]) -> Result<usize, ClientError> {
        stock::discard(self.stock.as_ref(), ids, &mut self.channel)
    }

    /// Lists the uploads of this client that the server stores, for any model, oldest first.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn uploads(&mut self) -> Result<Vec<Upload>, ClientError> {
        Ok(expect_reply!(&mut self.channel, Request::Uploads, Reply::Uploads(uploads) => uploads))
    }

    /// For each upload, first destroys the local secret of its plan (the server names the plan),
    /// then asks the server to delete the upload. Returns how many uploads the server had. The next
    /// use of such a model draws a new secret and uploads new keys. See also
    /// [`SecretsFolder::forget_all`].
    ///
    /// # Errors
    /// Errors of the folder of secrets or the connection.
    pub fn delete_uploads(&mut self, which: &[Upload]) -> Result<u64, ClientError> {
        let mut gone = 0;
        for upload in which {
            // The local secret goes first: its deletion is what protects the client.
            self.config.resources.secrets.iter().try_for_each(|secrets| secrets.forget(&upload.plan))?;
            let request = Request::DeleteUpload { name: upload.name };
            gone += expect_reply!(&mut self.channel, request, Reply::Deleted { uploads } => u64::from(uploads));
        }
        Ok(gone)
    }

    /// Tells the server that the connection ends.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn close(mut self) -> Result<(), ClientError> {
        Ok(send(&mut self.channel, REQUEST, &Request::Bye)?)
    }

    /// Lists the models on offer, with their back ends.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn models(&mut self) -> Result<Vec<ModelInfo>, ClientError> {
        Ok(expect_reply!(&mut self.channel, Request::List, Reply::Models(models) => models))
    }

    /// Opens a model with a back end for the rest of the connection: receives its public part and
    /// plans it. If `backend` is `None`, takes the first on offer that this client's registry knows
    /// and whose server does not see the input.
    ///
    /// # Errors
    /// The server does not offer the model with this back end (the error lists the alternatives);
    /// this registry does not know the back end; the public part does not pass its checks; or the
    /// parties' plans differ. The connection is closed then.
    pub fn open(mut self, model: &str, backend: Option<&str>) -> Result<Client, ClientError> {
        let backend = match backend {
            Some(name) => name.to_owned(),
            None => self.choose(model)?,
        };
        let known = Arc::clone(self.registry.get(&backend)?);
        let device = self.config.device()?;
        let request = Request::Open { model: model.into(), backend: backend.clone(), device };
        let bytes = match ask(&mut self.channel, &request)? {
            Reply::Model { bytes } if bytes <= MAX_PUBLIC_BYTES => bytes as usize,
            Reply::Model { bytes } => {
                let detail = format!("{bytes} bytes, the limit is {MAX_PUBLIC_BYTES}");
                return Err(ClientError::Unexpected { what: "public part", detail });
            }
            other => return Err(misplaced(request.name(), &other).into()),
        };
        let during = request.name();
        let public =
            self.channel.recv_max(PUBLIC, bytes).map_err(|e| ClientError::from(e).of(&self.channel, during))?;
        let digest = public_digest(&public);
        let opened = self.config.opened.get_or(&backend, digest, || known.open(&public))?;
        required(&self.config.require, model, &opened.describe(), &digest, opened.waives())?;
        let compared = handshake(&mut self.channel, &Hello::for_model(opened.digest(), digest));
        compared.map_err(|e| ClientError::from(e).of(&self.channel, during))?;
        let Self { registry, config, channel, closer, stock } = self;
        let parts = ConnectionParts { registry, config, channel, closer, stock };
        Client::new(parts, opened, model.to_owned(), backend, digest)
    }

    fn choose(&mut self, model: &str) -> Result<String, ClientError> {
        let models = self.models()?;
        let Some(info) = models.iter().find(|m| m.name == model) else {
            let known: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
            return Err(ClientError::NoModel { name: model.into(), known: known.join(", ") });
        };
        choose(&self.registry, model, info.backends.iter().map(|offer| offer.backend.as_str()))
    }
}

/// Chooses the first back end that this client knows and whose server does not see the input. Back
/// ends that need more trust must be named by the client.
pub(crate) fn choose<'a>(
    registry: &Registry,
    model: &str,
    backends: impl Iterator<Item = &'a str>,
) -> Result<String, ClientError> {
    let mut passed_over = Vec::new();
    for backend in backends {
        let why = match registry.get(backend).map(|known| known.trust()) {
            Ok(Trust::TwoParty) => return Ok(backend.to_owned()),
            Ok(Trust::Dealer) => "trusts a dealer",
            Ok(_) => "the server sees the input",
            Err(_) => "this client does not have it",
        };
        passed_over.push(format!("`{backend}` ({why})"));
    }
    Err(ClientError::NoBackend { model: model.into(), offered: passed_over.join(", ") })
}

/// Key in `require` for the digest of the public part, which fixes everything that the client
/// receives of the model; no back end may use it as an option name.
const PUBLIC_DIGEST: &str = "public";

/// Refuses a model that was not lowered with these options, or whose public part has another
/// digest.
fn required(
    require: &Options,
    model: &str,
    public: &serde_json::Value,
    digest: &[u8; 32],
    waived: Option<(&'static str, &'static str)>,
) -> Result<(), ClientError> {
    if let Some((option, value)) = waived
        && !require.iter().any(|(asked, wanted)| (asked, wanted) == (option, value))
    {
        return Err(ClientError::Waived { model: model.into(), option, value });
    }
    for (option, wanted) in require.iter() {
        let stated = match &public["options"][option] {
            _ if option == PUBLIC_DIGEST => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            serde_json::Value::Null => "nothing".to_owned(),
            serde_json::Value::String(text) => plain(&text.to_ascii_lowercase()),
            other => plain(&other.to_string()),
        };
        if stated != wanted {
            let option = option.to_owned();
            return Err(ClientError::NotAsRequired { model: model.into(), option, wanted: wanted.to_owned(), stated });
        }
    }
    Ok(())
}

impl Client {
    /// Opens another connection for the same model and back end, without a folder of material.
    ///
    /// # Errors
    /// As [`Connection::connect`] and [`Connection::open`].
    pub fn connect_again(&self) -> Result<Self, ClientError> {
        let connection =
            Connection::connect(self.registry.clone(), ClientConfig { store: None, ..self.config.clone() })?;
        let mut client = connection.open(self.model_name(), Some(self.backend()))?;
        client.set_terms(self.terms);
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_required_options() {
        let public = serde_json::json!({"options": {"level": "L2", "relu_drop": 0}});
        let check = |require: &str, public: &serde_json::Value| {
            required(&require.parse().unwrap(), "digits", public, &[0xab; 32], None).map_err(|e| e.to_string())
        };
        for (require, is_met) in [
            ("", true),
            ("level=l2", true),
            ("level=l2,relu_drop=0", true),
            ("level=l1", false),
            ("exchanges=1", false),
            (&format!("public={}", "ab".repeat(32)), true),
            (&format!("level=l2,public={}", "ac".repeat(32)), false),
        ] {
            assert_eq!(check(require, &public).is_ok(), is_met, "{require}");
        }
        let error = check("level=l2", &serde_json::json!({})).unwrap_err();
        assert!(error.contains("level=l2") && error.contains("nothing"), "{error}");
    }

    #[test]
    fn waived_protection_needs_consent() {
        let public = serde_json::json!({"options": {"round": false}});
        let check =
            |require: &str| required(&require.parse().unwrap(), "digits", &public, &[0; 32], Some(("round", "false")));
        assert!(check("round=false").is_ok() && check("round=true").is_err());
        assert!(check("").unwrap_err().to_string().contains("--require round=false"));
    }
}
