//! A program with parameters: layouts, levels and scales, but no way to compute rotations.

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
use super::rotation_method::{RotationMethod, RotationMethods};
use super::setting::{self, Setting};
use tacit_backend_api::{BackendError, Result};

/// A network as a program, before it has levels.
pub(super) struct Emitted {
    program: Arc<Program>,
    approximations: Vec<Approximation>,
    /// Shape of the input.
    input: Vec<usize>,
}

/// A program with its parameters, and the level of each vector.
pub(super) struct Frame {
    pub program: Arc<Program>,
    pub approximations: Vec<Approximation>,
    pub setting: Setting,
    pub context: Arc<Context>,
    pub layouts: Vec<Layout>,
    pub places: Vec<Place>,
}

pub(super) fn backend_error(error: tacit_he::HeError) -> BackendError {
    BackendError::Protocol(Box::new(error))
}

/// From this key size on, a set with bootstraps chains rotations: a key for one distance of one layer is too
/// expensive.
const LARGE_KEY: usize = 8 << 20;

/// A part of a linear step: slots times constants, or a transform.
pub(super) enum Part {
    Slots,
    Transform(TransformPlan),
}

impl Emitted {
    /// Lowers a model.
    ///
    /// # Errors
    /// A node that cannot be lowered.
    pub fn new(model: &Model, options: &Options, samples: Samples, watch: &Watch) -> Result<Self> {
        let (program, approximations) = emit::emit(model, options, samples, watch)?;
        Ok(Self { program: Arc::new(program), approximations, input: model.interface.input_shape.clone() })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether every vector has certain bounds, and no accepted input leaves the range of a polynomial in
    /// place of a function.
    pub fn is_certain(&self) -> bool {
        let is_bounded = self.program.vectors.iter().all(|vector| vector.certain.is_finite());
        is_bounded && self.approximations.iter().all(|approximation| approximation.certain)
    }

    /// Largest error of a polynomial in place of a function, as a share of the outputs' range.
    pub fn largest_error(&self) -> f64 {
        let errors = self.approximations.iter().map(|approximation| approximation.error * approximation.largest);
        tacit_floats::largest_magnitude(errors) / self.program.output().scale[0]
    }

    fn layouts(&self, n: usize) -> Option<Vec<Layout>> {
        self.program.vectors.iter().map(|v| Layout::new(&v.shape, &self.input, n)).collect()
    }

    /// Chooses parameters and levels that hold the program.
    ///
    /// # Errors
    /// A network that no secure parameters hold.
    pub fn setting(&self, options: &Options) -> Result<(Setting, Levels)> {
        setting::choose(&self.program, options, |n| self.layouts(n).is_some())
    }

    /// Adds parameters and levels. The context of `like` is used again if the parameters are the same.
    ///
    /// # Errors
    /// A network that no secure parameters hold; a list of ways for another number of transforms.
    pub fn frame(&self, options: &Options, like: Option<&Frame>) -> Result<Frame> {
        let Self { program, approximations, .. } = self;
        let (setting, levels) = self.setting(options)?;
        let layouts = self.layouts(setting.slots()).expect("the setting was chosen so that all tensors fit");
        let context = match like.filter(|like| like.setting == setting) {
            Some(like) => like.context.clone(),
            None => Arc::new(
                Context::new(&Parameters::new(&setting.parameters).map_err(backend_error)?).map_err(backend_error)?,
            ),
        };
        let places = places(program, &levels, &setting, context.parameters());
        let (program, approximations) = (program.clone(), approximations.clone());
        let frame = Frame { program, approximations, setting, context, layouts, places };
        let count = frame.transforms_before(frame.program.vectors.len());
        if let Some(stated) = options.rotations.len().filter(|stated| *stated != count) {
            let what = format!("ways for {stated} transforms, the network has {count}");
            return Err(BackendError::Option { backend: NAME, key: "rotations".into(), what });
        }
        Ok(frame)
    }
}

impl Frame {
    pub fn bootstraps(&self) -> usize {
        self.places.iter().filter(|place| place.boots).count()
    }

