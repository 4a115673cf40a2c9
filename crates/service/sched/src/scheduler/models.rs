//! Addition and removal of models.

use super::Scheduler;
use super::state::Stage;
use crate::config::ModelSpec;
use crate::ids::ModelId;
use crate::message::{Cause, NoticeProblem, Outcome, Rejected};
use crate::policy::Policy;
use crate::queue::InputKey;

impl<P: Policy> Scheduler<P> {
    pub(super) fn add_model(&mut self, spec: ModelSpec) -> Result<(), Rejected> {
        self.check_open()?;
        let model = self.catalog.add(spec);
        self.seed_pool(model);
        self.out.stir();
        Ok(())
    }

    /// Running jobs continue; idle material is burnt.
    pub(super) fn remove_model(&mut self, model: ModelId) -> Result<(), Rejected> {
        if !self.catalog.serves(model) {
            return Err(Rejected::UnknownModel(model));
        }
        let groups = self.work.groups_of_model(model);
        let mut idle: Vec<(bool, InputKey)> = Vec::new();
        for &group in &groups {
            for key in self.work.clear_out(group).into_iter().flatten() {
                match self.work.input(key).stage {
                    Stage::RunPre(_) | Stage::RunOn(_) => {}
                    stage => idle.push((stage != Stage::WaitPre, key)),
                }
            }
        }
        // Inputs without material end first, so that none of them gets material released by the
        // others.
        idle.sort_unstable();
        for (_, key) in idle {
            self.finish_input(key, Outcome::Cancelled(Cause::ModelGone));
        }
        for group in groups {
            self.report_notice_end(group, NoticeProblem::ModelGone);
        }
        self.catalog.remove(model);
        for pool in self.stock.pools_of_model(model) {
            for material in self.stock.remove_pool(pool) {
                self.burn(material);
            }
        }
        self.burn_kept(|_, kept_model| kept_model == model);
        Ok(())
    }
}
