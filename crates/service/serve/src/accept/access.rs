//! Access rules: the file given with `--access`, and what it means for one client.
use crate::ServeError;
use crate::accept::identity::CertificateIdentity;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use tacit_foreign::file;
use tacit_ids::ClientId;
use tacit_store::Serial;

/// Largest access file, in bytes: ten thousand clients fit.
const MAX_BYTES: u64 = 4 << 20;
/// Most characters of a client's name in the file.
const MAX_NAME: usize = 64;
/// Most characters of a line in an error.
const MAX_SHOWN: usize = 120;

pub(crate) const REVOKED: &str = "this client's access was revoked; ask whoever runs this server";
pub(crate) const CERTIFICATE_REVOKED: &str =
    "this certificate was revoked, by its serial number; ask whoever runs this server for another";

const HELPER_REVOKED: &str = "this helper's access was revoked; ask whoever runs this server";

/// The file of access rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessFile {
    #[serde(default)]
    revoked: Revoked,
    #[serde(default)]
    default: Entry,
    #[serde(default)]
    client: BTreeMap<Fingerprint, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoked {
    serials: BTreeSet<SerialNumber>,
}

/// A serial number as `tacit keys show` prints it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SerialNumber(Serial);

impl<'de> Deserialize<'de> for SerialNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|e| D::Error::custom(format!("{e} (see `tacit keys show`)")))
    }
}

/// One table of the file.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<ClientName>,
    models: Option<BTreeSet<String>>,
    answers: Option<Answers>,
    queries_per_day: Option<u32>,
    rate_per_minute: Option<NonZeroU32>,
    revoked: Option<bool>,
}

/// What answers may reveal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Answers {
    #[default]
    #[serde(rename = "all")]
    All,
    /// The class alone. Models that reveal more are hidden from this client.
    #[serde(rename = "top-1")]
    Top1,
}

/// A client as `tacit keys fingerprint` prints it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fingerprint(ClientId);

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|e| D::Error::custom(format!("{e} (see `tacit keys fingerprint`)")))
    }
}

/// A client's name in the file, for people: one line.
#[derive(Clone)]
struct ClientName(Arc<str>);

impl<'de> Deserialize<'de> for ClientName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.chars().count() {
            1..=MAX_NAME if !text.contains(char::is_control) => Ok(Self(text.into())),
            _ => Err(D::Error::custom(format!("a name has 1 to {MAX_NAME} characters, all of them of one line"))),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rule {
    /// The client's name in the file; for people only.
    pub(crate) name: Option<Arc<str>>,
    /// Names of the models that the client may use; `None` means all.
    models: Option<Arc<BTreeSet<String>>>,
    answers: Answers,
    /// Answers of each model that the client may have in a day.
    pub(crate) per_day: Option<u32>,
    /// Requests that the client may make in a minute.
    pub(crate) per_minute: Option<NonZeroU32>,
    pub(crate) revoked: bool,
}

impl Rule {
    /// Whether the client may use a model. `is_top_1`: the model reveals the class alone.
    pub(crate) fn allows(&self, model: &str, is_top_1: bool) -> bool {
        let is_listed = self.models.as_ref().is_none_or(|models| models.contains(model));
        is_listed && (is_top_1 || self.answers == Answers::All)
    }
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rules {
    default: Rule,
    clients: HashMap<ClientId, Rule>,
    serials: BTreeSet<Serial>,
}

impl Rules {
    pub(crate) fn read(path: &Path) -> Result<Self, ServeError> {
        let text = file::read_text(path, MAX_BYTES).map_err(|e| e.to_string());
        let rules = text.and_then(|text| Self::parse(&text));
        rules.map_err(|what| ServeError::Access { path: path.to_owned(), what })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let AccessFile { revoked, default, client } = toml::from_str(text).map_err(|e| format_error(text, &e))?;
        if default.name.is_some() {
            return Err("[default] is for many clients, so it has no name: names stand in [client.FINGERPRINT]".into());
        }
        let clients =
            client.into_iter().map(|(Fingerprint(id), entry)| (id, entry.with_defaults(default.clone()).rule()));
        let clients = clients.collect();
        let serials = revoked.serials.into_iter().map(|SerialNumber(serial)| serial).collect();
        Ok(Self { default: default.rule(), clients, serials })
    }

