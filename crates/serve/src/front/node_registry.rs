//! What the front knows: nodes, their leases, and which client is at which node. Pure: times are given.
//!
//! A client is at one node at a time. A node serves a client only while it holds a lease. The node counts the
//! lease from the moment *before* it asked for it, the registry from the later moment when it granted it. So
//! the node has stopped when the registry's count is over, whatever became of the network between them, and
//! only then may its clients be sent elsewhere. Nobody's inputs are at two nodes at once; inputs and material
//! never pass the front, so it cannot send one twice.
use super::counts::StoredCounts;
use super::placement::{Site, choose};
use super::report::Report;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use tacit_ids::ClientId;

/// Losses that are remembered for whoever looks.
const MAX_LOSSES: usize = 1000;
/// Nodes that may have joined.
const MAX_NODES: usize = 4096;

/// A request that is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: String,
    /// When asking again may help, if ever.
    pub(super) again: Option<Duration>,
}

impl Refused {
    fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: None }
    }

    pub(super) fn for_now(reason: impl Into<String>, again: Duration) -> Self {
        Self { reason: reason.into(), again: Some(again) }
    }
}

/// Answers of a client that count against its day.
struct Quotas {
    per_day: Option<u64>,
    day: i64,
    used: BTreeMap<ClientId, u64>,
}

impl Quotas {
    /// Goes on from what was kept of a day.
    fn new(per_day: Option<u64>, kept: StoredCounts) -> Self {
        Self { per_day, day: kept.day, used: kept.used }
    }

    /// A clock that goes back gives nobody a new quota.
    fn turn(&mut self, day: i64) {
        if day > self.day {
            self.day = day;
            self.used.clear();
        }
    }

    /// Answers that the client has left, over all nodes; refused where there are none.
    fn left(&mut self, client: ClientId, day: i64) -> Result<Option<u64>, Refused> {
        self.turn(day);
        let Some(per_day) = self.per_day else { return Ok(None) };
        match per_day.saturating_sub(self.used.get(&client).copied().unwrap_or(0)) {
            0 => Err(Refused::for_good(format!("the {per_day} answers of the day are used up"))),
            left => Ok(Some(left)),
        }
    }

    /// What clients have had that are told of more.
    fn count(&mut self, before: &Report, after: &Report, day: i64) -> Vec<(ClientId, u64)> {
        self.turn(day);
        let mut more = Vec::new();
        for (client, answered) in &after.answered {
            let new = answered.saturating_sub(before.answered.get(client).copied().unwrap_or(0));
            let used = self.used.entry(*client).or_default();
            *used = used.saturating_add(new);
            if new > 0 {
                more.push((*client, *used));
            }
        }
        more
    }
}

/// A node that has joined.
pub(super) struct Node {
    pub(super) address: String,
    /// Which run of it.
    pub(super) run: u64,
    pub(super) lease_until: Instant,
    pub(super) report: Report,
    /// It takes nobody new.
    pub(super) leaving: bool,
    /// Of the list of clients that it should admit.
    version: u64,
    /// That list.
    pub(super) clients: BTreeSet<ClientId>,
}

/// Where a client may ask from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) client: ClientId,
    pub(super) node: String,
    pub(super) address: String,
    pub(super) run: u64,
    /// The node admits the client once it goes by this version of its list.
    version: u64,
    /// The node's dealer, as in [`Report`]: material comes from the one that the server orders it of.
    pub(super) dealer: String,
}

/// What went with a node.
pub(super) struct Loss {
    pub(super) node: String,
    /// Clients that are sent elsewhere when they ask again.
    pub(super) clients: usize,
    /// Material that is written off: its clients destroy their halves when they connect elsewhere.
    pub(super) stock: u64,
}

/// What a node is told with its lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// Whom it is to admit; `None` if it goes by that list already.
    pub(super) clients: Option<Vec<ClientId>>,
    /// Version of the list.
    pub(super) version: u64,
}

/// Nodes, leases, clients.
pub(super) struct NodeRegistry {
    pub(super) lease: Duration,
    key_copies: usize,
    pub(super) nodes: BTreeMap<String, Node>,
    placements: BTreeMap<ClientId, String>,
    pub(super) losses: VecDeque<Loss>,
    quotas: Quotas,
    runs: u64,
    /// Counts that are not on the disk yet.
    unkept: BTreeMap<ClientId, u64>,
}

impl NodeRegistry {
    /// Nodes serve for `lease` after they asked; a client has so many answers a day; one with a large key set
    /// may be at so many nodes.
    pub(super) fn new(lease: Duration, per_day: Option<u64>, key_copies: usize) -> Self {
        let quotas = Quotas::new(per_day, StoredCounts::default());
        let (nodes, placements, losses) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { lease, key_copies, nodes, placements, losses, quotas, runs: 0, unkept: BTreeMap::new() }
    }

