use super::*;
use crate::tests::assert_refused;

const MINIMAL: &str = r#"
name = "mini"
links = ["lan"]
[[workloads]]
name = "ping"
client = "true"
"#;

fn read(text: &str) -> Result<Experiment, String> {
    ExperimentSpec::from_toml("mini.toml", text).and_then(Experiment::new).map_err(|e| e.to_string())
}

/// A valid experiment.
pub(in crate::experiment) fn parse(text: &str) -> Experiment {
    read(text).unwrap()
}

/// The minimal experiment with `old` replaced.
fn with(old: &str, new: &str) -> Result<Experiment, String> {
    assert!(MINIMAL.contains(old), "{old}");
    read(&MINIMAL.replace(old, new))
}

fn top(line: &str) -> Result<Experiment, String> {
    read(&format!("{line}\n{MINIMAL}"))
}

fn workload(line: &str) -> Result<Experiment, String> {
    read(&format!("{MINIMAL}{line}\n"))
}

#[test]
fn defaults_are_those_of_pm24() {
    let experiment = read(MINIMAL).unwrap();
    let spec = experiment.spec();
    assert_eq!((spec.repetitions, spec.interval_s, spec.randomise, spec.warm_up), (10, 1.0, true, 0));
    assert_eq!(experiment.transports(), [TransportKind::Plain]);
    assert_eq!(experiment.paces(), [None]);
    assert_eq!(experiment.links()[0].name, "lan");
    assert!(experiment.workloads()[0].server.is_none());
}

#[test]
fn wrong_keys_and_types_are_named_with_their_line() {
    assert_refused(top("repititions = 3"), &["mini.toml", "line 1", "unknown field `repititions`", "repetitions"]);
    assert_refused(workload("comand = 'x'"), &["unknown field `comand`", "client"]);
    assert_refused(with("\"lan\"", "{ rat = \"1mbit\" }"), &["unknown field `rat`", "rate"]);
    assert_refused(with("\"lan\"", "7"), &["a link: the name of a preset, or a table"]);
    assert_refused(with("client = \"true\"", ""), &["missing field `client`"]);
    assert_refused(with("name = \"mini\"", ""), &["missing field `name`"]);
    assert_refused(top("repetitions = -1"), &["repetitions", "-1"]);
    assert_refused(top("seconds = \"ten\""), &["ten"]);
    assert_refused(read("x = "), &["mini.toml"]);
    assert_refused(read(&format!("#{}", "x".repeat(2 << 20))), &["at most"]);
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    assert_refused(top("repetitions = 0"), &["repetitions: 0 must be a number from 1 to 10000"]);
    assert_refused(top("interval_s = 0.0"), &["interval_s: 0 must be a number of seconds from 0.001 to 60"]);
    assert_refused(top("timeout_s = nan"), &["timeout_s", "NaN"]);
    assert_refused(top("cool_down_s = -1.0"), &["cool_down_s: -1"]);
    assert_refused(top("measure_s = 61.0"), &["measure_s: 61"]);
    assert_refused(with("\"lan\"", "{ rate = \"0mbit\" }"), &["0mbit"]);
    assert_refused(with("\"lan\"", "{ rate = \"fast\" }"), &["fast"]);
    assert_refused(with("\"lan\"", "{ rate = \"1mbit\", rtt = \"9000s\" }"), &["links[0]", "rtt"]);
    assert_refused(with("\"lan\"", "\"moon\""), &["links[0]: there is no link preset `moon`; there are lan, "]);
    assert_refused(with("\"lan\"", ""), &["links: is empty"]);
    assert_refused(with("\"lan\"", "\"lan\", \"lan\""), &["links: `lan` is there twice"]);
    assert_refused(top("transports = []"), &["transports: is empty"]);
    assert_refused(top("transports = [\"ssh\"]"), &["transports[0]", "ssh", "plain, tls, wireguard"]);
    assert_refused(top("paces = [\"0mbit\"]"), &["paces[0]", "0mbit", "none"]);
    assert_refused(top("fewer = [{ above_s = 1.0, repetitions = 11 }]"), &["fewer[0]", "by their length"]);
    assert_refused(top("fewer = [{ above_s = -1.0, repetitions = 1 }]"), &["fewer[0].above_s"]);
    assert_refused(top("name2 = 1"), &["name2"]);
    let (paces, links): (Vec<String>, Vec<String>) =
        (1..=200).map(|i| (format!("\"{i}mbit\""), format!("{{ rate = \"{i}mbit\" }}"))).unzip();
    let links = MINIMAL.replace("\"lan\"", &links.join(", ")).replace("\"true\"", "\"x {pace}\"");
    let text = format!("paces = [{}]\n{links}", paces.join(", "));
    assert_refused(read(&text), &["40000 cells and 400000 runs are too many"]);
    assert_refused(with("name = \"mini\"", "name = \"a b\""), &["name: `a b` is no name"]);
    assert_refused(with("name = \"ping\"", "name = \"../ping\""), &["workloads[0].name"]);
}