    pub(crate) fn rule_for(&self, client: ClientId) -> &Rule {
        self.clients.get(&client).unwrap_or(&self.default)
    }

    /// Why this client or its certificate is refused; `None` if neither is.
    pub(crate) fn revocation_reason(&self, client: ClientId, serial: &Serial) -> Option<&'static str> {
        match () {
            () if self.rule_for(client).revoked => Some(REVOKED),
            () if self.serials.contains(serial) => Some(CERTIFICATE_REVOKED),
            () => None,
        }
    }

    /// Why the holder of this certificate is refused, `None` if it is not. A helper is refused if
    /// its own fingerprint or its client is revoked.
    pub(crate) fn reason_to_refuse(&self, identity: &CertificateIdentity) -> Option<&'static str> {
        match identity.helper {
            Some(helper) if self.rule_for(helper).revoked => Some(HELPER_REVOKED),
            _ => self.revocation_reason(identity.client, &identity.serial),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.clients.values().chain([&self.default])
    }

    pub(crate) fn have_quotas(&self) -> bool {
        self.iter().any(|rule| rule.per_day.is_some())
    }

    pub(crate) fn models(&self) -> BTreeSet<&str> {
        self.iter().filter_map(|rule| rule.models.as_deref()).flatten().map(String::as_str).collect()
    }
}

impl Entry {
    /// Adds to a client's table each limit of `[default]` that it does not set.
    fn with_defaults(self, default: Self) -> Self {
        Self {
            name: self.name,
            models: self.models.or(default.models),
            answers: self.answers.or(default.answers),
            queries_per_day: self.queries_per_day.or(default.queries_per_day),
            rate_per_minute: self.rate_per_minute.or(default.rate_per_minute),
            revoked: self.revoked.or(default.revoked),
        }
    }

