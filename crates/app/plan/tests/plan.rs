//! From synthetic runs to a ranking: fits find the rates of the runs again, limits apply, and the
//! ranking changes at the values that `change` reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use tacit_backends::{Costs, DealingCost, PartyCost, PhaseCost, Role, Sides, Trust, Work};
use tacit_net::Phase;
use tacit_plan::calibration::{BackendRates, VERSION};
use tacit_plan::change::{self, Knob};
use tacit_plan::counts::{SPOOLED, memory};
use tacit_plan::{
    Calibration, Choice, ClientWork, Device, Goal, Limits, Link, Observation, Observed, Offer, Prediction, Prices,
    Primitive, Question, SeenLink, Setting, Usage,
};

const NTT_S: f64 = 2e-5;
const BYTE_S: f64 = 2e-9;
const CARRIED_S: f64 = 1e-9;
const RATE: f64 = 1e9;
const PARALLEL: f64 = 0.5;
const HIDDEN: f64 = 0.7;

fn phase(ntts: u64, bytes: u64, exchanges: u64) -> PhaseCost {
    let party = PartyCost { work: Work { ntts, ..Work::default() }, peak_memory_bytes: 8 * bytes, stored_bytes: 100 };
    let [up_bytes, down_bytes] = [bytes / 4, bytes - bytes / 4];
    let cost = PhaseCost { up_bytes, down_bytes, exchanges, waited_bytes: bytes, ..PhaseCost::default() };
    PhaseCost { client: party, server: party, ..cost }
}

fn costs(ntts: u64, bytes: u64, exchanges: u64) -> Costs {
    Costs { offline: phase(10 * ntts, 2 * bytes, 2), online: phase(ntts, bytes, exchanges), ..Costs::default() }
}

/// A run on a machine whose server takes twice the client's time for everything, one after the other.
fn run(network: &str, costs: Costs) -> Observation {
    let observed = |cost: &PhaseCost| {
        let client_cpu_s = 0.001 + NTT_S * cost.client.work.ntts as f64 + BYTE_S * cost.bytes() as f64;
        let (server_cpu_s, wall_s) = (2.0 * client_cpu_s, 3.0 * client_cpu_s);
        let peak = (30 << 20) + cost.client.peak_memory_bytes;
        Observed {
            wall_s,
            cpu_s: Sides { client: client_cpu_s, server: server_cpu_s },
            peak_bytes: Sides { client: peak, server: 2 * peak },
        }
    };
    let phases = [(Phase::Offline, observed(&costs.offline)), (Phase::Online, observed(&costs.online))];
    Observation { network: network.into(), threads: 1, link: None, costs, phases: phases.into() }
}

/// Returns the run with two threads, which share half of the work, and the run over a link. Over
/// the link, the shorter of computing and transfer adds three tenths of its time.
fn further(plain: &Observation) -> [Observation; 2] {
    let (mut two, mut far) = (plain.clone(), plain.clone());
    (two.threads, far.link) = (2, Some(SeenLink { bits: RATE, rtt_s: 0.01, bucket: 0.0 }));
    two.phases.values_mut().for_each(|observed| observed.wall_s *= 1.0 - PARALLEL + PARALLEL / 2.0);
    for (phase, observed) in &mut far.phases {
        let cost = plain.costs.phase(*phase);
        let bytes_s = 8.0 * cost.bytes() as f64 / RATE;
        let combined_s = observed.wall_s.max(bytes_s) + (1.0 - HIDDEN) * observed.wall_s.min(bytes_s);
        observed.wall_s = combined_s + 0.01 * cost.exchanges as f64;
        observed.cpu_s = observed.cpu_s.map(|s| s + CARRIED_S * cost.bytes() as f64);
    }
    [two, far]
}

