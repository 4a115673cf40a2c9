//! Key sets that this back end runs: one way for all transforms, or the search's selection.

use tacit_graph::Watch;
use tacit_he::ckks::{Bootstrapper, KeyId, KeyKind, TransformPlan, TransformWork};

use super::problem::{Class, Problem, problem};
use super::rates::{Rates, packed_bytes, plain_bytes};
use super::search::Selection;
use super::{FrontPoint, KeySetChoice, TableRow};
use crate::key_requirements::Draft;
use crate::levelled_program::{Frame, backend_error};
use crate::options::{BOOTSTRAPS, Options};
use crate::public::StepRecord;
use crate::rotation_method::{RotationMethod, RotationMethods, Steps};
use tacit_backend_api::{Result, seam};

/// Options that [`Running::text`] writes for a choice.
const WRITTEN: [&str; 4] = ["rotations", "bootstraps", "placement", "derive"];

/// A lowered network, with its search problem.
pub(super) struct Running<'a> {
    pub frame: &'a Frame,
    pub problem: Problem,
    pub rates: Rates,
    base: Options,
    /// Other options of the lowering, in text form.
    given_options: String,
    /// Bootstrap tables for each way to compute their rotations; empty without bootstraps.
    pub bootstrappers: &'a [Bootstrapper],
    /// Node of each transform.
    pub nodes: Vec<String>,
}

/// Makes bootstrap tables for each way to compute their rotations.
pub(super) fn bootstrappers(frame: &Frame, base: &Options, watch: &Watch) -> Result<Vec<Bootstrapper>> {
    let mut bootstrappers = Vec::new();
    for bootstraps in BOOTSTRAPS {
        watch.tell("making tables of bootstraps", 0, None)?;
        bootstrappers.extend(frame.bootstrapper(&Options { bootstraps, ..base.clone() })?);
    }
    Ok(bootstrappers)
}

impl<'a> Running<'a> {
    pub fn new(
        frame: &'a Frame,
        base: &Options,
        given: &seam::Options,
        rates: Rates,
        bootstrappers: &'a [Bootstrapper],
    ) -> Result<Self> {
        let mut problem = problem(frame, bootstrappers, &rates)?;
        problem.weights += bootstrappers.iter().map(|boot| boot.memory_bytes() as u64).max().unwrap_or(0);
        let nodes = frame.program.vectors.iter().map(|v| std::iter::repeat_n(v.name.clone(), v.step.parts()));
        let other_options = given.iter().filter(|(key, _)| !WRITTEN.contains(key));
        let given_options = other_options.map(|(key, value)| format!("{key}={value},")).collect();
        Ok(Self {
            frame,
            problem,
            rates,
            base: base.clone(),
            given_options,
            bootstrappers,
            nodes: nodes.flatten().collect(),
        })
    }

    pub fn bootstrapper(&self, options: &Options) -> Option<&Bootstrapper> {
        self.bootstrappers.iter().find(|boot| boot.spec().method == options.bootstraps.he_method())
    }

    fn draft<'b>(&'b self, options: &'b Options) -> Result<Draft<'b>> {
        Draft::new(self.frame, options, self.bootstrapper(options))
    }

    /// The sets with one way for all transforms.
    pub fn uniform(&self) -> Result<Vec<(KeySetChoice, Options)>> {
        let boots = &BOOTSTRAPS[..if self.bootstrappers.is_empty() { 1 } else { BOOTSTRAPS.len() }];
        let mut choices = Vec::new();
        for &bootstraps in boots {
            for method in RotationMethod::ALL {
                let options = Options { rotations: RotationMethods::All(method), bootstraps, ..self.base.clone() };
                let name = match self.bootstrappers.is_empty() {
                    true => options.rotations.to_string(),
                    false => format!("{}, bootstraps {bootstraps}", options.rotations),
                };
                let about = match method.steps {
                    Steps::Hoisted => "a key for every step and every block of them; chained where keys are dear",
                    Steps::Flat => "a key for every baby and every giant step",
                    Steps::Paired => "four keys for each transform, used one after another, two baby steps at a time",
                    Steps::Chained => "three keys for each transform, used one after another",
                    Steps::Powers => {
                        "keys for powers of two, for all transforms; each distance over as few as it takes"
                    }
                };
                choices.push((self.choice(&name, about, &options)?, options));
            }
        }
        Ok(choices)
    }

