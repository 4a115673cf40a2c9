//! A program with parameters: layouts, levels and scales. How rotations are made is not part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tacit_graph::{Model, Watch};
use tacit_he::ckks::{Bootstrapper, Context, KeyId, KeyKind, Parameters, Scale, SwitchKey, TransformPlan};

use super::emit::{self, Samples};
use super::fit::Approximation;
use super::layout::{self, Layout};
use super::levels::Levels;
use super::noise::Place;
use super::options::{NAME, Options};
use super::program::{Program, Step};
use super::rotation_method::{Way, Ways};
use super::setting::{self, Setting};
use crate::BackendError;

/// A network as a program, at no levels yet.
pub(super) struct Emitted {
    program: Arc<Program>,
    approximations: Vec<Approximation>,
    /// Shape of the input.
    input: Vec<usize>,
}

/// What is computed at which level.
pub(super) struct Frame {
    pub program: Arc<Program>,
    pub approximations: Vec<Approximation>,
    pub setting: Setting,
    pub context: Arc<Context>,
    pub layouts: Vec<Layout>,
    pub places: Vec<Place>,
}

/// An error of the library as one of the back end.
pub(super) fn he(error: tacit_he::HeError) -> BackendError {
    BackendError::Protocol(Box::new(error))
}

/// Bytes from which on keys are not for a single distance of a single layer.
const DEAR_KEY: usize = 8 << 20;

/// How one part of a linear step is computed.
pub(super) enum Part {
    /// Slots times constants.
    Slots,
    /// A transform.
    Transform(TransformPlan),
}

impl Emitted {
    /// Lowers a model.
    ///
    /// # Errors
    /// A node that cannot be lowered.
    pub fn new(model: &Model, options: &Options, samples: Samples, watch: &Watch) -> Result<Self, BackendError> {
        let (program, approximations) = emit::emit(model, options, samples, watch)?;
        Ok(Self { program: Arc::new(program), approximations, input: model.interface.input_shape.clone() })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether something is certain of every vector, and no accepted input leaves what a polynomial in place
    /// of a function holds on.
    pub fn is_certain(&self) -> bool {
        let is_bounded = self.program.vectors.iter().all(|vector| vector.certain.is_finite());
        is_bounded && self.approximations.iter().all(|approximation| approximation.certain)
    }

    /// The largest error of a polynomial in place of a function, as a share of the outputs' range.
    pub fn largest_error(&self) -> f64 {
        let errors = self.approximations.iter().map(|approximation| approximation.error * approximation.largest);
        tacit_floats::largest_magnitude(errors) / self.program.output().scale[0]
    }

    /// The layouts of all vectors among `n` slots, if they fit.
    fn laid(&self, n: usize) -> Option<Vec<Layout>> {
        self.program.vectors.iter().map(|v| Layout::new(&v.shape, &self.input, n)).collect()
    }

    /// Parameters and levels that hold it.
    ///
    /// # Errors
    /// A network that no secure parameters hold.
    pub fn setting(&self, options: &Options) -> Result<(Setting, Levels), BackendError> {
        setting::choose(&self.program, options, |n| self.laid(n).is_some())
    }

    /// With parameters and levels; those of the frame `like` are used again where they are the same.
    ///
    /// # Errors
    /// A network that no secure parameters hold; ways for another number of transforms.
    pub fn frame(&self, options: &Options, like: Option<&Frame>) -> Result<Frame, BackendError> {
        let Self { program, approximations, .. } = self;
        let (setting, levels) = self.setting(options)?;
        let layouts = self.laid(setting.slots()).expect("the setting was chosen so that all tensors fit");
        let context = match like.filter(|like| like.setting == setting) {
            Some(like) => like.context.clone(),
            None => Arc::new(Context::new(&Parameters::new(&setting.parameters).map_err(he)?).map_err(he)?),
        };
        let places = places(program, &levels, &setting, context.parameters());
        let (program, approximations) = (program.clone(), approximations.clone());
        let frame = Frame { program, approximations, setting, context, layouts, places };
        let count = frame.transforms(frame.program.vectors.len());
        if let Some(stated) = options.rotations.len().filter(|stated| *stated != count) {
            let what = format!("ways for {stated} transforms, the network has {count}");
            return Err(BackendError::Option { backend: NAME, key: "rotations".into(), what });
        }
        Ok(frame)
    }
}

impl Frame {
    /// Bootstraps of an inference.
    pub fn bootstraps(&self) -> usize {
        self.places.iter().filter(|place| place.boots).count()
    }

