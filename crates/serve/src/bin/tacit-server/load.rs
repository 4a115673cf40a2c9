//! From a model file to what is served.
use anyhow::{Context, ensure};
use std::path::Path;
use std::sync::Arc;
use tacit_backends::{Backend, Options, Registry, ServerModel, lowered};
use tacit_store::SealKey;
use tacit_store::seal::{self, Kind};

/// Back ends with the options that were given for each; `None` where there were none.
pub(crate) type Chosen = Vec<(Arc<dyn Backend>, Option<Options>)>;

/// The back ends named, the first of them with the options that name none: `KEY=VALUE`, or
/// `BACKEND.KEY=VALUE`.
///
/// # Errors
/// There is no such back end, or an option is for one that was not chosen.
pub(crate) fn choose(registry: &Registry, names: &[String], options: &[String]) -> anyhow::Result<Chosen> {
    let mut chosen: Chosen = Vec::new();
    for name in names {
        chosen.push((Arc::clone(registry.get(name)?), None));
    }
    for pair in options.iter().flat_map(|given| given.split(',')) {
        let (name, pair) = match pair.split_once('=').and_then(|(key, _)| key.split_once('.')) {
            Some((name, _)) => (name, &pair[name.len() + 1..]),
            None => (names[0].as_str(), pair),
        };
        let slot = chosen.iter_mut().find(|(backend, _)| backend.id() == name);
        let (_, slot) = slot.with_context(|| format!("`{name}.{pair}`: models are not offered with this back end"))?;
        let one: Options = pair.parse()?;
        let all = slot.get_or_insert_with(Options::default);
        one.iter().for_each(|(key, value)| all.set(key, value));
    }
    Ok(chosen)
}

/// The model in a `.tacit` file for each back end: its stored lowering, or lowered now.
///
/// # Errors
/// A file cannot be read or is damaged, or a back end does not support the model or the options; each names
/// the file.
pub(crate) fn load(path: &Path, chosen: &Chosen, key: Option<&SealKey>) -> anyhow::Result<Vec<Arc<dyn ServerModel>>> {
    ensure!(path.exists(), "{}: there is no such file", path.display());
    let open = |path: &Path| Ok(seal::open_file(path, Kind::of_owner_file(path), key)?);
    let one = |(backend, options): &(Arc<dyn Backend>, Option<Options>)| {
        let obtained = lowered::obtain(path, &**backend, options.as_ref(), &open);
        let obtained = obtained.with_context(|| path.display().to_string())?;
        if let Some(because) = &obtained.lowered_because {
            let id = backend.id();
            tracing::warn!("lowered {} for {id}: {because}; `tacit model lower` keeps it", path.display());
        }
        Ok(obtained.model)
    };
    chosen.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_to_the_first_back_end_or_to_the_one_they_name() {
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