    pub fn selected(&self, name: &str, selection: &Selection) -> Result<(KeySetChoice, Options)> {
        let options = self.options(selection);
        let about = "a way and a number of baby steps for each transform, and where bootstraps come; found by search";
        Ok((self.choice(name, about, &options)?, options))
    }

    /// The search's selection with rotation keys derived at the server; `None` if there would be no masters.
    pub fn derived(&self, selection: &Selection) -> Result<Option<(KeySetChoice, Options)>> {
        let options = Options { derive: true, ..self.options(selection) };
        let sent = self.draft(&options)?.sent()?;
        let masters = sent.keys.iter().filter(|id| matches!(id.kind, KeyKind::Master(_))).count();
        if masters == 0 {
            return Ok(None);
        }
        let derivation_seconds = sent.transforms(&self.frame.context) as f64 * self.rates.ntt_s;
        let about = format!(
            "as auto, rotation keys made at the server from {masters} masters, once for a set, in {derivation_seconds:.1} s"
        );
        Ok(Some((self.choice("auto, derived", &about, &options)?, options)))
    }

    pub fn options(&self, selection: &Selection) -> Options {
        let mut methods = vec![RotationMethod::HOISTED; self.nodes.len()];
        let mut bootstraps = self.base.bootstraps;
        for (class, &picked) in self.problem.classes.iter().zip(&selection.picked) {
            let method = class.plans[picked].method;
            class.transforms.iter().for_each(|&transform| methods[transform] = method);
            if class.transforms.is_empty() {
                bootstraps = method.steps;
            }
        }
        Options { rotations: RotationMethods::from_list(methods), bootstraps, ..self.base.clone() }
    }

    /// The options as text, with the given options of the lowering.
    fn text(&self, options: &Options) -> String {
        let Options { rotations, bootstraps, placement, derive, .. } = options;
        let mut text = format!("{}rotations={rotations}", self.given_options);
        if !self.bootstrappers.is_empty() {
            text += &format!(",bootstraps={bootstraps}");
        }
        if *placement > 0 {
            text += &format!(",placement={placement}");
        }
        if *derive {
            text += ",derive=true";
        }
        text
    }

    fn choice(&self, name: &str, about: &str, options: &Options) -> Result<KeySetChoice> {
        let (draft, context) = (self.draft(options)?, &self.frame.context);
        let sent = draft.sent()?;
        let bytes = sent.keys.iter().map(|&id| packed_bytes(context, id)).sum();
        let (mut seconds, mut rotations, mut transforms) = (self.problem.fixed_seconds, 0, 0);
        for class in &self.problem.classes {
            if class.transforms.is_empty() {
                let plan = class.plans.iter().find(|plan| plan.method.steps == options.bootstraps);
                seconds += plan.expect("bootstraps have each way").seconds;
                continue;
            }
            let method = self.frame.method_of_transform(options, class.transforms[0], class.level);
            let (work, count) = (self.work(class, method)?, class.transforms.len() as u64);
            rotations += count * work.key_switches as u64;
            transforms += count * work.ntts as u64;
            seconds += count as f64 * self.rates.transform(&work, class.share);
        }
        let is_rotation = |id: &&KeyId| matches!(id.kind, KeyKind::Galois(_) | KeyKind::Master(_));
        let rotation_ids: Vec<&KeyId> = sent.keys.iter().filter(is_rotation).collect();
        let plain = |id: &&KeyId| plain_bytes(context.degree(), id.level, id.alpha);
        Ok(KeySetChoice {
            name: name.into(),
            about: about.into(),
            options: Some(self.text(options)),
            keys: sent.keys.len(),
            bytes,
            rotation_keys: rotation_ids.len(),
            rotation_bytes: rotation_ids.iter().map(|id| packed_bytes(context, **id)).sum(),
            plain_bytes: rotation_ids.iter().map(plain).sum(),
            memory: draft.memory(sent.resident_bytes(context)),
            rotations,
            transforms,
            seconds,
        })
    }

    pub fn keys(&self, options: &Options) -> Result<Vec<KeyId>> {
        Ok(self.draft(options)?.sent()?.keys)
    }

