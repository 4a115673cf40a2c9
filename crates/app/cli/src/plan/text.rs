//! The plan as text for people: the table, where the time goes, what would change the choice, and
//! the commands.
use super::{Plan, apply};
use crate::owner::SealArgs;
use crate::print;
use std::path::Path;
use tacit_backends::{Sides, Trust};
use tacit_net::Rate;
use tacit_plan::change::{Knob, Reign, Varied};
use tacit_plan::predict::Predicted;
use tacit_plan::{Checked, Choice, Goal, Offer};

/// Formats the plan as text with a line end.
pub fn format_plan(plan: &Plan, model: &Path, seal: &SealArgs) -> String {
    let (client, server, link) =
        (&plan.request.setting.client.name, &plan.request.setting.server.name, &plan.request.setting.link.name);
    let mut lines =
        vec![format!("{} for {client} and {server} over {link}, best {} first", plan.request.model, plan.request.goal)];
    lines.extend(table(plan));
    lines.extend(plan.request.refused.iter().map(|text| format!("left out: {text}")));
    match plan.best() {
        Some(best) => lines.extend(describe_best(plan, best, model, seal)),
        None => {
            lines.push("no private back end is within the limits; the table shows the needs of each back end".into())
        }
    }
    lines.join("\n") + "\n"
}

/// Describes the best choice, what would change it, and its commands.
fn describe_best(plan: &Plan, best: &Choice, model: &Path, seal: &SealArgs) -> Vec<String> {
    let offer = plan.offer(best);
    let mut lines = vec![String::new(), format!("{}: {}", name(offer), explain_choice(plan, best))];
    lines.extend(changes(plan));
    lines.extend(beside_local(plan, best));
    if let Some(cap) = plan.enough_rate.and_then(two_digits) {
        lines.push(format!(
            "a cap: more than {cap} of the link gains it less than 5 %; --limit rate={cap} leaves the rest to others"
        ));
    }
    lines.push(format!("how sure: {}", describe_certainty(plan, best)));
    lines.push(describe_accuracy());
    lines.push(String::new());
    let applied = apply::Applied { offer, choice: best, ways: plan.request.ways };
    lines.extend(applied.server(model, seal).iter().map(|command| format!("server$ {command}")));
    lines.extend(applied.client().iter().map(|command| format!("client$ {command}")));
    lines
}

fn name(offer: &Offer) -> String {
    match offer.options.as_str() {
        "" => offer.backend.clone(),
        options => format!("{} ({options})", offer.backend),
    }
}

fn trust(offer: &Offer) -> &'static str {
    match offer.trust {
        Some(Trust::TwoParty) => "private",
        Some(Trust::Dealer) => "private, dealer",
        Some(Trust::ServerSeesInput) => "server sees input",
        None => "client has model",
    }
}

fn table(plan: &Plan) -> Vec<String> {
    let head = "back end,,threads,online,offline,setup,bytes,client J,server J,client mem,same class,score";
    let mut rows = vec![head.split(',').map(str::to_owned).collect::<Vec<_>>()];
    for choice in &plan.ranked {
        let (offer, p) = (plan.offer(choice), &choice.predicted);
        let inputs = plan.request.usage.per_day.max(1.0);
        rows.push(vec![
            format!("{}{}", name(offer), if choice.pareto { " *" } else { "" }),
            trust(offer).into(),
            format!("{}/{}", choice.client_threads, choice.server_threads),
            seconds(p.online.wall_s),
            seconds(p.offline.wall_s),
            seconds(p.setup.wall_s + p.setup.queued_s),
            print::bytes(p.bytes(inputs) as u64),
            figure(p.client_j(inputs)),
            figure(p.server_j(inputs)),
            print::bytes(p.client_bytes()),
            offer.agreement.map_or("?".into(), |share| format!("{:.1} %", 100.0 * share)),
            score(plan.request.goal, choice.score),
        ]);
    }
    let widths = (0..rows[0].len()).filter_map(|column| rows.iter().map(|row| row[column].chars().count()).max());
    let widths: Vec<usize> = widths.collect();
    let mut lines = vec![pad_row(&rows[0], &widths)];
    for (row, choice) in rows[1..].iter().zip(&plan.ranked) {
        lines.push(pad_row(row, &widths));
        lines.extend(choice.objections.iter().map(|objection| format!("    not within the limits: {objection}")));
    }
    lines.push("* nothing private is better in latency, client energy and bytes at once; times for one input, joules above idle".into());
    lines
}

