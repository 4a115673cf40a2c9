//! How much memory a job takes: an allocator that counts, for whoever asks, what the threads of a job hold.
//!
//! It is the system's allocator with one look at a thread-local word more, and for threads that belong to an
//! [`Account`] two atomic additions. Here because nothing else may hold `unsafe` code; a program chooses it
//! with `#[global_allocator]`, and whoever asks in another program is told nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Accounts at the same time.
pub const MAX_ACCOUNTS: usize = 1024;

struct Slot {
    taken: AtomicBool,
    /// Bytes that its threads have allocated, less those that they have freed.
    live: AtomicI64,
    /// The most of that.
    peak: AtomicI64,
}

static SLOTS: [Slot; MAX_ACCOUNTS] =
    [const { Slot { taken: AtomicBool::new(false), live: AtomicI64::new(0), peak: AtomicI64::new(0) } }; MAX_ACCOUNTS];

thread_local! {
    /// Whose this thread's allocations are. Constant at first and without a destructor: to look at it never
    /// allocates.
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

fn count(bytes: i64) {
    let Some(slot) = MINE.get() else { return };
    let live = slot.live.fetch_add(bytes, Relaxed) + bytes;
    if live > slot.peak.load(Relaxed) {
        slot.peak.fetch_max(live, Relaxed);
    }
}

/// From now on what was allocated with a MiB or more goes back to the system when it is freed: for a program
/// that needs much memory now and then, and holds little between. glibc otherwise keeps what was freed once
/// for the next time, in pieces between others. Where the C library has no such switch, nothing happens.
pub fn give_back_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// From glibc's `malloc.h`.
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        // SAFETY: `mallopt` takes two numbers, at any time and from any thread; a value that it does not like
        // changes nothing.
        unsafe { mallopt(M_MMAP_THRESHOLD, 1 << 20) };
    }
}

/// Gives memory back to the system that was freed and is kept for later, in pieces between others: where much
/// has just been freed that other threads would allocate anew. It takes milliseconds for each gigabyte that
/// is kept. Where the C library has no such call, nothing happens.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: `malloc_trim` takes a number of bytes to keep, at any time and from any thread, and touches
        // nothing that is allocated.
        unsafe { malloc_trim(0) };
    }
}

/// The system's allocator, counting.
pub struct Counting;

/// A layout is at most `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes as i64
}

// SAFETY: every call goes to `System` with the arguments that came, so its contract is kept where `System`
// keeps it. `count` neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            count(signed(layout.size()));
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(signed(layout.size()));
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller has the pointer from one of these functions, and so from `System`.
        unsafe { System.dealloc(pointer, layout) };
        count(-signed(layout.size()));
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; `new_size` is as the caller promises it.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            count(signed(new_size) - signed(layout.size()));
        }
        moved
    }
}

/// Memory of the threads that have entered it: what they allocate, less what they free, wherever the rest is
/// freed or was allocated. What a job is given and destroys therefore makes room for what it makes.
pub struct Account(&'static Slot);

impl Account {
    /// A new one; `None` if there are [`MAX_ACCOUNTS`].
    #[must_use]
    pub fn open() -> Option<Self> {
        let free = |slot: &&Slot| slot.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        let slot = SLOTS.iter().find(free)?;
        slot.live.store(0, Relaxed);
        slot.peak.store(0, Relaxed);
        Some(Self(slot))
    }

    /// What this thread allocates and frees is counted here from now on, until it enters another or ends. The
    /// account must outlive the thread's work.
    pub fn enter(&self) {
        MINE.set(Some(self.0));
    }

    /// As [`enter`](Self::enter), until the guard is dropped: for threads that do other work as well.
    #[must_use]
    pub fn visit(&self) -> Visit<'_> {
        Visit { before: MINE.replace(Some(self.0)), _account: self, _thread: PhantomData }
    }

    /// The most bytes that were held at one time; `None` where nothing was counted: another allocator runs.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        u64::try_from(self.0.peak.load(Relaxed)).ok().filter(|&peak| peak > 0)
    }
}

/// Bytes that the threads of all accounts hold now; 0 where another allocator runs.
#[must_use]
pub fn held() -> u64 {
    let open = SLOTS.iter().filter(|slot| slot.taken.load(Acquire));
    open.map(|slot| u64::try_from(slot.live.load(Relaxed)).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// A thread's visit to an account.
pub struct Visit<'a> {
    before: Option<&'static Slot>,
    _account: &'a Account,
    /// It ends in the thread in which it began.
    _thread: PhantomData<*const ()>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        MINE.set(self.before);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let is_mine = |mine: Option<&'static Slot>| mine.is_some_and(|slot| std::ptr::eq(slot, self.0));
        if is_mine(MINE.get()) {
            MINE.set(None);
        }
        self.0.taken.store(false, Release);
    }
}
