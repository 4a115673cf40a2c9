//! A core for each party: everything that a pinned thread starts, processes included, stays on its
//! core.
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    pub server: usize,
    pub clients: usize,
    /// A third core if there is one, else the clients': the dealer must not slow the server.
    pub dealer: usize,
}

/// Chooses cores from those that this process may use. Fails if there are fewer than two.
pub fn cores() -> Result<Cores, String> {
    let allowed = sched_getaffinity(None).map_err(|e| format!("the system does not list its cores: {e}"))?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    match (usable.next(), usable.next()) {
        (Some(server), Some(clients)) => Ok(Cores { server, clients, dealer: usable.next().unwrap_or(clients) }),
        _ => Err("this process may use one core only".into()),
    }
}

/// Pins this thread, and everything that it starts from now on, to one core.
pub fn pin_thread(core: Option<usize>) -> anyhow::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut cpus = CpuSet::new();
    cpus.set(core);
    sched_setaffinity(None, &cpus).map_err(|e| anyhow::anyhow!("keeping a thread on core {core}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_a_pinned_thread_stay_on_its_core() {
        let Ok(Cores { server, clients, dealer }) = cores() else {
            let all_cpus = sched_getaffinity(None).unwrap();
            assert!(all_cpus.count() < 2);
            return;
        };
        assert!(server != clients);
        assert!(dealer != server);
        let inherited = std::thread::spawn(move || {
            pin_thread(Some(clients)).unwrap();
            std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap()
        });
        let set = inherited.join().unwrap();
        assert!(set.count() == 1);
        assert!(set.is_set(clients));
        assert!(sched_getaffinity(None).unwrap().count() > 1, "others are not moved");
    }
}