fn calibration() -> Calibration {
    let sizes = [(50, 1_000), (5_000, 40_000_000), (300, 9_000_000), (20_000, 100_000), (900, 700_000)];
    let plain = sizes.iter().enumerate().map(|(i, (n, b))| run(&format!("net{i}"), costs(*n, *b, 30)));
    let runs: Vec<_> = plain.flat_map(|run| further(&run).into_iter().chain([run])).collect();
    let rates = Calibration::fit_backend(&runs, None);
    let near: Vec<_> = runs.iter().filter(|run| run.link.is_none()).cloned().collect();
    let (second, first) = (Calibration::fit_backend(&near, Some(&rates)), Calibration::fit_backend(&near, None));
    for (phase, observed) in &rates.phases {
        let carried = |rates: &BackendRates| rates.phases[phase].server.seconds.get(&Primitive::Carried).copied();
        assert_eq!(second.phases[phase].hidden, observed.hidden);
        assert!(carried(&rates).is_some_and(|s| (s / CARRIED_S - 1.0).abs() < 0.5), "{rates:?}");
        assert_eq!((carried(&second), carried(&first)), (carried(&rates), None));
    }
    let names = ["chatty", "heavy", "helped", "clear"];
    Calibration {
        version: VERSION,
        machine: "made up".into(),
        made: "by a test".into(),
        backends: names.map(|name| (name.to_owned(), rates.clone())).into(),
        local_mac_s: 1e-9,
    }
}

fn offer(backend: &str, trust: Option<Trust>, costs: Costs) -> Offer {
    Offer { backend: backend.into(), options: String::new(), trust, costs, agreement: None }
}

/// Returns three offers: `chatty` sends few bytes in many exchanges, `heavy` many bytes in two, and
/// `helped`, with a dealer, is better than both.
fn offers() -> Vec<Offer> {
    let mut clear = costs(1, 3_000, 1);
    clear.online.server.work.macs = 1_000_000;
    vec![
        offer("chatty", Some(Trust::TwoParty), costs(1_000, 200_000, 200)),
        offer("heavy", Some(Trust::TwoParty), costs(1_000, 20_000_000, 2)),
        offer("helped", Some(Trust::Dealer), costs(10, 150_000, 1)),
        offer("clear", Some(Trust::ServerSeesInput), clear),
        offer("local", None, clear),
    ]
}

fn setting(rate: f64, rtt_s: f64) -> Setting {
    let device = Device::named("this").unwrap().with_calibration(Arc::new(calibration()));
    let link = Link {
        name: "test".into(),
        up_bits_per_s: rate,
        down_bits_per_s: rate,
        rtt_s,
        bucket: 0.0,
        tunnel_cpu_s_per_byte: 0.0,
    };
    Setting { client: device.clone(), server: device, client_threads: 1, server_threads: 1, link }
}

fn predict(costs: &Costs, setting: &Setting) -> Prediction {
    Prediction::compute("chatty", costs, setting).unwrap()
}

fn assert_close(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1e-9, "{actual}, expected {expected}");
}

fn question(offers: &[Offer], goal: Goal, limits: Limits) -> Question<'_> {
    Question { offers, goal, limits, usage: Usage { burst: 3, ..Usage::default() } }
}

fn ranked_offer(question: &Question<'_>, setting: &Setting, backend: &str) -> Choice {
    let mut ranked = question.ranked(setting).unwrap().into_iter();
    ranked.find(|choice| question.offers[choice.offer].backend == backend).unwrap()
}

fn best<'a>(offers: &'a [Offer], setting: &Setting, limits: Limits) -> &'a str {
    let best = question(offers, Goal::Latency, limits).best(setting).unwrap().unwrap();
    &offers[best.offer].backend
}