    /// Number of linear transforms of the steps before that of vector `id`: parts of linear steps.
    pub fn transforms(&self, id: usize) -> usize {
        let parts = |step: &Step| if let Step::Linear { parts, .. } = step { parts.len() } else { 0 };
        self.program.vectors[..id].iter().map(|vector| parts(&vector.step)).sum()
    }

    /// Distances over which shares of sums are moved, and at which level.
    pub fn folds(&self) -> Vec<(i64, usize)> {
        let mut all = Vec::new();
        for (id, (vector, place)) in self.program.vectors.iter().zip(&self.places).enumerate() {
            let Step::Linear { parts, .. } = &vector.step else { continue };
            for (of, matrix) in parts {
                let folds = layout::moves(matrix, &self.layouts[*of], &self.layouts[id]).folds;
                all.extend(folds.into_iter().map(|by| (by as i64, place.made)));
            }
        }
        all
    }

    /// The key that answers are encrypted anew with.
    pub fn anew(&self) -> KeyId {
        let last = self.places.last().expect("a program has a result");
        KeyId::at(&self.context, KeyKind::Zero, last.level)
    }

    /// How part `index` of the linear step of vector `id` makes its rotations.
    pub fn way(&self, options: &Options, id: usize, index: usize) -> Way {
        self.way_of(options, self.transforms(id) + index, self.places[id].made + 1)
    }

    /// That of the transform of this number, whose input has this level.
    pub fn way_of(&self, options: &Options, transform: usize, level: usize) -> Way {
        if options.rotations == Ways::All(Way::HOISTED) && self.dear(level) {
            return Way::CHAINED;
        }
        options.rotations.of(transform).expect("as many ways as transforms have been checked")
    }

    /// Whether keys of a level are so large that a layer had better chain its steps. Few layers are that high
    /// in a set with bootstraps: those that run on what the fresh ciphertext has.
    fn dear(&self, level: usize) -> bool {
        let key = SwitchKey::packed_bytes(&self.context, KeyId::at(&self.context, KeyKind::Relinearise, level));
        self.context.parameters().spec().encapsulated && key > DEAR_KEY
    }

    /// The tables of its bootstraps, if it has any.
    ///
    /// # Errors
    /// None in practice.
    pub fn bootstrapper(&self, options: &Options) -> Result<Option<Bootstrapper>, BackendError> {
        let used = self.setting.bootstrap.filter(|_| self.places.iter().any(|place| place.boots));
        let spec = used.map(|b| b.spec(self.setting.slots(), options));
        spec.map(|spec| Bootstrapper::new(&self.context, &spec)).transpose().map_err(he)
    }
}

/// Levels and scales of all vectors.
fn places(program: &Program, levels: &Levels, setting: &Setting, parameters: &Parameters) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::with_capacity(program.vectors.len());
    for (id, vector) in program.vectors.iter().enumerate() {
        let (made, boots) = (levels.made(id, setting.bootstraps()), levels.boots[id]);
        let product = |a: Scale, b: Scale| a.times(b).over_prime(parameters.primes()[made]);
        let scale = match (&vector.step, setting.bootstraps()) {
            (_, Some(bootstraps)) if boots => parameters.scale(bootstraps.to),
            (Step::Input | Step::Linear { .. } | Step::Polynomial { .. }, _) => parameters.scale(made),
            (Step::Square { of, .. } | Step::Quadratic { of, .. }, _) => product(places[*of].scale, places[*of].scale),
            (Step::Product { of: [a, b] }, _) => product(places[*a].scale, places[*b].scale),
        };
        places.push(Place { made, scale, boots, level: levels.level[id] });
    }
    places
}

/// How one part of a linear step is computed.
///
/// # Errors
/// None in practice.
pub(super) fn part(context: &Context, way: Way, offsets: &BTreeSet<i64>, level: usize) -> Result<Part, BackendError> {
    if offsets.iter().eq([&0]) {
        return Ok(Part::Slots);
    }
    Ok(Part::Transform(way.plan(context.degree() / 2, level, offsets.iter().copied()).map_err(he)?))
}
