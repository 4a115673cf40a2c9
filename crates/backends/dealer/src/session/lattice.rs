//! Linear layers without the dealer, for models whose `E` is too large for a client. Their offline
//! part is that of `cheetah`: the client encrypts its share r of the layer's input, and the server
//! answers with the client's encrypted share of `W r`. This share replaces `E r + t`, and the
//! client moves it to a share from its seed in the same way. The server's share replaces `A r - t`.
//! Everything else, including the whole online phase, is as with a dealt layer.

use std::collections::VecDeque;

use tacit_arith::prg::Prg;
use tacit_graph::NodeId;
use tacit_he::coeff::MAX_STEPS;
use tacit_net::{Channel, Sides, TrafficModel};

use tacit_backend_api::{BackendError, PartyCost};
use tacit_ring::share::exact_truncations;
use tacit_ring::{RingGraph, Weights, slack};
use tacit_two_party::cheetah::linear::{
    CheckedWeights, ClientKeys, LinearClient, LinearPlan, LinearServer, ServerKeys,
};
use tacit_two_party::cheetah::{self, Cheetah, Group, Keys, Lattice, draft};

/// Position of a layer among the groups.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    group: usize,
    /// Index in the group.
    index: usize,
}

/// The layers of a plan that use lattices.
#[derive(Default)]
pub(crate) struct Layers {
    /// Groups of layers that read the same tensor, which is encrypted once for the group.
    groups: Vec<Group<Cheetah>>,
    /// The place of each node.
    places: Vec<Option<Place>>,
}

impl Layers {
    /// Plans the layers `chosen`, in node order.
    ///
    /// # Errors
    /// `Unsupported` names the first layer that cannot be planned.
    pub(crate) fn new(graph: &RingGraph, chosen: &[NodeId]) -> Result<Self, BackendError> {
        let mut members: Vec<(NodeId, Vec<NodeId>)> = Vec::new();
        let mut places = vec![None; graph.nodes().len()];
        for &id in chosen {
            let tensor = graph.nodes()[id].inputs[0];
            let group = members.iter().position(|(read, _)| *read == tensor).unwrap_or_else(|| {
                members.push((tensor, Vec::new()));
                members.len() - 1
            });
            places[id] = Some(Place { group, index: members[group].1.len() });
            members[group].1.push(id);
        }
        let options = cheetah::Options::default();
        let errors = slack::allowed_errors(graph, &exact_truncations(graph), options.linear_error);
        let groups = members.into_iter().map(|(tensor, nodes)| {
            let draft = draft::<Cheetah>(graph, &options, &errors, tensor, &nodes)?;
            Ok::<_, BackendError>(Group { tensor, nodes, plan: draft.plan(MAX_STEPS) })
        });
        Ok(Self { groups: groups.collect::<Result<_, _>>()?, places })
    }

    /// The same layers for `batch` inputs at once.
    pub(crate) fn times(&self, batch: usize) -> Self {
        Self { groups: self.groups.iter().map(|group| group.times(batch)).collect(), places: self.places.clone() }
    }

    /// The place of a node, if it uses lattices.
    pub(crate) fn place(&self, node: NodeId) -> Option<Place> {
        self.places.get(node).copied().flatten()
    }

    /// The choices of planning that both parties must have alike: nodes, sizes of tiles, bits of
    /// ciphertexts.
    pub(crate) fn choices(&self) -> Vec<(&[NodeId], Vec<[u64; 7]>)> {
        self.groups.iter().map(|group| (&*group.nodes, group.plan.choices())).collect()
    }

    /// Largest error of a result, in units.
    pub(crate) fn max_error(&self) -> u32 {
        let groups = self.groups.iter();
        let errors = groups.filter_map(|group| (0..group.nodes.len()).map(|k| group.plan.max_error(k)).max());
        errors.max().unwrap_or(0)
    }

    fn plans(&self) -> Vec<&LinearPlan> {
        self.groups.iter().map(|group| &group.plan).collect()
    }

    /// Adds the traffic of the setup: the client's keys.
    pub(crate) fn add_setup_traffic(&self, traffic: &mut TrafficModel) {
        if !self.groups.is_empty() {
            Keys::add_traffic(&self.plans(), traffic);
        }
    }

    /// Memory and storage of the server's keys from the setup.
    pub(crate) fn keys(&self) -> PartyCost {
        let bytes = if self.groups.is_empty() { 0 } else { Keys::memory(&self.plans()) };
        PartyCost { peak_memory_bytes: bytes, stored_bytes: bytes, ..PartyCost::default() }
    }

    /// Adds the traffic of the offline phase at a node.
    pub(crate) fn add_traffic(&self, node: NodeId, traffic: &mut TrafficModel) {
        if let Some(Place { group, index: 0 }) = self.place(node) {
            self.groups[group].plan.add_traffic(traffic);
        }
    }

