//! The search problem: a plan for each class of transforms, and the keys that all chosen plans need together.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use tacit_he::ckks::{Bootstrapper, KeyId, KeyKind, Parameters, TransformPlan};

use super::rates::{Rates, key_bytes};
use crate::key_requirements::Draft;
use crate::layout;
use crate::levelled_program::{Frame, backend_error};
use crate::program::Step;
use crate::rotation_method::{RotationMethod, RotationMethods};
use tacit_backend_api::Result;

/// A key that a plan needs: its index in the problem's keys, and the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Need {
    pub key: usize,
    pub level: usize,
}

/// A key that can be made for any level, with its bytes at each.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    pub name: String,
    #[serde(skip)]
    pub id: Option<(KeyKind, usize)>,
    /// Bytes at level 0 (zero), 1, 2, ..
    pub bytes: Vec<u64>,
}

/// One way to run the transforms of a class.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plan {
    pub name: String,
    #[serde(skip)]
    pub method: RotationMethod,
    /// Seconds of all its transforms in one inference.
    pub seconds: f64,
    /// Bytes that one transform holds while it runs.
    pub held: u64,
    pub needs: Vec<Need>,
}

/// Transforms over the same distances at the same level, or all bootstraps.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Class {
    /// Indices of the transforms in the lowering, in order; empty for the bootstraps.
    pub transforms: Vec<usize>,
    pub level: usize,
    pub plans: Vec<Plan>,
    #[serde(skip)]
    pub offsets: BTreeSet<i64>,
    /// Share of the slots that a diagonal takes.
    #[serde(skip)]
    pub share: f64,
}

/// The classes, plans and keys to choose from.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Problem {
    pub keys: Vec<Key>,
    /// Keys that every choice needs.
    pub fixed: Vec<Need>,
    /// Seconds of products and bootstraps, without their rotations.
    pub fixed_seconds: f64,
    pub classes: Vec<Class>,
    /// Bytes of encoded weights.
    pub weights: u64,
}

struct Keys<'a> {
    frame: &'a Frame,
    numbers: HashMap<(KeyKind, usize), usize>,
    list: Vec<Key>,
}

impl Keys<'_> {
    /// A key gets a number at its first use.
    fn need(&mut self, id: KeyId) -> Need {
        let parameters = self.frame.context.parameters();
        let key = *self.numbers.entry((id.kind, id.alpha)).or_insert_with(|| {
            let levels = 0..=parameters.levels();
            let bytes = levels.map(|level| if level == 0 { 0 } else { key_bytes(parameters, level, id.alpha) });
            self.list.push(Key { name: id.kind.to_string(), id: Some((id.kind, id.alpha)), bytes: bytes.collect() });
            self.list.len() - 1
        });
        Need { key, level: id.level }
    }

    fn needs(&mut self, ids: &[KeyId]) -> Vec<Need> {
        let mut needs: Vec<Need> = ids.iter().map(|&id| self.need(id)).collect();
        needs.sort();
        needs
    }
}

/// `bootstrappers` is empty without bootstraps.
pub(super) fn problem(frame: &Frame, bootstrappers: &[Bootstrapper], rates: &Rates) -> Result<Problem> {
    let mut keys = Keys { frame, numbers: HashMap::new(), list: Vec::new() };
    let (mut fixed, mut fixed_seconds) = (vec![keys.need(frame.zero_key())], 0.0);
    let context = &*frame.context;
    for (distance, level) in frame.folds() {
        let id = KeyId::for_level(context, KeyKind::Galois(context.rotation_element(distance)), level);
        fixed.push(keys.need(id));
        fixed_seconds += rates.switch_seconds(level, id.alpha);
    }
    for (vector, place) in frame.program.vectors.iter().zip(&frame.places) {
        for (level, count) in Draft::relinearisations(&vector.step, place.made_level) {
            let id = KeyId::for_level(context, KeyKind::Relinearise, level);
            fixed.push(keys.need(id));
            fixed_seconds += count as f64 * rates.switch_seconds(level, id.alpha);
        }
    }
    let mut problem = Problem::default();
    for mut class in classes(frame, &mut problem.weights) {
        class.plans = plans(frame, &mut keys, &class, rates)?;
        problem.classes.push(class);
    }
    let count = frame.bootstraps();
    if let Some(boot) = bootstrappers.first() {
        fixed_seconds += count as f64 * seconds_beside_transforms(context.parameters(), boot, rates);
        let plans = bootstrappers.iter().map(|boot| bootstraps(&mut keys, boot, count, rates)).collect();
        let level = context.parameters().levels();
        problem.classes.push(Class { transforms: Vec::new(), level, plans, offsets: BTreeSet::new(), share: 1.0 });
    }
    fixed.sort();
    fixed.dedup();
    Ok(Problem { keys: keys.list, fixed, fixed_seconds, ..problem })
}