    /// The keys for everything but linear transforms, and for bootstraps but not for their rotations.
    pub fn other_needs(&self) -> Vec<KeyId> {
        let conjugation = KeyKind::Galois(self.frame.context.conjugation_element());
        let fixed = self.problem.fixed.iter().filter_map(|need| {
            let (kind, alpha) = self.problem.keys[need.key].id?;
            Some(KeyId { kind, level: need.level, alpha })
        });
        let boots = self.bootstrappers.iter().flat_map(Bootstrapper::keys);
        let boots = boots.filter(|id| !matches!(id.kind, KeyKind::Galois(_)) || id.kind == conjugation);
        fixed.chain(boots).collect()
    }

    /// Seconds of everything but rotations: products, bootstraps without their transforms, diagonals.
    pub fn seconds_beside_rotations(&self) -> f64 {
        let mut seconds = self.problem.fixed_seconds;
        let boots = self.frame.bootstraps();
        for class in &self.problem.classes {
            let limbs = class.transforms.len() * class.offsets.len() * class.level;
            seconds += self.diagonal_seconds(limbs, class.share);
        }
        let stages = self.bootstrappers.first().into_iter().flat_map(Bootstrapper::plans);
        let limbs = stages.map(|plan| boots * plan.diagonals() * plan.level());
        seconds += limbs.map(|limbs| self.diagonal_seconds(limbs, 1.0)).sum::<f64>();
        seconds
    }

    /// Seconds of so many limbs of diagonals.
    fn diagonal_seconds(&self, limbs: usize, share: f64) -> f64 {
        limbs as f64 * (2.0 * self.rates.plain_product_s + share * self.rates.ntt_s)
    }

    /// The server's bytes without keys, for plans that are not chained.
    pub fn beside_keys(&self) -> u64 {
        let min_held =
            self.problem.classes.iter().filter_map(|class| {
                class.plans.iter().filter(|plan| plan.method.is_keyed()).map(|plan| plan.held).min()
            });
        self.problem.weights + min_held.max().unwrap_or(0)
    }

    pub fn plan(&self, class: &Class, method: RotationMethod) -> Result<TransformPlan> {
        method.plan(self.frame.context.degree() / 2, class.level, class.offsets.iter().copied()).map_err(backend_error)
    }

    fn work(&self, class: &Class, method: RotationMethod) -> Result<TransformWork> {
        Ok(self.plan(class, method)?.work(self.frame.context.parameters().alpha(class.level)))
    }

    pub fn point(&self, selection: &Selection) -> FrontPoint {
        let &Selection { bytes, memory, seconds, .. } = selection;
        FrontPoint { bytes, memory, seconds, options: self.text(&self.options(selection)) }
    }

    pub fn hoisted_steps(&self) -> Result<Vec<StepRecord>> {
        let options = Options { rotations: RotationMethods::All(RotationMethod::HOISTED), ..self.base.clone() };
        Ok(self.draft(&options)?.steps)
    }

    /// Nodes of a class's transforms, each once.
    pub fn nodes(&self, class: &Class) -> Vec<String> {
        let mut nodes: Vec<String> = class.transforms.iter().map(|&t| self.nodes[t].clone()).collect();
        nodes.dedup();
        if class.transforms.is_empty() { vec!["bootstraps".into()] } else { nodes }
    }

    /// Rotations by level and layer, those of bootstraps last.
    pub fn table(&self) -> Result<Vec<TableRow>> {
        let mut rows = Vec::new();
        for class in self.problem.classes.iter().filter(|class| !class.transforms.is_empty()) {
            rows.push(self.row(self.nodes(class), &self.plan(class, RotationMethod::HOISTED)?));
        }
        let boots = self.bootstrappers.first().into_iter().flat_map(Bootstrapper::plans);
        rows.extend(boots.map(|plan| self.row(vec!["bootstraps".into()], plan)));
        Ok(rows)
    }

    fn row(&self, nodes: Vec<String>, plan: &TransformPlan) -> TableRow {
        TableRow {
            nodes,
            level: plan.level(),
            alpha: self.frame.context.parameters().alpha(plan.level()),
            diagonals: plan.diagonals(),
            rotations: plan.rotations(),
        }
    }
}
