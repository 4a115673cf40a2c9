//! Rate limits: remembers which inputs have used a token of their client's limit, so that later
//! requests for the same input are free.
use super::{Owner, Queue};
use tacit_client::wire::{InputId, Request};
use tacit_ids::ClientId;

impl Queue {
    /// Whether a request costs its client's rate no token: its input has paid, or does not exist,
    /// so that the request is refused anyway.
    pub(crate) fn is_paid(&self, client: ClientId, request: &Request) -> bool {
        match request {
            // One notice pays for one request.
            Request::Ask(ask) => {
                let named = ask.notice.and_then(|name| self.owner(client, name));
                let notice = named.filter(|owner| matches!(owner, Owner::Notice(_)));
                notice.is_some_and(|notice| self.has_paid(notice)) || self.owner(client, ask.name).is_some()
            }
            Request::Prepare { of: Some(name), .. } | Request::Infer { of: Some(name), .. } => {
                self.owner(client, *name).is_none_or(|owner| self.has_paid(owner))
            }
            _ => false,
        }
    }

    fn owner(&self, client: ClientId, name: InputId) -> Option<&Owner> {
        self.inputs.names.get(&(client, name))
    }

    fn has_paid(&self, owner: &Owner) -> bool {
        self.inputs.live.get(owner).is_some_and(|live| live.flags.is_paid)
    }

    pub(crate) fn pay(&mut self, client: ClientId, request: &Request) {
        let name = match request {
            Request::Ask(ask) => Some(ask.name),
            Request::Prepare { of: input, .. } | Request::Infer { of: input, .. } => *input,
            _ => None,
        };
        let owner = name.and_then(|name| self.owner(client, name).copied());
        if let Some(live) = owner.and_then(|owner| self.inputs.live.get_mut(&owner)) {
            live.flags.is_paid = true;
        }
    }
}