/// Groups transforms by distances and level, in order of the first of each, without plans. Adds the bytes of
/// diagonals to `weights`.
fn classes(frame: &Frame, weights: &mut u64) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let n = frame.context.degree() / 2;
    for (id, vector) in frame.program.vectors.iter().enumerate() {
        let Step::Linear { parts, .. } = &vector.step else { continue };
        for (index, (source, matrix)) in parts.iter().enumerate() {
            let [input, output] = [*source, id].map(|id| &frame.layouts[id]);
            let offsets = layout::moves(matrix, input, output).offsets;
            if offsets.iter().eq([&0]) {
                *weights += 16 * n as u64;
                continue;
            }
            let (transform, level) = (frame.transforms_before(id) + index, frame.places[id].made_level + 1);
            let period = input.period.max(output.period);
            *weights += 16 * (period * offsets.len()) as u64;
            let share = period as f64 / n as f64;
            match classes
                .iter_mut()
                .find(|class| class.offsets == offsets && (class.level, class.share) == (level, share))
            {
                Some(class) => class.transforms.push(transform),
                None => {
                    classes.push(Class { transforms: vec![transform], level, plans: Vec::new(), offsets, share });
                }
            }
        }
    }
    classes
}

/// The plans for the transforms of a class, but those that another one beats with a subset of their keys.
fn plans(frame: &Frame, keys: &mut Keys<'_>, class: &Class, rates: &Rates) -> Result<Vec<Plan>> {
    let (context, level, count) = (&*frame.context, class.level, class.transforms.len());
    let (n, alpha) = (context.degree() / 2, context.parameters().alpha(level));
    let mut plans: Vec<Plan> = Vec::new();
    let mut add = |method: RotationMethod, plan: &TransformPlan| {
        plans.push(Plan {
            name: RotationMethods::Each(vec![method]).to_string(),
            method,
            seconds: count as f64 * rates.transform(&plan.work(alpha), class.share),
            held: 8 * (plan.held_limbs(context, 0) * context.degree()) as u64,
            needs: keys.needs(&plan.keys(context)),
        });
    };
    for method in RotationMethod::ALL {
        let usual =
            TransformPlan::new(n, level, method.he_method(), class.offsets.iter().copied()).map_err(backend_error)?;
        add(method, &usual);
        if method == RotationMethod::HOISTED {
            continue;
        }
        let choices = TransformPlan::choices(n, level, method.he_method(), class.offsets.iter().copied())
            .map_err(backend_error)?;
        for plan in choices.iter().filter(|plan| **plan != usual) {
            add(RotationMethod { log_babies: Some(plan.log_babies() as u8), ..method }, plan);
        }
    }
    Ok(pareto_front(plans))
}

/// Drops plans that another plan beats with no more keys, memory and seconds.
fn pareto_front(plans: Vec<Plan>) -> Vec<Plan> {
    let mut front: Vec<Plan> = Vec::new();
    for plan in plans {
        let is_beaten = front.iter().any(|other| {
            let is_usual = other.method.log_babies.is_none();
            let is_faster = other.seconds < plan.seconds || (other.seconds == plan.seconds && is_usual);
            is_faster && takes_no_more(other, &plan)
        });
        if !is_beaten {
            front.retain(|other| !(plan.seconds <= other.seconds && takes_no_more(&plan, other)));
            front.push(plan);
        }
    }
    front
}

/// Whether a plan takes no key that `other` does not take, and no more memory.
fn takes_no_more(plan: &Plan, other: &Plan) -> bool {
    let other_needs: BTreeSet<&Need> = other.needs.iter().collect();
    plan.needs.iter().all(|need| other_needs.contains(need)) && plan.held <= other.held
}

/// The plan for the transforms of all bootstraps.
fn bootstraps(keys: &mut Keys<'_>, boot: &Bootstrapper, count: usize, rates: &Rates) -> Plan {
    let context = &*keys.frame.context;
    let (mut seconds, mut held) = (0.0, 0u64);
    for plan in boot.plans() {
        let alpha = context.parameters().alpha(plan.level());
        seconds += rates.transform(&plan.work(alpha), 1.0);
        held = held.max(8 * (plan.held_limbs(context, 0) * context.degree()) as u64);
    }
    let method = RotationMethod::ALL
        .into_iter()
        .find(|method| method.he_method() == boot.spec().method)
        .expect("each method is one");
    Plan {
        name: RotationMethods::All(method).to_string(),
        method,
        seconds: count as f64 * seconds,
        held,
        needs: keys.needs(&boot.keys()),
    }
}

fn seconds_beside_transforms(parameters: &Parameters, boot: &Bootstrapper, rates: &Rates) -> f64 {
    let switches = boot.switches().into_iter();
    switches.map(|(level, count)| count as f64 * rates.switch_seconds(level, parameters.alpha(level))).sum()
}
