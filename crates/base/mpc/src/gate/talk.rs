//! Messages of the gates in protocol order, for the bytes and waits of each phase.

use tacit_net::TrafficModel;

use super::{GateSpec, LiftSpec, MuxSpec, WrapSpec};
use crate::codec::Packed;
use crate::ot::PlannedOts;

impl GateSpec {
    /// Adds the messages of the offline phase.
    pub fn talk_offline(&self, ots: &mut PlannedOts, talk: &mut TrafficModel) {
        if let Some(wrap) = &self.mux.wrap {
            wrap.talk_offline(ots, talk);
        }
        self.compare.talk_offline(ots, talk);
        self.mux.talk_offline(ots, talk);
        if let Some(WrapSpec { n, extra, .. }) = self.grow {
            ots.server_receives(n, talk);
            talk.up(Packed::len_bytes(n, extra));
        }
    }

    /// Adds the messages of the online phase.
    pub fn talk_online(&self, talk: &mut TrafficModel) {
        let plane = self.n().div_ceil(8);
        if let Some(wrap) = &self.mux.wrap {
            wrap.talk_online(talk);
        }
        self.mux.server_parts().iter().for_each(|&width| talk.down(Packed::len_bytes(self.n(), width)));
        talk.down(self.compare.leaf_bytes());
        self.compare.tree().talk_online(talk);
        talk.down(plane);
        talk.up(plane);
        self.mux.widths.iter().for_each(|&width| talk.up(Packed::len_bytes(self.n(), width)));
        if let Some(WrapSpec { n, extra, .. }) = self.grow {
            talk.down(plane);
            talk.up(Packed::len_bytes(n, extra));
        }
    }
}

impl MuxSpec {
    fn talk_offline(&self, ots: &mut PlannedOts, talk: &mut TrafficModel) {
        if self.constant.is_some() {
            ots.client_receives(self.n, talk);
            return talk.down(Packed::len_bytes(self.n, self.widths[0]));
        }
        ots.server_receives(self.n, talk);
        ots.client_receives(self.n, talk);
        self.client_strings().iter().for_each(|&width| talk.up(Packed::len_bytes(self.n, width)));
    }
}

impl WrapSpec {
    /// Adds the messages of the offline phase.
    pub fn talk_offline(&self, ots: &mut PlannedOts, talk: &mut TrafficModel) {
        ots.client_receives(self.n, talk);
        talk.up(self.n.div_ceil(8));
    }

    /// Adds the server's message of the online phase.
    pub fn talk_online(&self, talk: &mut TrafficModel) {
        talk.down(Packed::len_bytes(self.n, self.extra));
    }
}

impl LiftSpec {
    /// Adds the messages of the protocol.
    pub fn talk(&self, ots: &mut PlannedOts, talk: &mut TrafficModel) {
        ots.client_receives(self.n, talk);
        talk.up(self.bytes().client);
        talk.down(self.bytes().server);
    }
}
