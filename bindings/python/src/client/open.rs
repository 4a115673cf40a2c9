//! Connects to a server and opens a model.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use tacit_backends::Registry;
use tacit_client::{ClientConfig, Connection};

use super::Client;
use crate::error::{TacitError, to_python};
use crate::interrupt::Stop;
use crate::{hex, lowered};

pub(super) fn open(
    config: ClientConfig,
    model: Option<String>,
    backend: Option<&str>,
    stopped: &Stop,
) -> PyResult<Client> {
    let mut connection = Connection::connect(Registry::standard(), config.clone()).map_err(to_python)?;
    let name = match model {
        Some(name) => name,
        None => only_model(&mut connection)?,
    };
    if stopped.is_set() {
        // The caller has gone already: open no model.
        return Err(TacitError::new_err("interrupted"));
    }
    let client = connection.open(&name, backend).map_err(to_python)?;
    let (opened, binding) = (client.model(), client.binding());
    Ok(Client {
        backend: client.backend().to_owned(),
        plan: lowered::plan_json(opened)?,
        digest: hex(&binding.plan),
        public_digest: hex(&binding.model),
        closer: client.closer(),
        inner: Arc::new(Mutex::new(Some(client))),
        config,
        model: name,
    })
}

fn only_model(connection: &mut Connection) -> PyResult<String> {
    let models = connection.models().map_err(to_python)?;
    match models.as_slice() {
        [model] => Ok(model.name.clone()),
        models => {
            let names: Vec<_> = models.iter().map(|m| m.name.as_str()).collect();
            Err(TacitError::new_err(format!("the server offers several models, choose one: {}", names.join(", "))))
        }
    }
}