fn pad_row(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(i, (cell, &wide))| match i {
        0 | 1 => format!("{cell:<wide$}"),
        _ => format!("{cell:>wide$}"),
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn seconds(s: f64) -> String {
    match s {
        0.0 => "-".into(),
        s if s < 0.0995 => format!("{:.1} ms", 1e3 * s),
        s if s < 99.5 => format!("{s:.2} s"),
        s => format!("{s:.0} s"),
    }
}

fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// Rounds a rate in bit/s up to two digits, for the command line.
fn two_digits(bits: f64) -> Option<Rate> {
    let unit = 10f64.powf(bits.max(1.0).log10().floor() - 1.0).max(1.0);
    Rate::new(((bits / unit).ceil() * unit) as u64)
}

fn score(goal: Goal, value: f64) -> String {
    match goal {
        Goal::Latency | Goal::Total => seconds(value),
        Goal::Energy | Goal::ClientEnergy => format!("{} J", figure(value)),
        Goal::Bytes => print::bytes(value as u64),
        Goal::Money => format!("{value:.2e}"),
    }
}

fn parts(p: &Predicted) -> String {
    let Predicted { compute_s, transfer_s, round_trips_s, .. } = *p;
    let [compute, bytes, trips] = [compute_s, transfer_s, round_trips_s].map(seconds);
    format!(
        "{} (computing {compute}, bytes on the link {bytes}, round trips {trips}; partly at once)",
        seconds(p.wall_s)
    )
}

fn explain_choice(plan: &Plan, best: &Choice) -> String {
    let p = &best.predicted;
    let mut text = format!("an answer takes {}", parts(&p.online));
    if p.offline.wall_s > 0.0 {
        text += &format!(", material for it before that {}", parts(&p.offline));
        let Sides { client, server } = best.pool_bytes.map(print::bytes);
        let pool_s = seconds(f64::from(best.pool) * p.offline.wall_s);
        let busy = plan.request.usage.per_day * p.offline.wall_s;
        let when = match plan.request.usage.idle_s {
            Some(idle) => format!("in the idle hours, of which a day's takes {:.1} %", 100.0 * busy / idle),
            None => format!("when the link is idle or cheap: {:.1} % of the day", 100.0 * busy / 86_400.0),
        };
        text +=
            &format!(". Keep material for {} (client {client}, server {server}; {pool_s} to make, {when})", best.pool);
    }
    text
}

fn unit(knob: Knob) -> (&'static str, &'static str) {
    match knob {
        Knob::Rate => ("link rate", " Mbit/s"),
        Knob::RoundTrip => ("round trip", " ms"),
        Knob::Client => ("client's speed", "x"),
        Knob::Server => ("server's speed", "x"),
    }
}

/// Formats a line for each knob: its effect on the score, and the best choice for each range.
fn changes(plan: &Plan) -> Vec<String> {
    let head = "what would change it:".to_owned();
    std::iter::once(head).chain(plan.varied.iter().map(|varied| change(plan, varied))).collect()
}

fn change(plan: &Plan, varied: &Varied) -> String {
    let (quantity, unit) = unit(varied.knob);
    let [low, high] = varied.score.map(|s| s.map_or("nothing".into(), |s| score(plan.request.goal, s)));
    let winners = match varied.reigns.as_slice() {
        [_] => "the same is best everywhere".into(),
        several => several.iter().map(|reign| best_from(plan, reign, unit)).collect::<Vec<_>>().join(", "),
    };
    format!("  {quantity} {}{unit}: {low} at a quarter, {high} at four times; {winners}", figure(varied.at))
}

/// Formats the best choice of a range, and the range's lower end.
fn best_from(plan: &Plan, reign: &Reign, unit: &str) -> String {
    let best = reign.offer.map_or("nothing".into(), |index| name(&plan.request.offers[index]));
    format!("{best} from {}{unit}", figure(reign.from))
}

/// Says whether the client had better compute by itself.
fn beside_local(plan: &Plan, best: &Choice) -> Option<String> {
    let local = plan.ranked.iter().find(|choice| plan.offer(choice).trust.is_none())?;
    let (local_cost, private_cost) = (local.predicted.online, best.predicted.online);
    let (time, energy) = (
        private_cost.wall_s / local_cost.wall_s,
        best.predicted.client_j(plan.request.usage.per_day) / local_cost.client_j,
    );
    if !(time.is_finite() && energy.is_finite() && energy > 0.0) {
        return None;
    }
    Some(match time >= 1.0 && energy >= 1.0 {
        true => format!(
            "not worth it on this device if the model need not be secret: run by the client itself it takes {}, {} times less, and {} times less of the client's energy",
            seconds(local_cost.wall_s),
            figure(time),
            figure(energy)
        ),
        false => format!(
            "run by the client itself, if it may have the model: {}, and {} times the client's energy",
            seconds(local_cost.wall_s),
            figure(1.0 / energy)
        ),
    })
}

/// Describes how far plans were off in the last comparison with measurements.
fn describe_accuracy() -> String {
    let Checked { machine, cells, times, median, p90, bytes_exact, memory_median, memory_p90 } = Checked::built_in();
    format!(
        "how far off: in {cells} measured cells that no calibration had seen, half of {times} times were within {}, nine of ten within {}; \
         bytes exact in {bytes_exact}; memory within {} and {} ({machine}; docs/planning.md)",
        print::percent(median),
        print::percent(p90),
        print::percent(memory_median),
        print::percent(memory_p90)
    )
}

fn describe_certainty(plan: &Plan, best: &Choice) -> String {
    let p = &best.predicted;
    let mut text = format!(
        "computing is known to +-{} of an answer's time and +-{} of its material's; bytes are the back end's own",
        error(&p.online),
        error(&p.offline)
    );
    for (party, device) in [("client", &plan.request.setting.client), ("server", &plan.request.setting.server)] {
        let assumed = device.sources.iter().filter(|s| s.contains("assumed")).count();
        let total = device.sources.len();
        if assumed > 0 {
            text += &format!("; of {}, the {party}, {assumed} of {total} figures are assumed", device.name);
        }
    }
    text + " (`tacit calibrate` there replaces the speed)"
}

fn error(p: &Predicted) -> String {
    if p.error < 10.0 { print::percent(p.error) } else { "an unknown share".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_a_cap_up_to_a_rate_of_the_command_line() {
        for (bits, text) in
            [(1234567.0, "1.3mbit"), (2e6, "2mbit"), (9.96e3, "10kbit"), (431.0, "440bit"), (1.2, "2bit")]
        {
            let cap = two_digits(bits).expect("it is a rate");
            assert_eq!(cap.to_string(), text);
            assert!(cap.bits_per_second() as f64 >= bits);
            assert!(text.parse::<Rate>().is_ok());
        }
    }
}