#[test]
fn commands_and_placeholders_are_checked() {
    assert_refused(with("\"true\"", "\"\""), &["workloads[0].client: no command"]);
    assert_refused(with("\"true\"", "\"x {sever}\""), &["workloads[0].client", "{sever}"]);
    assert_refused(workload("server = \"y {pory}\""), &["workloads[0].server", "{pory}"]);
    assert_refused(workload("dealer = \"x\""), &["workloads[0].dealer: there is no server"]);
    assert_refused(with("\"true\"", "\"x {dealer_pin}\""), &["workloads[0]", "add `dealer`"]);
    assert_refused(with("name = \"ping\"", "name = \"ping\"\nround_trips = -1.0"), &["round_trips"]);
    assert_refused(workload("ready = \"up\""), &["workloads[0].ready: there is no server"]);
    assert_refused(workload("server = \"x\"\nready = \"\""), &["workloads[0].ready: is empty"]);
    assert_refused(workload("environment = { \"A=B\" = \"1\" }"), &["environment.A=B"]);
    assert_refused(workload("environment = { A = \"{nope}\" }"), &["environment.A", "{nope}"]);
    assert_refused(workload("environment = { A = \"{pace}\" }"), &["pace_bps"]);
    assert_refused(top("values = { Model = \"m\" }"), &["values.Model"]);
    assert_refused(top("values = { port = \"1\" }"), &["values.port", "meaning already"]);
    assert_refused(top("values = { model = \"{dir}/m\" }"), &["values.model", "{dir}"]);
    let own_name =
        format!("values = {{ model = \"{{campaign}}/m\" }}\n{}", MINIMAL.replace("\"true\"", "\"run {model} it's\""));
    assert_refused(read(&own_name), &["open quote"]);
    read(&own_name.replace("it's", "")).unwrap();
    workload("environment = { A = \"it's {port}\" }").unwrap();
}

#[test]
fn ineffective_transports_and_paces_are_refused() {
    assert_refused(top("transports = [\"plain\", \"tls\"]"), &["`ping` does not use {transport}"]);
    assert_refused(top("transports = [\"tls+wireguard\"]"), &["{transport}"]);
    assert_refused(top("paces = [\"none\", \"1mbit\"]"), &["neither {pace} nor {pace_bps}"]);
    let text = format!("transports = [\"wireguard\"]\n{}", MINIMAL.replace("\"lan\"", "\"none\""));
    assert_refused(read(&text), &["wireguard needs a link"]);
    top("transports = [\"plain\", \"wireguard\"]").unwrap();
    let takes = MINIMAL.replace("\"true\"", "\"x {transport} {pace}\"");
    let text = format!("transports = [\"plain\", \"tls\"]\npaces = [\"none\", \"20mbit\"]\n{takes}");
    let experiment = read(&text).unwrap();
    assert_eq!(experiment.transports().len() * experiment.paces().len(), 4);
}

#[test]
fn text_with_defaults_reads_back_equal() {
    let text = r#"
name = "all"
links = ["lan", { name = "slow", rate = "3.89mbit", rtt = "40ms", loss = 0.01 }, "none"]
values = { model = "{campaign}/m" }
seed = 9223372036854775807
[[workloads]]
name = "a"
client = "x '{model}'"
server = 'y "q"'
environment = { A = "1" }
[[workloads]]
name = "b"
client = "x"
"#;
    let spec = ExperimentSpec::from_toml("all", text).unwrap();
    let spec_again = ExperimentSpec::from_toml("again", &spec.to_toml().unwrap()).unwrap();
    assert_eq!(spec, spec_again);
    assert!(spec.differences(&spec_again).is_empty());
    let mut changed = spec_again;
    changed.repetitions = 3;
    changed.device = Some("generic-x86-server".into());
    assert_eq!(
        spec.differences(&changed),
        ["`device` is absent there and \"generic-x86-server\" here", "`repetitions` is 10 there and 3 here"]
    );
    assert_eq!(Experiment::new(spec).unwrap().links().len(), 3);
}

#[test]
fn seed_is_drawn_only_if_absent() {
    let seeded = read(MINIMAL).unwrap().with_seed(u64::MAX);
    assert_eq!(seeded.spec().seed, Some(i64::MAX as u64));
    seeded.spec().to_toml().unwrap();
    assert_eq!(top("seed = 5").unwrap().with_seed(9).spec().seed, Some(5));
}
