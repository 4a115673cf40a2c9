//! State of the front: nodes, their leases, and the node of each client. Pure: times are passed in.
//!
//! A client is at one node at a time, and a node serves a client only while it holds a lease. The
//! node counts the lease from the moment *before* it asked for it, the registry from the later
//! moment when it granted it. So the node has stopped when the registry's count ends, whatever the
//! network did, and only then may its clients be sent elsewhere. No client's inputs are at two
//! nodes at once. Inputs and material never pass the front, so it cannot send one twice.
use super::counts::StoredCounts;
use super::placement::{Site, choose};
use super::report::Report;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use tacit_backends::Registry;
use tacit_ids::ClientId;

const MAX_LOSSES: usize = 1000;
const MAX_NODES: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry_after: None }
    }

    pub(super) fn for_now(reason: impl Into<String>, retry_after: Duration) -> Self {
        Self { reason: reason.into(), retry_after: Some(retry_after) }
    }
}

/// Answers of the day by client, and their limit.
struct Quotas {
    per_day: Option<u64>,
    day: i64,
    used: BTreeMap<ClientId, u64>,
}

impl Quotas {
    fn new(per_day: Option<u64>, stored: StoredCounts) -> Self {
        Self { per_day, day: stored.day, used: stored.used }
    }

    /// Starts a new day. A clock that goes back resets no quota.
    fn turn(&mut self, day: i64) {
        if day > self.day {
            self.day = day;
            self.used.clear();
        }
    }

    /// Returns the answers that a client has left, `None` without a limit; refused at zero.
    fn remaining(&mut self, client: ClientId, day: i64) -> Result<Option<u64>, Refused> {
        self.turn(day);
        let Some(per_day) = self.per_day else { return Ok(None) };
        match per_day.saturating_sub(self.used.get(&client).copied().unwrap_or(0)) {
            0 => Err(Refused::for_good(format!("the {per_day} answers of the day are used up"))),
            remaining => Ok(Some(remaining)),
        }
    }

    /// Returns the clients with new answers, and their totals.
    fn count(&mut self, previous: &Report, current: &Report, day: i64) -> Vec<(ClientId, u64)> {
        self.turn(day);
        let mut updated = Vec::new();
        for (client, answered) in &current.answered {
            let new = answered.saturating_sub(previous.answered.get(client).copied().unwrap_or(0));
            let used = self.used.entry(*client).or_default();
            *used = used.saturating_add(new);
            if new > 0 {
                updated.push((*client, *used));
            }
        }
        updated
    }
}

pub(super) struct Node {
    pub(super) address: String,
    pub(super) run: u64,
    pub(super) lease_until: Instant,
    pub(super) report: Report,
    pub(super) leaving: bool,
    /// Version of `clients`.
    version: u64,
    /// The clients that the node should admit.
    pub(super) clients: BTreeSet<ClientId>,
}

/// The node that answers a client from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) client: ClientId,
    pub(super) node: String,
    pub(super) address: String,
    pub(super) run: u64,
    /// The node admits the client once it applies this version of its list.
    version: u64,
    /// The node's dealer, as in [`Report`]: a client must use the dealer that its server orders
    /// material from.
    pub(super) dealer: String,
}

pub(super) struct Loss {
    pub(super) node: String,
    /// Number of clients, which are sent elsewhere when they ask again.
    pub(super) clients: usize,
    /// Number of materials written off: their clients destroy their halves when they connect
    /// elsewhere.
    pub(super) stock: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// The clients to admit; `None` if the node applies this version already.
    pub(super) clients: Option<Vec<ClientId>>,
    pub(super) version: u64,
}

pub(super) struct NodeRegistry {
    pub(super) lease: Duration,
    key_copies: usize,
    pub(super) nodes: BTreeMap<String, Node>,
    placements: BTreeMap<ClientId, String>,
    pub(super) losses: VecDeque<Loss>,
    quotas: Quotas,
    runs: u64,
    /// Counts not written to disk yet.
    unkept: BTreeMap<ClientId, u64>,
}

impl NodeRegistry {
    /// `lease` is how long nodes serve after asking, `per_day` a client's answers a day,
    /// `key_copies` the number of nodes for a client with a large key set.
    pub(super) fn new(lease: Duration, per_day: Option<u64>, key_copies: usize) -> Self {
        let quotas = Quotas::new(per_day, StoredCounts::default());
        let (nodes, placements, losses) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { lease, key_copies, nodes, placements, losses, quotas, runs: 0, unkept: BTreeMap::new() }
    }

    pub(super) fn with_counts(self, stored: StoredCounts) -> Self {
        Self { quotas: Quotas::new(self.quotas.per_day, stored), ..self }
    }

    /// The day, and its counts that are not on disk; none without a quota.
    pub(super) fn unkept_counts(&self) -> (i64, Vec<(ClientId, u64)>) {
        let counts = self.unkept.iter().map(|(client, used)| (*client, *used)).collect();
        (self.quotas.day, counts)
    }

    pub(super) fn mark_counts_kept(&mut self) {
        self.unkept.clear();
    }