    /// Goes on from the answers that an earlier front has counted.
    pub(super) fn with_counts(self, kept: StoredCounts) -> Self {
        Self { quotas: Quotas::new(self.quotas.per_day, kept), ..self }
    }

    /// Answers that clients have had of a day, as far as they were not taken note of; none where nobody has a
    /// quota.
    pub(super) fn unkept(&self) -> (i64, Vec<(ClientId, u64)>) {
        let counts = self.unkept.iter().map(|(client, used)| (*client, *used)).collect();
        (self.quotas.day, counts)
    }

    /// They are on the disk.
    pub(super) fn note_kept(&mut self) {
        self.unkept.clear();
    }

    /// A node that has begun to run; nothing of an earlier run of it counts. The number of its run.
    ///
    /// # Errors
    /// An earlier run may still hold its lease: it has to be over first.
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

    /// Grants a lease from now on.
    ///
    /// # Errors
    /// This run's lease is over.
    pub(super) fn renew(
        &mut self,
        name: &str,
        run: u64,
        report: Report,
        (now, day): (Instant, i64),
    ) -> Result<Granted, Refused> {
        self.expire(now);
        let lease = self.lease;
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) else {
            let reason = format!("{name} has no lease in this run: its clients may be elsewhere by now");
            return Err(Refused::for_good(reason));
        };
        let before = self.quotas.day;
        let more = self.quotas.count(&node.report, &report, day);
        if self.quotas.day != before {
            self.unkept.clear();
        }
        if self.quotas.per_day.is_some() {
            self.unkept.extend(more);
        }
        (node.report, node.lease_until) = (report, now + lease);
        // A list of ten thousand with every lease would be most of what the front does.
        let is_known = node.report.admitted == node.version;
        let clients = (!is_known).then(|| node.clients.iter().copied().collect());
        Ok(Granted { clients, version: node.version })
    }

    /// A node that takes nobody new; who is there stays until the node ends.
    pub(super) fn leave(&mut self, name: &str, run: u64, now: Instant) {
        self.expire(now);
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) {
            node.leaving = true;
        }
    }

    /// A node says itself that its server has stopped: its lease is over at once.
    pub(super) fn end(&mut self, name: &str, run: u64, now: Instant) {
        if let Some(node) = self.nodes.get_mut(name).filter(|node| node.run == run) {
            node.lease_until = now;
        }
        self.expire(now);
    }

    /// Writes off nodes whose lease is over.
    pub(super) fn expire(&mut self, now: Instant) {
        let over = self.nodes.iter().filter(|(_, node)| node.lease_until <= now).map(|(name, _)| name.clone());
        for name in over.collect::<Vec<_>>() {
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

    /// Where the client's inputs of the model are answered. It stays at a node that has the model, until that
    /// node is gone.
    ///
    /// # Errors
    /// Its day's answers are used up; its node, or every node, does not have the model.
    pub(super) fn place(
        &mut self,
        client: ClientId,
        model: &str,
        (now, day): (Instant, i64),
    ) -> Result<Ticket, Refused> {
        self.expire(now);
        self.quotas.left(client, day)?;
        let name = match self.placements.get(&client) {
            Some(home) if !self.nodes[home].report.models.contains_key(model) => {
                return Err(Refused::for_good(format!("the client is at {home}, which does not serve {model}")));
            }
            Some(home) => home.clone(),
            None => self.move_in(client, model)?,
        };
        let node = &self.nodes[&name];
        let (address, dealer) = (node.address.clone(), node.report.dealer.clone());
        Ok(Ticket { client, node: name, address, run: node.run, version: node.version, dealer })
    }

    /// Puts a client that is nowhere on the list of the best node.
    fn move_in(&mut self, client: ClientId, model: &str) -> Result<String, Refused> {
        let open = || self.nodes.iter().filter(|(_, n)| !n.leaving && n.report.models.contains_key(model));
        let sites = open().map(|(name, node)| Site {
            name,
            waiting_s: node.report.waiting_s,
            stock: node.report.stock.get(&client).copied().unwrap_or(0),
        });
        let has_keys = open().any(|(_, node)| node.report.models[model].iter().any(|backend| backend == "ckks"));
        let chosen = choose(client, sites.collect(), has_keys.then_some(self.key_copies));
        let none = || Refused::for_now(format!("no node serves {model}"), self.lease);
        let name = chosen.ok_or_else(none)?.name.to_owned();
        let node = self.nodes.get_mut(&name).expect("it was chosen among them");
        node.clients.insert(client);
        node.version += 1;
        self.placements.insert(client, name.clone());
        Ok(name)
    }

    /// Whether the ticket's node goes by a list with its client. It is void where the node has gone.
    pub(super) fn is_admitted(&self, ticket: &Ticket) -> bool {
        let node = self.nodes.get(&ticket.node).filter(|node| node.run == ticket.run);
        node.is_some_and(|node| node.clients.contains(&ticket.client) && node.report.admitted >= ticket.version)
    }
}

#[cfg(test)]
#[path = "node_registry_tests.rs"]
mod tests;