    fn rule(self) -> Rule {
        Rule {
            name: self.name.map(|ClientName(name)| name),
            models: self.models.map(Arc::new),
            answers: self.answers.unwrap_or_default(),
            per_day: self.queries_per_day,
            per_minute: self.rate_per_minute,
            revoked: self.revoked.unwrap_or(false),
        }
    }
}

/// Formats an error in one line: line number, the line's text, and what is wrong.
fn format_error(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let Some(span) = error.span() else { return message };
    let preceding = text.get(..span.start).unwrap_or(text);
    let number = preceding.matches('\n').count();
    let line: String = text.lines().nth(number).unwrap_or_default().trim().chars().take(MAX_SHOWN).collect();
    format!("line {}, `{line}`: {message}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: ClientId = ClientId([0xab; 32]);
    const BOB: ClientId = ClientId([1; 32]);

    #[test]
    fn client_table_inherits_missing_limits_from_default() {
        let text = format!(
            "[default]\nmodels = ['digits']\nqueries_per_day = 5\n[client.{ALICE}]\nqueries_per_day = 0\n\
             rate_per_minute = 60\n[client.{BOB}]\nmodels = ['digits', 'faces']\nrevoked = true\n"
        );
        let rules = Rules::parse(&text).unwrap();
        let (alice, bob, carol) = (rules.rule_for(ALICE), rules.rule_for(BOB), rules.rule_for(ClientId([2; 32])));
        assert!(alice.allows("digits", false));
        assert!(!alice.allows("faces", false));
        assert!(!alice.revoked);
        assert_eq!((alice.per_day, alice.per_minute.map(NonZeroU32::get)), (Some(0), Some(60)));
        assert!(bob.allows("faces", false));
        assert!(bob.revoked);
        assert_eq!((bob.per_day, bob.per_minute), (Some(5), None));
        assert!(carol.allows("digits", false));
        assert!(!carol.allows("faces", false));
        assert_eq!(rules.models(), BTreeSet::from(["digits", "faces"]));
        assert!(rules.have_quotas());
    }

    #[test]
    fn client_name_decides_nothing() {
        let rules = Rules::parse(&format!("[client.{ALICE}]\nname = 'alice, ward 3'\n")).unwrap();
        assert_eq!(rules.rule_for(ALICE).name.as_deref(), Some("alice, ward 3"));
        assert_eq!(rules.rule_for(BOB).name, None);
        assert!(rules.rule_for(ALICE).allows("anything", false));
        assert!(!rules.rule_for(ALICE).revoked);
        assert!(Rules::parse("[default]\nname = 'all'\n").unwrap_err().contains("[client.FINGERPRINT]"));
    }

    #[test]
    fn top_1_clients_get_only_models_that_reveal_the_class_alone() {
        let text = format!(
            "[default]\nanswers = 'top-1'\n[client.{ALICE}]\nanswers = 'all'\n[client.{BOB}]\nmodels = ['a']\n"
        );
        let rules = Rules::parse(&text).unwrap();
        let allowed =
            |client| ["a", "b"].map(|name| [true, false].map(|is_top_1| rules.rule_for(client).allows(name, is_top_1)));
        assert_eq!(allowed(ALICE), [[true, true], [true, true]]);
        assert_eq!(allowed(BOB), [[true, false], [false, false]]);
        assert_eq!(allowed(ClientId([2; 32])), [[true, false], [true, false]]);
    }

    #[test]
    fn empty_file_allows_everything() {
        let rules = Rules::parse("").unwrap();
        assert_eq!(rules, Rules::default());
        assert!(rules.rule_for(ALICE).allows("anything", false));
        assert!(!rules.rule_for(ALICE).revoked);
        assert!(!rules.have_quotas());
    }

    #[test]
    fn client_table_overrides_revoked_default() {
        let rules = Rules::parse(&format!("[default]\nrevoked = true\n[client.{ALICE}]\nrevoked = false\n")).unwrap();
        assert!(!rules.rule_for(ALICE).revoked);
        assert!(rules.rule_for(BOB).revoked);
    }

    #[test]
    fn revokes_certificate_by_serial_and_key_with_all_its_certificates() {
        let text = format!("[revoked]\nserials = ['0A:bc', '7']\n[client.{BOB}]\nrevoked = true\n");
        let rules = Rules::parse(&text).unwrap();
        let why = |client, serial: &str| rules.revocation_reason(client, &serial.parse().unwrap());
        for serial in ["0abc", "07"] {
            assert_eq!((why(ALICE, serial), why(BOB, serial)), (Some(CERTIFICATE_REVOKED), Some(REVOKED)));
        }
        assert_eq!((why(ALICE, "0abd"), why(BOB, "0abd")), (None, Some(REVOKED)));
        assert!(!rules.rule_for(ALICE).revoked);
    }

    #[test]
    fn errors_name_line_and_key() {
        let short = "[client.abcd]\nrevoked = true\n";
        for (text, line, parts) in [
            ("[default]\nqueries = 5\n", 2, ["queries", "unknown field"]),
            ("\n\n[default]\nqueries_per_day = 'many'\n", 4, ["queries_per_day", "invalid type"]),
            ("[default]\nqueries_per_day = -1\n", 2, ["queries_per_day", "-1"]),
            ("[default]\nrate_per_minute = 0\n", 2, ["rate_per_minute", "nonzero"]),
            ("[default]\nrevoked = true\nrevoked = true\n", 3, ["revoked", "duplicate"]),
            ("[clients]\n", 1, ["clients", "unknown field"]),
            (short, 1, ["abcd", "64 hexadecimal digits"]),
            ("[default]\nmodels = 'digits'\n", 2, ["models", "invalid type"]),
            ("[default]\nanswers = 'top1'\n", 2, ["top1", "`all` or `top-1`"]),
            ("[revoked]\nserials = ['0102', 'zz']\n", 2, ["zz", "no serial number"]),
            ("[revoked]\nserials = '01'\n", 2, ["serials", "invalid type"]),
            ("[revoked]\n", 1, ["[revoked]", "serials"]),
            ("[default\n", 1, ["[default", "unclosed"]),
            ("[default]\nname = \"a\\u001b[2J\"\n", 2, ["name", "one line"]),
            ("[default]\nname = ''\n", 2, ["name", "1 to 64"]),
        ] {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}, ")), "{text}: {error}");
            assert!(parts.iter().all(|fragment| error.contains(fragment)), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn rejects_endless_file() {
        let error = Rules::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("/dev/zero"), "{error}");
        assert!(error.contains("it is a device"), "{error}");
    }
}