#[test]
fn fit_finds_the_rates_of_measured_runs() {
    let setting = setting(1e12, 0.0);
    let rates = &setting.client.calibration.backends["chatty"];
    for phase in rates.phases.values() {
        assert!(phase.client.error < 0.1, "{phase:?}");
        assert!(phase.server.error < 0.1, "{phase:?}");
        assert_close(phase.apart, 1.0);
        assert_close(phase.parallel, PARALLEL);
        assert_close(phase.hidden, HIDDEN);
    }
    let resident = rates.phases[&Phase::Online].server.resident_bytes(&[1.0, f64::from(1 << 20), 0.0]);
    assert!((resident as f64 / f64::from(62 << 20) - 1.0).abs() < 1e-3, "{resident}");
    assert_eq!(rates.networks.len(), 5);
    assert!(!rates.phases.contains_key(&Phase::Setup));
    let costs = costs(2_000, 5_000_000, 30);
    let online = predict(&costs, &setting).online;
    let (own_s, carried) = (0.001 + NTT_S * 2e3 + BYTE_S * 5e6, CARRIED_S * 5e6);
    let close = |measured: f64, expected: f64| assert!((measured / expected - 1.0).abs() < 0.05, "{online:?}");
    close(online.client_cpu_s, own_s + carried);
    close(online.server_cpu_s, 2.0 * own_s + carried);
    close(online.wall_s, 3.0 * own_s + 2.0 * carried);
    assert_eq!(online.up_bytes + online.down_bytes, 5_000_000);
    let bytes = (30 << 20) as f64 + 4e7;
    assert!((online.client_bytes as f64 / bytes - 1.0).abs() < 1e-3, "{online:?}");
    assert!(Prediction::compute("unheard-of", &costs, &setting).is_none());
}

