//! Loads a model file for the back ends that serve it.
use anyhow::{Context, ensure};
use std::path::Path;
use std::sync::Arc;
use tacit_backends::{Backend, DEFAULT, Options, Registry, ServerModel, Trust, lowered};
use tacit_store::SealKey;
use tacit_store::seal::{self, Kind};

/// Back ends with the options that were given for each; `None` where there were none.
pub(crate) type Chosen = Vec<(Arc<dyn Backend>, Option<Options>)>;

/// Returns the named back ends with their options. `BACKEND.KEY=VALUE` is for the named one,
/// `KEY=VALUE` for the first.
///
/// # Errors
/// There is no such back end, or an option is for one that was not chosen.
pub(crate) fn choose(registry: &Registry, names: &[String], options: &[String]) -> anyhow::Result<Chosen> {
    let mut chosen: Chosen = Vec::new();
    for name in names {
        chosen.push((Arc::clone(registry.get(name)?), None));
    }
    for pair in options.iter().flat_map(|list| list.split(',')) {
        let (name, pair) = match pair.split_once('=').and_then(|(key, _)| key.split_once('.')) {
            Some((name, _)) => (name, &pair[name.len() + 1..]),
            None => (names[0].as_str(), pair),
        };
        let slot = chosen.iter_mut().find(|(backend, _)| backend.id() == name);
        let (_, slot) = slot.with_context(|| format!("`{name}.{pair}`: models are not offered with this back end"))?;
        let parsed: Options = pair.parse()?;
        let merged = slot.get_or_insert_with(Options::default);
        parsed.iter().for_each(|(key, value)| merged.set(key, value));
    }
    Ok(chosen)
}

pub(crate) enum Offering {
    Named(Chosen),
    /// Each model with the back ends of the lowerings beside it; without any, with the default.
    Beside(Beside),
}

/// Chooses back ends by the lowerings beside a model, where the command line names none.
pub(crate) struct Beside {
    pub(crate) registry: Registry,
    pub(crate) has_dealer: bool,
    pub(crate) allow_clear: bool,
}

impl Offering {
    pub(crate) fn backends(&self) -> Vec<Arc<dyn Backend>> {
        match self {
            Self::Named(chosen) => chosen.iter().map(|(backend, _)| Arc::clone(backend)).collect(),
            Self::Beside(Beside { registry, .. }) => registry.iter().cloned().collect(),
        }
    }

    /// The back ends for the model in this file.
    ///
    /// # Errors
    /// Lowerings lie beside the file, but the options of this server allow none of them.
    pub(crate) fn backends_for(&self, path: &Path) -> anyhow::Result<Chosen> {
        match self {
            Self::Named(chosen) => Ok(chosen.clone()),
            Self::Beside(beside) => beside.backends_for(path),
        }
    }
}

impl Beside {
    fn backends_for(&self, path: &Path) -> anyhow::Result<Chosen> {
        let (mut chosen, mut left_out): (Chosen, Vec<String>) = (vec![], vec![]);
        for backend in self.registry.iter().filter(|backend| lowered::path_beside(path, backend.id()).exists()) {
            match self.lacks(backend.trust()) {
                None => chosen.push((Arc::clone(backend), None)),
                Some(missing) => {
                    left_out.push(format!("{} ({missing})", lowered::path_beside(path, backend.id()).display()));
                }
            }
        }
        let left_out = left_out.join(", ");
        if chosen.is_empty() {
            ensure!(left_out.is_empty(), "{}: what lies beside it is not served so: {left_out}", path.display());
            return Ok(vec![(Arc::clone(self.registry.get(DEFAULT)?), None)]);
        }
        if !left_out.is_empty() {
            tracing::warn!("{} is not offered with what lies beside it in {left_out}", path.display());
        }
        Ok(chosen)
    }

    /// The option that this server lacks for a back end with this trust; `None` if it lacks none.
    fn lacks(&self, trust: Trust) -> Option<&'static str> {
        match trust {
            Trust::Dealer if !self.has_dealer => Some("name a dealer with --dealer and --dealer-pin"),
            Trust::ServerSeesInput if !self.allow_clear => Some("the server would see every input: --allow-clear"),
            Trust::TwoParty | Trust::Dealer | Trust::ServerSeesInput => None,
        }
    }
}

/// Returns the model in a `.tacit` file for each back end: its stored lowering, or a new one.
///
/// # Errors
/// A file cannot be read or is damaged, or a back end does not support the model or the options;
/// each names the file.
pub(crate) fn load(path: &Path, chosen: &Chosen, key: Option<&SealKey>) -> anyhow::Result<Vec<Arc<dyn ServerModel>>> {
    ensure!(path.exists(), "{}: there is no such file", path.display());
    let models = chosen.iter().map(|(backend, options)| {
        let obtained = lowered::obtain(path, &**backend, options.as_ref(), &|path: &Path| {
            Ok(seal::open_file(path, Kind::of_owner_file(path), key)?)
        });
        let obtained = obtained.with_context(|| path.display().to_string())?;
        if let Some(because) = &obtained.lowered_because {
            let id = backend.id();
            tracing::warn!("lowered {} for {id}: {because}; `tacit model lower` keeps it", path.display());
        }
        Ok(obtained.model)
    });
    models.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_offered_with_the_lowerings_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("one.tacit");
        let choose_with = |has_dealer, allow_clear| {
            let registry = Registry::standard();
            let offering = Offering::Beside(Beside { registry, has_dealer, allow_clear });
            let chosen = offering.backends_for(&model).map_err(|e| e.to_string())?;
            Ok::<_, String>(chosen.iter().map(|(backend, _)| backend.id()).collect::<Vec<_>>())
        };
        assert_eq!(choose_with(true, true).unwrap(), [DEFAULT]);
        let add_lowering = |backend: &str| std::fs::write(lowered::path_beside(&model, backend), "").unwrap();
        add_lowering("dealt");
        add_lowering("clear");
        assert_eq!(choose_with(true, true).unwrap(), ["dealt", "clear"]);
        let why = choose_with(false, false).unwrap_err();
        for part in ["one.dealt.lowered", "--dealer-pin", "--allow-clear"] {
            assert!(why.contains(part), "{why}");
        }
        add_lowering("ckks");
        assert_eq!(choose_with(false, false).unwrap(), ["ckks"]);
    }

    #[test]
    fn options_go_to_the_named_back_end_or_the_first() {
        let registry = Registry::standard();
        let names = ["cheetah".to_owned(), "clear".to_owned()];
        let text = |options: &Option<Options>| {
            options.iter().flat_map(|o| o.iter().map(|(k, v)| format!("{k}={v}"))).collect::<Vec<_>>().join(",")
        };
        let options = ["relu_drop=2,frac_bits=12".to_owned(), "clear.x=1".to_owned()];
        let chosen = choose(&registry, &names, &options).unwrap();
        assert_eq!(text(&chosen[0].1), "frac_bits=12,relu_drop=2");
        assert_eq!(text(&chosen[1].1), "x=1");
        assert!(choose(&registry, &names[1..], &["cheetah.x=1".to_owned()]).is_err());
        assert!(choose(&registry, &["nobody".to_owned()], &[]).is_err());
        assert!(choose(&registry, &names, &[]).unwrap().iter().all(|(_, options)| options.is_none()));
    }
}