    /// Number of linear transforms (parts of linear steps) in the steps before that of vector `id`.
    pub fn transforms_before(&self, id: usize) -> usize {
        self.program.vectors[..id].iter().map(|vector| vector.step.parts()).sum()
    }

    /// Distance and level of each fold.
    pub fn folds(&self) -> Vec<(i64, usize)> {
        let mut folds = Vec::new();
        for (id, (vector, place)) in self.program.vectors.iter().zip(&self.places).enumerate() {
            let Step::Linear { parts, .. } = &vector.step else { continue };
            for (source, matrix) in parts {
                let distances = layout::moves(matrix, &self.layouts[*source], &self.layouts[id]).folds;
                folds.extend(distances.into_iter().map(|distance| (distance as i64, place.made_level)));
            }
        }
        folds
    }

    /// The key that encrypts the answer anew.
    pub fn zero_key(&self) -> KeyId {
        let last = self.places.last().expect("a program has a result");
        KeyId::for_level(&self.context, KeyKind::Zero, last.level)
    }

    /// How part `index` of the linear step of vector `id` computes its rotations.
    pub fn rotation_method(&self, options: &Options, id: usize, index: usize) -> RotationMethod {
        self.method_of_transform(options, self.transforms_before(id) + index, self.places[id].made_level + 1)
    }

    /// As [`Frame::rotation_method`], for the transform of this number, whose input has this level.
    pub fn method_of_transform(&self, options: &Options, transform: usize, level: usize) -> RotationMethod {
        if options.rotations == RotationMethods::All(RotationMethod::HOISTED) && self.has_large_keys(level) {
            return RotationMethod::CHAINED;
        }
        options.rotations.get(transform).expect("as many ways as transforms have been checked")
    }

    /// Whether a layer should chain its steps. In a set with bootstraps few layers are that high: those that
    /// use the levels of the fresh ciphertext.
    fn has_large_keys(&self, level: usize) -> bool {
        let key = SwitchKey::packed_bytes(&self.context, KeyId::for_level(&self.context, KeyKind::Relinearise, level));
        self.context.parameters().spec().encapsulated && key > LARGE_KEY
    }

    pub fn bootstrapper(&self, options: &Options) -> Result<Option<Bootstrapper>> {
        let used = self.setting.bootstrap.filter(|_| self.places.iter().any(|place| place.boots));
        let spec = used.map(|b| b.spec(self.setting.slots(), options));
        spec.map(|spec| Bootstrapper::new(&self.context, &spec)).transpose().map_err(backend_error)
    }
}

fn places(program: &Program, levels: &Levels, setting: &Setting, parameters: &Parameters) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::with_capacity(program.vectors.len());
    for (id, vector) in program.vectors.iter().enumerate() {
        let (made_level, boots) = (levels.made_level(id, setting.bootstraps()), levels.boots[id]);
        let scale = match (&vector.step, setting.bootstraps()) {
            (_, Some(bootstraps)) if boots => parameters.scale(bootstraps.level_out),
            (Step::Input | Step::Linear { .. } | Step::Polynomial { .. }, _) => parameters.scale(made_level),
            (Step::Square { argument, .. } | Step::Quadratic { argument, .. }, _) => {
                product(parameters, made_level, places[*argument].scale, places[*argument].scale)
            }
            (Step::Product { factors: [a, b] }, _) => {
                product(parameters, made_level, places[*a].scale, places[*b].scale)
            }
        };
        places.push(Place { made_level, scale, boots, level: levels.level[id] });
    }
    places
}

fn product(parameters: &Parameters, level: usize, a: Scale, b: Scale) -> Scale {
    a.times(b).over_prime(parameters.primes()[level])
}

pub(super) fn part(context: &Context, method: RotationMethod, offsets: &BTreeSet<i64>, level: usize) -> Result<Part> {
    if offsets.iter().eq([&0]) {
        return Ok(Part::Slots);
    }
    Ok(Part::Transform(method.plan(context.degree() / 2, level, offsets.iter().copied()).map_err(backend_error)?))
}
