//! The ways to answer an input that the study compares, and their commands.
use anyhow::bail;
use tacit_backends::{Options, Registry, Trust};
use tacit_experiments::experiment::WorkloadSpec;
pub use tacit_plan::LOCAL;

const TWELVE_BITS: &str = "frac_bits=12,weight_bits=12";
/// Name, back end and its options; `-12` is the precision of [PM24].
const APPROACHES: [(&str, &str, &str); 9] = [
    ("cheetah", "cheetah", ""),
    ("cheetah-12", "cheetah", TWELVE_BITS),
    ("sci-he", "sci-he", ""),
    ("sci-he-12", "sci-he", TWELVE_BITS),
    ("dealt", "dealt", ""),
    ("fss", "fss", ""),
    ("ckks", "ckks", ""),
    ("clear", "clear", ""),
    (LOCAL, "", ""),
];

/// A way to answer an input.
#[derive(Clone, Copy, Debug)]
pub struct Approach {
    pub name: &'static str,
    /// The approach's back end; empty for [`LOCAL`].
    pub backend: &'static str,
    options: &'static str,
}

impl Approach {
    pub fn select(names: &[String]) -> anyhow::Result<Vec<Self>> {
        let known = APPROACHES.map(|(name, backend, options)| Self { name, backend, options });
        if names.is_empty() {
            return Ok(known.to_vec());
        }
        let chosen = names.iter().map(|name| match known.iter().find(|approach| approach.name == name) {
            Some(approach) => Ok(*approach),
            None => bail!("no approach {name:?}; there are {}", known.map(|approach| approach.name).join(", ")),
        });
        chosen.collect()
    }

    pub fn options(&self) -> Options {
        self.options.parse().expect("the options above are written as options are")
    }

    /// The parties that its users trust; none if the client has the model.
    pub fn trust(&self) -> Option<Trust> {
        Registry::standard().get(self.backend).ok().map(|backend| backend.trust())
    }

    /// Returns the model file for a network: lowerings of one back end with different options lie
    /// beside different files.
    pub fn file(&self, net: &str) -> String {
        if self.options.is_empty() { format!("{net}.tacit") } else { format!("{net}+{}.tacit", self.name) }
    }

    pub fn workload(&self, net: &str) -> String {
        format!("{net}+{}", self.name)
    }

    pub fn commands(&self, net: &str) -> WorkloadSpec {
        let mut workload = WorkloadSpec {
            name: self.workload(net),
            client: format!("tacit model run {{inputs}}/{net}.tacit {{inputs}}/{net}.npy --json"),
            ..WorkloadSpec::default()
        };
        let Ok(backend) = Registry::standard().get(self.backend).cloned() else { return workload };
        let mut client = format!(
            "tacit infer {{inputs}}/{net}.npy --normalised --server {{server}}:{{port}} --server-name localhost --keys {{keys}} \
             --backend {} --stall 86400 {{pace}} --json",
            self.backend
        );
        let mut server = format!(
            "tacit serve {{inputs}}/{} --keys {{keys}} --listen {{server}}:{{port}} --backend {} --threads 1 --stall 86400 \
             --no-warm-up {{pace}}",
            self.file(net),
            self.backend
        );
        for (key, value) in self.options().iter() {
            server += &format!(" -O {key}={value}");
        }
        if backend.trust() == Trust::ServerSeesInput {
            server += " --allow-clear";
        }
        if backend.trust() == Trust::Dealer {
            let dealer = " --dealer {dealer} --dealer-pin {dealer_pin}";
            client += dealer;
            server += dealer;
            workload.dealer = Some("tacit dealer --keys {keys} --listen {dealer} --numbers {dir}/dealer.sqlite".into());
        }
        WorkloadSpec { client, server: Some(server), ready: Some("listening on".into()), ..workload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approaches_have_names_and_back_ends() {
        let approaches = Approach::select(&[]).unwrap();
        for approach in &approaches {
            assert_eq!(approach.trust().is_none(), approach.name == LOCAL, "{approach:?}");
            let commands = approach.commands("net");
            assert_eq!(commands.dealer.is_some(), approach.trust() == Some(Trust::Dealer), "{approach:?}");
        }
        let error = Approach::select(&["sci".into()]).unwrap_err().to_string();
        assert!(error.contains("sci-he-12"), "{error}");
        assert!(error.contains("local"), "{error}");
        let commands = Approach::select(&["cheetah-12".into()]).unwrap()[0].commands("net");
        assert!(commands.server.unwrap().contains("net+cheetah-12.tacit"));
    }
}
