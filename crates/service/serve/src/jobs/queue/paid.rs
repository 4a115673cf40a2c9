//! Inputs that have cost their client's rate a token: each costs one once.
use super::{Owner, Queue};
use tacit_client::wire::{InputId, Request};
use tacit_ids::ClientId;

impl Queue {
    /// Whether a request costs its client's rate no token: its input has paid, or does not exist,
    /// so that the request is refused anyway.
    pub(crate) fn is_paid(&self, client: ClientId, request: &Request) -> bool {
        let owner = |name: InputId| self.names.get(&(client, name));
        let is_paid = |owner: &Owner| self.live.get(owner).is_some_and(|live| live.paid);
        match request {
            // One notice pays for one request.
            Request::Ask(ask) => {
                let notice = ask.notice.and_then(owner).filter(|owner| matches!(owner, Owner::Notice(_)));
                notice.is_some_and(is_paid) || owner(ask.name).is_some()
            }
            Request::Prepare { of: Some(name), .. } | Request::Infer { of: Some(name), .. } => {
                owner(*name).is_none_or(is_paid)
            }
            _ => false,
        }
    }

    /// Records that a request's input has paid.
    pub(crate) fn pay(&mut self, client: ClientId, request: &Request) {
        let name = match request {
            Request::Ask(ask) => Some(ask.name),
            Request::Prepare { of, .. } | Request::Infer { of, .. } => *of,
            _ => None,
        };
        let owner = name.and_then(|name| self.names.get(&(client, name)).copied());
        if let Some(live) = owner.and_then(|owner| self.live.get_mut(&owner)) {
            live.paid = true;
        }
    }
}
