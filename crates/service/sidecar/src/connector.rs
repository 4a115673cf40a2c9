//! Connecting to the server.
use crate::lane::Lane;
use crate::metadata::ModelMetadata;
use std::path::PathBuf;
use tacit_backends::{Preparation, Registry};
use tacit_client::{Client, ClientConfig, ClientError, Connection};
use tacit_store::keys;

#[derive(Clone)]
pub(crate) struct Connector {
    pub registry: Registry,
    pub config: ClientConfig,
    /// Folder and name of the client's certificate.
    pub keys: Option<(PathBuf, String)>,
}

impl Connector {
    pub(crate) fn connection(&self) -> Result<Connection, ClientError> {
        let mut config = self.config.clone();
        // A renewed certificate is used without a restart.
        if let Some((folder, name)) = &self.keys {
            match keys::load_client(folder, name) {
                Ok(identity) => config.identity = identity,
                Err(e) => tracing::warn!("the certificate is used that was read before: {e}"),
            }
        }
        Connection::connect(self.registry.clone(), config)
    }

    pub(crate) fn open(&self, lane: &Lane, labels: &[String]) -> Result<(Client, ModelMetadata), ClientError> {
        let client = self.connection()?.open(lane.name(), lane.backend())?;
        let (interface, backend) = (client.interface().clone(), client.backend().to_owned());
        let trust = self.registry.get(&backend)?.trust();
        let prepares = client.model().preparation() != Preparation::Nothing;
        Ok((client, ModelMetadata { interface, backend, trust, prepares, labels: labels.to_vec() }))
    }
}