#[test]
fn calibration_round_trips_and_wrong_files_are_refused() {
    let calibration_made = calibration();
    assert_eq!(Calibration::parse(&calibration_made.to_toml()).unwrap(), calibration_made);
    assert!(!Calibration::built_in().backends.is_empty());
    let text = calibration_made.to_toml();
    for (old, new, message) in [
        ("version = 3", "version = 9", "make it again"),
        ("apart = 1.0", "apart = 1.5", "apart"),
        ("hidden = 0.", "hidden = 1.", "hidden"),
        ("local_mac_s = 0.000000001", "local_mac_s = -1.0", "no time"),
        ("local_mac_s = 0.000000001", "local_mac_s = nan", "no time"),
        ("machine =", "engine =", "engine"),
    ] {
        let changed = text.replacen(old, new, 1);
        assert_ne!(changed, text, "{old} is not in\n{text}");
        let error = Calibration::parse(&changed).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn memory_counts_declared_bytes_and_weights_but_no_spooled_halves() {
    let mut costs = costs(1, 1_000, 1);
    (costs.weights, costs.dealing.server_bytes) = (1_000, SPOOLED);
    costs.offline.server.peak_memory_bytes = SPOOLED + 5_000;
    costs.offline.server.stored_bytes = SPOOLED;
    costs.online.server.peak_memory_bytes = SPOOLED + 2_000;
    assert_eq!(memory(&costs, Phase::Offline, Role::Server), [1.0, (SPOOLED + 5_000) as f64, 1_000.0]);
    costs.dealing.server_bytes += 1;
    costs.offline.server.stored_bytes += 1;
    assert_eq!(memory(&costs, Phase::Offline, Role::Server)[1], 4_999.0);
    assert_eq!(memory(&costs, Phase::Online, Role::Server)[1], 1_999.0);
    // The client's part stays the same, and material without a dealer is not spooled.
    assert_eq!(memory(&costs, Phase::Offline, Role::Client)[1], costs.offline.client.peak_memory_bytes as f64);
    costs.dealing = DealingCost::default();
    assert_eq!(memory(&costs, Phase::Online, Role::Server)[1], (SPOOLED + 2_000) as f64);
}

#[test]
fn link_costs_its_bytes_and_its_round_trips() {
    let costs = costs(1_000, 1_000_000, 100);
    let near = predict(&costs, &setting(1e12, 0.0)).online;
    let far = predict(&costs, &setting(8e6, 0.05)).online;
    // 250 kB up, then 750 kB down, and a hundred round trips.
    assert_close(far.transfer_s, 1.0);
    assert_close(far.round_trips_s, 5.0);
    let overlapped_s = far.transfer_s + (1.0 - HIDDEN) * near.compute_s;
    assert!((far.wall_s - overlapped_s - far.round_trips_s).abs() < 1e-3, "{far:?}");
    assert_eq!(far.client_cpu_s, near.client_cpu_s);
    // The dealer's bytes to the client take time on the link as well.
    let dealing = DealingCost { client_bytes: 3_000_000, server_bytes: 1 << 30, ..DealingCost::default() };
    let dealt = predict(&Costs { dealing, ..costs }, &setting(8e6, 0.05));
    let prediction_alone = predict(&costs, &setting(8e6, 0.05));
    assert_close(dealt.offline.transfer_s - prediction_alone.offline.transfer_s, 3.0);
    let asking = dealt.offline.round_trips_s - prediction_alone.offline.round_trips_s;
    assert!((0.2..0.3).contains(&asking), "four round trips, and a young connection: {asking}");
    assert_eq!(dealt.online, prediction_alone.online);
}

#[test]
fn queued_bytes_are_listed_apart() {
    let mut costs = costs(1_000, 1_000_000, 1);
    let before = predict(&costs, &setting(8e6, 0.05));
    (costs.online.waited_bytes, costs.online.queued_bytes) = (500_000, 125_000);
    let after = predict(&costs, &setting(8e6, 0.05));
    assert_close(after.online.transfer_s, 0.5);
    assert_close(after.online.queued_s, 0.125);
    assert_close(before.online.transfer_s, 1.0);
    assert_eq!(before.online.queued_s, 0.0);
    assert_eq!(after.online.client_j, before.online.client_j);
}

#[test]
fn token_bucket_carries_small_messages_at_once() {
    let mut costs = costs(1_000, 20_000, 10);
    let far = |costs: &Costs, bucket: f64| {
        let mut setting = setting(8e6, 0.001);
        setting.link.bucket = bucket;
        setting.link.rtt_s = 0.0;
        predict(costs, &setting).online
    };
    assert_close(far(&costs, 0.0).transfer_s, 0.02);
    // 0.2 ms less each of eleven times.
    assert_close(far(&costs, 100.0).transfer_s, 0.0178);
    assert_close(far(&costs, 100_000.0).transfer_s, 0.0);
    costs.online.exchanges = 0;
    assert_close(far(&costs, 1_000.0).transfer_s, 0.018);
    // Of 5 and 15 kB the longer way, less what it carries at once, takes its time in all.
    let mut quick = self::costs(1, 20_000, 30);
    quick.online.client.work.ntts = 0;
    let remote = far(&quick, 1_000.0);
    assert_close(remote.transfer_s, 0.0);
    assert!(remote.compute_s < 0.01, "{remote:?}");
    assert_close(remote.wall_s, 0.014);
}

#[test]
fn young_connection_waits_until_its_window_fills_the_link() {
    let link = setting(100e6, 0.04).link;
    // 14, 29, 58, 116, 232 kB are sent in one round trip each; then the link is full: 500 kB under way.
    let idle = |k: i32| 0.04 - 8.0 * 14_480.0 * f64::from(k).exp2() / 100e6;
    assert_close(link.slow_start_idle_s(100e6, 14_480.0, 14_480), 0.0);
    assert_close(link.slow_start_idle_s(100e6, 14_480.0, 15_000), idle(0));
    assert_close(link.slow_start_idle_s(100e6, 14_480.0, 100_000), idle(0) + idle(1));
    assert_close(link.slow_start_idle_s(100e6, 14_480.0, 1 << 30), (0..6).map(idle).filter(|s| *s > 0.0).sum());
    assert_close(link.slow_start_idle_s(100e6, 500_000.0, 1 << 30), 0.0);
    assert_close(link.slow_start_idle_s(1e4, 14_480.0, 1 << 30), 0.0);
    // Both ways grow their windows at the same time, and queued bytes keep neither party waiting.
    let cost_with = |up_burst, queued_bytes, waited_bytes| {
        let [up_bytes, down_bytes] = [up_burst, 100_000];
        PhaseCost {
            up_bytes,
            down_bytes,
            up_burst,
            down_burst: 100_000,
            queued_bytes,
            waited_bytes,
            ..PhaseCost::default()
        }
    };
    let (climb_s, climbs) = (idle(0) + idle(1), |cost| link.phase_slow_start_s(&cost, 14_480.0, 14_480.0));
    assert_close(climbs(cost_with(100_000, 0, 200_000)), 2.0 * climb_s);
    assert_close(climbs(cost_with(100_000, 0, 100_000)), climb_s);
    assert_close(climbs(cost_with(900_000, 890_000, 100_000)), climb_s);
    // Once for both phases.
    let mut costs = costs(1_000, 1_000_000, 1);
    let before = predict(&costs, &setting(100e6, 0.04));
    (costs.offline.down_burst, costs.online.down_burst) = (1_000_000, 1_000_000);
    let after = predict(&costs, &setting(100e6, 0.04));
    assert!(after.offline.round_trips_s > before.offline.round_trips_s + 0.1);
    assert_eq!(after.online, before.online);
}

#[test]
fn best_offer_depends_on_link_and_trust() {
    let (offers, dealer) = (offers(), Limits { dealer: true, ..Limits::default() });
    assert_eq!(best(&offers, &setting(1e9, 0.04), Limits::default()), "heavy");
    assert_eq!(best(&offers, &setting(4e6, 0.001), Limits::default()), "chatty");
    assert_eq!(best(&offers, &setting(4e6, 0.001), dealer), "helped");
    // Back ends that are not private, or not within the limits, rank after those that are both.
    let ranked = question(&offers, Goal::Latency, Limits::default()).ranked(&setting(1e9, 0.04)).unwrap();
    let names: Vec<&str> = ranked.iter().map(|c| offers[c.offer].backend.as_str()).collect();
    assert_eq!(names[..3], ["heavy", "chatty", "helped"]);
    assert!(ranked[2].objections[0].contains("trust=dealer"), "{:?}", ranked[2].objections);
    assert_eq!(ranked[0].pool, 3);
    assert_eq!(ranked[0].pool_bytes, Sides { client: 300, server: 300 });
    let pareto: Vec<&str> =
        ranked.iter().filter(|c| c.pareto).map(|c: &Choice| offers[c.offer].backend.as_str()).collect();
    assert_eq!(pareto, ["helped"]);
}

#[test]
fn objections_name_limits_with_figures() {
    let offers = offers();
    let limits = Limits {
        memory: Some(1 << 20),
        online_s: Some(1e-3),
        upload: None,
        bytes: Some(1_000),
        client_j: Some(1e-6),
        client_cpu_s: Some(1e-6),
        agreement: Some(0.5),
        dealer: false,
    };
    let question = Question {
        usage: Usage { per_day: 1e6, clients: 1_000, ..Usage::default() },
        ..question(&offers, Goal::Latency, limits)
    };
    let heavy = ranked_offer(&question, &setting(1e7, 0.04), "heavy");
    for part in [
        "of memory, 1.0 MiB allowed",
        "0.001 s allowed",
        "an unknown share",
        "costs the client",
        "of processor time, 0.000 allowed",
        "on the link",
        "fit into a day",
        "such clients",
    ] {
        assert!(heavy.objections.iter().any(|o| o.contains(part)), "{part}: {:?}", heavy.objections);
    }
    assert!(question.best(&setting(1e7, 0.04)).unwrap().is_none());
}

#[test]
fn client_work_becomes_goal_and_limits() {
    let offers = offers();
    let place = setting(1e9, 0.04);
    let best_for = |work: ClientWork, limits: Limits| {
        let mut question = question(&offers, Goal::Latency, limits);
        (question.goal, question.limits) = work.goal_and_limits(&question, &place).unwrap();
        (question.goal, question.limits, question.best(&place).unwrap().map(|c| offers[c.offer].backend.as_str()))
    };
    let (goal, _, best) = best_for(ClientWork::Min, Limits::default());
    assert_eq!((goal, best), (Goal::ClientEnergy, Some("chatty")));
    let dealer = Limits { dealer: true, ..Limits::default() };
    assert_eq!(best_for(ClientWork::Min, dealer).2, Some("helped"));
    let (goal, limits, best) = best_for(ClientWork::Balanced, dealer);
    assert!(goal == Goal::Latency);
    assert!(limits.client_j.is_some());
    assert!(best == Some("helped"));
    // A smaller budget of the user stays in force, and may leave no choice.
    let small = Limits { client_j: Some(1e-9), ..Limits::default() };
    let (_, limits, best) = best_for(ClientWork::Balanced, small);
    assert_eq!((limits.client_j, best), (Some(1e-9), None));
    assert_eq!(best_for(ClientWork::Any, Limits::default()).2, Some("heavy"));
    assert!("most".parse::<ClientWork>().unwrap_err().to_string().contains("balanced"));
    for work in ["min", "balanced", "any"] {
        assert_eq!(work.parse::<ClientWork>().unwrap().to_string(), work);
    }
}

#[test]
fn limits_decide_the_number_of_threads() {
    let offers = offers();
    let private_only = question(&offers, Goal::ClientEnergy, Limits::default());
    let near = setting(1e12, 0.0);
    let choice = private_only.best(&near).unwrap().unwrap();
    let two = [1, 2].map(|threads| tacit_plan::predict::with_threads(PARALLEL, threads, 2));
    assert_eq!((choice.client_threads, choice.server_threads), (1, 1));
    let online_s = choice.predicted.online.wall_s * (two[0] + two[1]) / (2.0 * two[0]);
    let hurried = question(&offers, Goal::ClientEnergy, Limits { online_s: Some(online_s), ..Limits::default() });
    let choice = hurried.best(&near).unwrap().unwrap();
    assert!((choice.client_threads, choice.server_threads) > (1, 1), "{choice:?}");
}

#[test]
fn changed_rate_keeps_the_ratio_of_both_ways() {
    let link = Link { up_bits_per_s: 15e6, down_bits_per_s: 300e6, ..setting(15e6, 0.01).link };
    let faster = link.with_rate(60e6);
    assert_eq!((faster.up_bits_per_s, faster.down_bits_per_s), (60e6, 1.2e9));
    let capped = link.with_max_rate(20e6);
    assert_eq!((capped.up_bits_per_s, capped.down_bits_per_s), (15e6, 20e6));
}

#[test]
fn money_needs_prices() {
    let offers = offers();
    let mut money_question = question(&offers, Goal::Money, Limits::default());
    let error = money_question.ranked(&setting(1e7, 0.01)).unwrap_err().to_string();
    assert!(error.contains("--prices"), "{error}");
    money_question.usage.prices = Some(Prices { core_hour: 0.0, gigabyte: 2.0, idle_gigabyte: Some(1.0) });
    let chatty = ranked_offer(&money_question, &setting(1e7, 0.01), "chatty");
    assert!((chatty.score - 2.0 * 600_000.0 / 1e9).abs() < 1e-12, "{}", chatty.score);
    // Two thirds are sent ahead: in idle hours for half the price.
    money_question.usage.idle_s = Some(7200.0);
    let chatty = ranked_offer(&money_question, &setting(1e7, 0.01), "chatty");
    assert!((chatty.score - (2.0 * 200_000.0 + 400_000.0) / 1e9).abs() < 1e-12, "{}", chatty.score);
}

#[test]
fn idle_hours_must_hold_a_day_of_material() {
    let offers = offers();
    let mut latency_question = question(&offers, Goal::Latency, Limits::default());
    (latency_question.usage.per_day, latency_question.usage.idle_s) = (40.4, Some(8.0 * 3600.0));
    let near = setting(1e9, 0.001);
    let best = latency_question.best(&near).unwrap().unwrap();
    assert_eq!((best.pool, best.pool_bytes), (41, Sides { client: 4100, server: 4100 }));
    latency_question.usage.idle_s = Some(1.0);
    let chatty = ranked_offer(&latency_question, &near, "chatty");
    assert!(chatty.objections.iter().any(|o| o.contains("are idle")), "{:?}", chatty.objections);
}

#[test]
fn tunnel_costs_rate_and_processor_time() {
    let (plain, costs) = (setting(1e8, 0.01), costs(1_000, 10_000_000, 10));
    let tunnelled = Setting { link: plain.link.with_tunnel(), ..plain.clone() };
    let [plain, tunnelled] = [plain, tunnelled].map(|s| predict(&costs, &s).online);
    assert!(tunnelled.transfer_s > 1.03 * plain.transfer_s);
    assert!(tunnelled.wall_s > plain.wall_s);
    assert!((tunnelled.client_cpu_s - plain.client_cpu_s - 1.3e-2).abs() < 1e-6, "{tunnelled:?}");
}

#[test]
fn finds_where_the_ranking_changes() {
    let offers = offers();
    let question = question(&offers, Goal::Latency, Limits::default());
    let setting = setting(2e7, 0.04);
    let varied: BTreeMap<String, _> =
        change::vary(&question, &setting).unwrap().into_iter().map(|v| (format!("{:?}", v.knob), v)).collect();
    assert_eq!(varied.len(), 4);
    let rate = &varied["Rate"];
    assert_eq!((rate.knob, rate.at), (Knob::Rate, 20.0));
    let names: Vec<&str> = rate.reigns.iter().map(|r| offers[r.offer.unwrap()].backend.as_str()).collect();
    assert_eq!(names, ["chatty", "heavy"]);
    // Both offers take the same time at this rate.
    let changed_setting = Setting { link: setting.link.with_rate(1e6 * rate.reigns[0].to), ..setting.clone() };
    let ranked = question.ranked(&changed_setting).unwrap();
    assert!((ranked[0].score / ranked[1].score - 1.0).abs() < 0.01, "{ranked:?}");
    assert_eq!(rate.reigns[0].to, rate.reigns[1].from);
    // More of a resource never makes the best score worse.
    for varied in varied.values().filter(|v| v.knob != Knob::RoundTrip) {
        assert!(varied.score[1].unwrap() <= varied.score[0].unwrap() + 1e-12, "{varied:?}");
    }
}

#[test]
fn finds_the_rate_beyond_which_a_link_gains_little() {
    let offers = offers();
    let question = question(&offers, Goal::Latency, Limits::default());
    let setting = setting(1e9, 0.04);
    let enough = question.enough_rate(0, &setting, 0.05).unwrap();
    let score = |rate: f64| {
        let changed_setting = Setting { link: setting.link.with_max_rate(rate), ..setting.clone() };
        question.ranked(&changed_setting).unwrap().into_iter().find(|c| c.offer == 0).unwrap().score
    };
    assert!((score(enough) / score(1e9) - 1.05).abs() < 0.01, "{enough}");
    // On a slow link, transfer takes most of the time, and every increase of the rate helps.
    let slow = Setting {
        link: Link { up_bits_per_s: 1e5, down_bits_per_s: 1e5, rtt_s: 0.0, ..setting.link.clone() },
        ..setting.clone()
    };
    assert_eq!(question.enough_rate(1, &slow, 0.05), None);
    // A goal that does not depend on the rate has no advice about the rate.
    let bytes = Question { goal: Goal::Bytes, ..question };
    assert_eq!(bytes.enough_rate(0, &setting, 0.05), None);
}

#[test]
fn goals_round_trip_as_text() {
    for goal in Goal::ALL {
        assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
    }
    assert!("joy".parse::<Goal>().unwrap_err().to_string().contains("client-energy"));
}