    /// Work of client and server, and memory of the group that needs most.
    pub(crate) fn work(&self) -> Sides<PartyCost> {
        let mut sum = Sides::<PartyCost>::default();
        for group in &self.groups {
            let Sides { client, server } = Cheetah::work(&group.plan);
            sum.client += client;
            sum.server += server;
        }
        sum
    }

    /// The client's part of the setup: sends keys, if any layer uses lattices.
    ///
    /// # Errors
    /// Errors of the channel.
    pub(crate) fn client_setup(
        &self,
        prg: &mut Prg,
        channel: &mut Channel,
    ) -> Result<Option<ClientKeys>, BackendError> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        Ok(Some(Keys::send(&self.plans(), prg, channel)?))
    }

    /// The server's part of the setup: receives the client's keys, if any layer uses lattices.
    ///
    /// # Errors
    /// Errors of the channel; malformed keys.
    pub(crate) fn server_setup(&self, channel: &mut Channel) -> Result<Option<ServerKeys>, BackendError> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        Ok(Some(Keys::receive(&self.plans(), channel)?))
    }
}

/// A party's shares of the other layers of groups that have already run, by group.
struct PendingShares(Vec<VecDeque<Vec<u64>>>);

impl PendingShares {
    fn new(layers: &Layers) -> Self {
        Self(vec![VecDeque::new(); layers.groups.len()])
    }

    /// Returns the share at a place. `run` computes the shares of the whole group.
    fn share(
        &mut self,
        place: Place,
        run: impl FnOnce() -> Result<Vec<Vec<u64>>, BackendError>,
    ) -> Result<Vec<u64>, BackendError> {
        let shares = &mut self.0[place.group];
        if place.index == 0 {
            *shares = run()?.into();
        }
        shares.pop_front().ok_or(BackendError::Misuse("a walk comes to each layer of a group once, in order"))
    }
}

pub(crate) const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");
/// The error of a phase before the setup.
const NO_KEYS: BackendError = BackendError::Misuse("the setup comes first");

pub(crate) struct Client<'a> {
    layers: &'a Layers,
    keys: Option<&'a ClientKeys>,
    prg: &'a mut Prg,
    pending: PendingShares,
}

impl<'a> Client<'a> {
    /// `prg`: for ciphertexts.
    pub(crate) fn new(layers: &'a Layers, keys: Option<&'a ClientKeys>, prg: &'a mut Prg) -> Self {
        Self { layers, keys, prg, pending: PendingShares::new(layers) }
    }

    /// Returns the client's share of a layer's `W r`, for its share `r` of the layer's input.
    ///
    /// # Errors
    /// Errors of the protocol or the channel.
    pub(crate) fn share(&mut self, place: Place, r: &[u64], channel: &mut Channel) -> Result<Vec<u64>, BackendError> {
        let Self { layers, keys, prg, pending } = self;
        pending.share(place, || {
            let client = LinearClient::new(keys.ok_or(NO_KEYS)?, &layers.groups[place.group].plan);
            Ok(client.run(r, &Prg::from_seed(prg.next_seed()), channel)?)
        })
    }
}

pub(crate) struct Server<'a> {
    layers: &'a Layers,
    keys: Option<&'a ServerKeys>,
    weights: &'a Weights,
    prg: &'a mut Prg,
    pending: PendingShares,
}

impl<'a> Server<'a> {
    /// `prg`: for the server's shares.
    pub(crate) fn new(
        layers: &'a Layers,
        keys: Option<&'a ServerKeys>,
        weights: &'a Weights,
        prg: &'a mut Prg,
    ) -> Self {
        Self { layers, keys, weights, prg, pending: PendingShares::new(layers) }
    }

    /// Returns the server's share of a layer's `W r`.
    ///
    /// # Errors
    /// Errors of the protocol or the channel.
    pub(crate) fn share(&mut self, place: Place, channel: &mut Channel) -> Result<Vec<u64>, BackendError> {
        let Self { layers, keys, weights, prg, pending } = self;
        pending.share(place, || {
            let Group { nodes, plan, .. } = &layers.groups[place.group];
            let checked = nodes.iter().enumerate().map(|(index, &id)| {
                let layer = weights.get(id).ok_or(NO_WEIGHTS)?;
                Ok(CheckedWeights::new(plan, index, &layer.weights)?)
            });
            let checked: Vec<CheckedWeights<'_>> = checked.collect::<Result<_, BackendError>>()?;
            Ok(LinearServer::run(keys.ok_or(NO_KEYS)?, plan, &checked, prg, channel)?)
        })
    }
}
