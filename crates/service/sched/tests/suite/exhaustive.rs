//! Every interleaving to a stated depth: 2 clients, 2 models, 2 cores, notices on. Each state is audited and
//! watched by the monitor; every leaf is wound down, and nothing may leak.

use crate::support::driver::Driver;
use crate::support::{Setup, announce, header, machine};
use tacit_sched::{ClientId, Event, ModelId, NoticeId, Owner, Request, RequestId, Shutdown, Span};

/// Steps in a sequence. 15 possible steps in each state (fewer where nothing runs).
const DEPTH: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Step {
    Notice { client: u64, model: u32 },
    Request { client: u64, model: u32, announced: bool },
    Finish(usize),
    Fail,
    Expire,
    Gone(u64),
    Back(u64),
    Revoke(u64),
    Stop(Shutdown),
}

const STEPS: [Step; 15] = [
    Step::Notice { client: 0, model: 0 },
    Step::Notice { client: 1, model: 1 },
    Step::Request { client: 0, model: 0, announced: true },
    Step::Request { client: 0, model: 1, announced: true },
    Step::Request { client: 1, model: 1, announced: true },
    Step::Request { client: 1, model: 0, announced: false },
    Step::Finish(0),
    Step::Finish(1),
    Step::Fail,
    Step::Expire,
    Step::Gone(0),
    Step::Back(0),
    Step::Revoke(0),
    Step::Stop(Shutdown::Drain),
    Step::Stop(Shutdown::Now),
];

/// Applies a step; false where it makes no sense in this state.
fn apply(driver: &mut Driver, step: Step, number: usize) -> bool {
    match step {
        Step::Notice { client, model } => {
            // One name per client, so that the request can refer to it.
            let (id, client, model) = (NoticeId(client), ClientId::numbered(client), ModelId(model));
            let notice = announce(id, client, model, 2);
            driver.send(Event::Notice(notice)).is_ok()
        }
        Step::Request { client, model, announced } => {
            let notice = announced.then_some(NoticeId(client));
            let (id, client) = (RequestId(number as u64), ClientId::numbered(client));
            let request = Request { notice, ..Request::plain(id, client, ModelId(model), 1) };
            driver.send(Event::Request(request)).is_ok()
        }
        Step::Finish(nth) => {
            let job = driver.monitor.running.keys().nth(nth).copied();
            job.is_some_and(|job| {
                driver.finish(job, 100);
                true
            })
        }
        Step::Fail => {
            let job = driver.monitor.running.keys().next().copied();
            job.is_some_and(|job| driver.send(Event::JobFailed { job }).is_ok())
        }
        Step::Expire => {
            let due = driver.sched.next_wakeup().is_some();
            driver.advance(Span::from_secs(31.0));
            due
        }
        Step::Gone(client) => driver.send(Event::ClientGone { client: ClientId::numbered(client) }).is_ok(),
        Step::Back(client) => {
            let owner = Owner::Notice(NoticeId(client));
            driver.send(Event::Lanes { of: owner, lanes: 1 }).is_ok()
        }
        Step::Revoke(client) => driver.send(Event::ClientRevoked { client: ClientId::numbered(client) }).is_ok(),
        Step::Stop(how) => driver.send(Event::Shutdown(how)).is_ok(),
    }
}

fn search(driver: &Driver, depth: usize, states: &mut u64) {
    *states += 1;
    driver.sched.audit().unwrap();
    if depth == 0 {
        driver.clone().wind_down();
        return;
    }
    for step in STEPS {
        let mut next = driver.clone();
        if apply(&mut next, step, depth) {
            search(&next, depth - 1, states);
        }
    }
}

fn explore(policy: &str, pool: bool) {
    let mut header = header(&Setup::new(policy, pool));
    header.config.capacity = machine(2, 60, 50);
    header.models.truncate(2);
    let mut states = 0;
    search(&Driver::new(header), DEPTH, &mut states);
    assert!(states > 20_000, "only {states} states");
}

#[test]
fn every_interleaving_keeps_every_constraint() {
    explore("priority", false);
}

#[test]
fn every_interleaving_with_pools_keeps_every_constraint() {
    explore("adaptive", true);
}