    /// Adds a node that has started, and returns the number of its run. Fails if an earlier run
    /// still holds its lease, or [`MAX_NODES`] have joined.
    pub(super) fn join(&mut self, name: &str, address: &str, now: Instant) -> Result<u64, Refused> {
        self.expire(now);
        if let Some(node) = self.nodes.get(name) {
            let reason = format!("an earlier run of {name} still holds its lease");
            return Err(Refused::for_now(reason, node.lease_until - now));
        }
        if self.nodes.len() >= MAX_NODES {
            return Err(Refused::for_now(format!("{MAX_NODES} nodes have joined"), self.lease));
        }
        self.runs += 1;
        let node = Node {
            address: address.into(),
            run: self.runs,
            lease_until: now + self.lease,
            report: Report::default(),
            leaving: false,
            version: 0,
            clients: BTreeSet::new(),
        };
        self.nodes.insert(name.into(), node);
        Ok(self.runs)
    }

    /// Renews the lease of a node and takes its report. Fails if this run's lease is over.
    pub(super) fn renew(
        &mut self,
        name: &str,
        run: u64,
        report: Report,
        now: Instant,
        day: i64,
    ) -> Result<Granted, Refused> {
        self.expire(now);
        let lease = self.lease;
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) else {
            let reason = format!("{name} has no lease in this run: its clients may be elsewhere by now");
            return Err(Refused::for_good(reason));
        };
        let previous_day = self.quotas.day;
        let updated = self.quotas.count(&node.report, &report, day);
        if self.quotas.day != previous_day {
            self.unkept.clear();
        }
        if self.quotas.per_day.is_some() {
            self.unkept.extend(updated);
        }
        (node.report, node.lease_until) = (report, now + lease);
        // Sending ten thousand clients with every lease would be most of the front's work.
        let is_known = node.report.admitted == node.version;
        let clients = (!is_known).then(|| node.clients.iter().copied().collect());
        Ok(Granted { clients, version: node.version })
    }

    pub(super) fn leave(&mut self, name: &str, run: u64, now: Instant) {
        self.expire(now);
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) {
            node.leaving = true;
        }
    }

    /// Ends the lease of a node whose server has stopped.
    pub(super) fn end(&mut self, name: &str, run: u64, now: Instant) {
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) {
            node.lease_until = now;
        }
        self.expire(now);
    }

    /// Removes nodes whose lease is over, and records each as a loss.
    pub(super) fn expire(&mut self, now: Instant) {
        let expired = self.nodes.iter().filter(|(_, node)| node.lease_until <= now).map(|(name, _)| name.clone());
        for name in expired.collect::<Vec<_>>() {
            let node = self.nodes.remove(&name).expect("it was found among them");
            for client in &node.clients {
                self.placements.remove(client);
            }
            if self.losses.len() == MAX_LOSSES {
                self.losses.pop_front();
            }
            let stock = node.report.stock_in_all();
            self.losses.push_back(Loss { node: name, clients: node.clients.len(), stock });
        }
    }

    /// Returns the node that answers the client's inputs of the model: always the same until that
    /// node is gone. Fails if the client's answers of the day are used up, or its node, or every
    /// node, lacks the model.
    pub(super) fn place(&mut self, client: ClientId, model: &str, now: Instant, day: i64) -> Result<Ticket, Refused> {
        self.expire(now);
        self.quotas.remaining(client, day)?;
        let name = match self.placements.get(&client) {
            Some(home) if !self.nodes[home].report.models.contains_key(model) => {
                return Err(Refused::for_good(format!("the client is at {home}, which does not serve {model}")));
            }
            Some(home) => home.clone(),
            None => self.assign_node(client, model)?,
        };
        let node = &self.nodes[&name];
        let (address, dealer) = (node.address.clone(), node.report.dealer.clone());
        Ok(Ticket { client, node: name, address, run: node.run, version: node.version, dealer })
    }

    /// Adds a client without a node to the list of the best node.
    fn assign_node(&mut self, client: ClientId, model: &str) -> Result<String, Refused> {
        let sites = self.open_nodes(model).map(|(name, node)| Site {
            name,
            waiting_s: node.report.waiting_s,
            stock: node.report.stock.get(&client).copied().unwrap_or(0),
        });
        let backends = Registry::standard();
        let has_keys = self
            .open_nodes(model)
            .flat_map(|(_, node)| &node.report.models[model])
            .any(|id| backends.get(id).is_ok_and(|backend| backend.keeps_keys()));
        let chosen = choose(client, sites.collect(), has_keys.then_some(self.key_copies));
        let chosen = chosen.ok_or_else(|| Refused::for_now(format!("no node serves {model}"), self.lease))?;
        let name = chosen.name.to_owned();
        let node = self.nodes.get_mut(&name).expect("it was chosen among them");
        node.clients.insert(client);
        node.version += 1;
        self.placements.insert(client, name.clone());
        Ok(name)
    }

    /// The nodes that take new clients of a model.
    fn open_nodes(&self, model: &str) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter().filter(move |(_, n)| !n.leaving && n.report.models.contains_key(model))
    }

    /// Whether the ticket's node applies a list with its client; false if the node is gone.
    pub(super) fn is_admitted(&self, ticket: &Ticket) -> bool {
        let node = self.nodes.get(&ticket.node).filter(|node| node.run == ticket.run);
        node.is_some_and(|node| node.clients.contains(&ticket.client) && node.report.admitted >= ticket.version)
    }
}

#[cfg(test)]
#[path = "node_registry_tests.rs"]
mod tests;
