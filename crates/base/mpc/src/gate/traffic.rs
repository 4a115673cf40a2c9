//! Messages of the gates in protocol order, for the bytes and waits of each phase.

use tacit_net::TrafficModel;

use super::{GateSpec, LiftSpec, MuxSpec, WrapSpec};
use crate::codec::Packed;
use crate::ot::PlannedOts;

impl GateSpec {
    /// Adds the messages of the offline phase.
    pub fn add_offline_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        if let Some(wrap) = &self.mux.wrap {
            wrap.add_offline_traffic(ots, traffic);
        }
        self.compare.add_offline_traffic(ots, traffic);
        self.mux.add_offline_traffic(ots, traffic);
        if let Some(WrapSpec { n, extra, .. }) = self.grow {
            ots.server_receives(n, traffic);
            traffic.up(Packed::len_bytes(n, extra));
        }
    }

    /// Adds the messages of the online phase.
    pub fn add_online_traffic(&self, traffic: &mut TrafficModel) {
        let plane = self.n().div_ceil(8);
        if let Some(wrap) = &self.mux.wrap {
            wrap.add_online_traffic(traffic);
        }
        self.mux.server_parts().iter().for_each(|&width| traffic.down(Packed::len_bytes(self.n(), width)));
        traffic.down(self.compare.leaf_bytes());
        self.compare.tree().add_online_traffic(traffic);
        traffic.down(plane);
        traffic.up(plane);
        self.mux.widths.iter().for_each(|&width| traffic.up(Packed::len_bytes(self.n(), width)));
        if let Some(WrapSpec { n, extra, .. }) = self.grow {
            traffic.down(plane);
            traffic.up(Packed::len_bytes(n, extra));
        }
    }
}

impl MuxSpec {
    fn add_offline_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        if self.constant.is_some() {
            ots.client_receives(self.n, traffic);
            return traffic.down(Packed::len_bytes(self.n, self.widths[0]));
        }
        ots.server_receives(self.n, traffic);
        ots.client_receives(self.n, traffic);
        self.client_strings().iter().for_each(|&width| traffic.up(Packed::len_bytes(self.n, width)));
    }
}

impl WrapSpec {
    /// Adds the messages of the offline phase.
    pub fn add_offline_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        ots.client_receives(self.n, traffic);
        traffic.up(self.n.div_ceil(8));
    }

    /// Adds the server's message of the online phase.
    pub fn add_online_traffic(&self, traffic: &mut TrafficModel) {
        traffic.down(Packed::len_bytes(self.n, self.extra));
    }
}

impl LiftSpec {
    /// Adds the messages of the protocol.
    pub fn add_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        ots.client_receives(self.n, traffic);
        traffic.up(self.bytes().client);
        traffic.down(self.bytes().server);
    }
}
