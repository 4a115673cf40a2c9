//! Anonymous network namespaces, and the programs inside them.
//!
//! A namespace lives as long as a thread, a process or an open file of it: a killed program leaves
//! none behind. Two threads belong to each: the *gate* runs closures and configures interfaces; the
//! *nursery* starts programs in their own process namespace. The first process of that process
//! namespace ends with a pipe from this process, and the kernel then ends every other process of its
//! namespace.
use crate::LabError;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

/// How long the drop of a [`Namespace`] waits for the end of its processes; those that the caller
/// has not reaped stay zombies.
const END_TIMEOUT: Duration = Duration::from_millis(300);

/// The init of a process namespace: ends with its standard input, reaps orphans (by ignoring `SIGCHLD`).
const INIT_SCRIPT: &str = "trap '' CHLD; exec cat >/dev/null";

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Namespace {
    gate: Option<Sender<Job>>,
    nursery: Option<Sender<Job>>,
    init: Option<Child>,
    threads: Vec<JoinHandle<()>>,
    /// Kernel's number of the gate thread: identifies the namespace for `ip link ... netns`.
    pub(super) thread_id: i32,
}

impl Namespace {
    pub(super) fn new() -> Result<Self, LabError> {
        let (gate, jobs) = channel::<Job>();
        let (sender, receiver) = sync_channel(1);
        let thread = start("link-gate", move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let entered = entered.map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            serve(entered, &sender, &jobs);
        })?;
        let thread_id = hear(&receiver)?.map_err(start_error)?;
        let mut namespace = Self { gate: Some(gate), nursery: None, init: None, threads: vec![thread], thread_id };
        let (nursery, init, thread) = namespace.within(start_nursery)??;
        namespace.nursery = Some(nursery);
        namespace.init = Some(init);
        namespace.threads.push(thread);
        Ok(namespace)
    }

    pub(super) fn within<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, LabError> {
        let (sender, receiver) = sync_channel(1);
        let job: Job = Box::new(move || {
            // A thread started here inherits the namespace, and the gate stays free for others.
            let started = start("link-inside", f);
            _ = sender.send(started);
        });
        post(self.gate.as_ref(), job)?;
        hear(&receiver)??
            .join()
            .map_err(|panic| LabError::failed("running inside a network namespace")(panic_text(panic.as_ref())))
    }

    pub(super) fn spawn(&self, command: &mut Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        // The command moves to the nursery's thread and back, as `Command::spawn` borrows it.
        let mut moved_command = std::mem::replace(command, Command::new(&program));
        let (sender, receiver) = sync_channel(1);
        post(
            self.nursery.as_ref(),
            Box::new(move || {
                let child = moved_command.spawn();
                _ = sender.send((moved_command, child));
            }),
        )?;
        let (moved_command, child) = hear(&receiver)?;
        *command = moved_command;
        child.map_err(LabError::failed(format!("starting {program:?}")))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.gate = None;
        self.nursery = None;
        for thread in self.threads.drain(..) {
            // The job's sender has received its panic.
            _ = thread.join();
        }
        if let Some(mut init) = self.init.take() {
            _ = init.kill();
            // Its end is reported only after every process of the namespace is reaped, some by the caller.
            let reaper = std::thread::spawn(move || init.wait());
            let until = Instant::now() + END_TIMEOUT;
            while !reaper.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Starts the nursery; called inside the network namespace.
fn start_nursery() -> Result<(Sender<Job>, Child, JoinHandle<()>), LabError> {
    let (nursery, jobs) = channel::<Job>();
    let (sender, receiver) = sync_channel(1);
    let thread = start("link-nursery", move || {
        // Applies to the children of this thread only.
        let init = unshare(CloneFlags::CLONE_NEWPID).map_err(io::Error::from).and_then(|()| {
            Command::new("sh")
                .args(["-c", INIT_SCRIPT])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        });
        serve(init, &sender, &jobs);
    })?;
    let init = hear(&receiver)?.map_err(start_error)?;
    Ok((nursery, init, thread))
}

/// Reports the result of entering, then runs jobs until the last sender is gone.
fn serve<T>(entered: io::Result<T>, tell: &SyncSender<io::Result<T>>, jobs: &Receiver<Job>) {
    let failed = entered.is_err();
    if tell.send(entered).is_err() || failed {
        return;
    }
    for job in jobs {
        job();
    }
}

fn start<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, LabError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(f)
        .map_err(LabError::failed(format!("starting the thread {name}")))
}

fn ended_error() -> LabError {
    LabError::failed("network namespace")("its thread has ended")
}

fn post(sender: Option<&Sender<Job>>, job: Job) -> Result<(), LabError> {
    sender.ok_or_else(ended_error)?.send(job).map_err(|_| ended_error())
}

fn hear<T>(receiver: &Receiver<T>) -> Result<T, LabError> {
    receiver.recv().map_err(|_| ended_error())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

fn start_error(error: io::Error) -> LabError {
    let (reason, remedy) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            "making a network namespace was not permitted".to_owned(),
            "run as root (sudo), or as `unshare -r tacit lab ...` where user namespaces are allowed",
        ),
        _ => (format!("making a namespace failed: {error}"), "use a Linux kernel with network and process namespaces"),
    };
    LabError::unavailable("an emulated link", reason, remedy)
}
