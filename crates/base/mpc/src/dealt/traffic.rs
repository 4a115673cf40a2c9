//! Online messages of dealt gates, in protocol order.

use tacit_net::TrafficModel;

use super::{DealtGate, Exchanges, LookUp};
use crate::codec::Packed;
use crate::gate::WrapSpec;

impl DealtGate {
    /// Adds the messages of a batch.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        let (plane, masked) = (self.n.div_ceil(8), self.masked_bits() * self.n.div_ceil(8));
        self.opened().into_iter().for_each(|width| traffic.down(Packed::len_bytes(self.n, width)));
        traffic.down(masked);
        traffic.up(masked);
        if self.exchanges == Exchanges::Two {
            traffic.both(&[plane]);
        }
        self.values.iter().for_each(|value| traffic.up(Packed::len_bytes(self.n, value.width())));
    }
}

impl LookUp {
    /// Adds the messages of a batch.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        let widths = [self.index_bits(), self.entries().out_bits(), self.width];
        let [index, bits, differences] = widths.map(|width| Packed::len_bytes(self.n(), width));
        traffic.down(index);
        if let Some(bytes) = self.key_bytes() {
            traffic.down(bytes);
        }
        traffic.down(bits);
        traffic.up(bits);
        traffic.up(differences);
    }
}

/// Adds the messages of a dealt widening.
pub fn add_widen_traffic(spec: &WrapSpec, traffic: &mut TrafficModel) {
    traffic.down(spec.n.div_ceil(8));
    traffic.up(Packed::len_bytes(spec.n, spec.extra));
}
