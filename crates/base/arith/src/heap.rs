//! Memory use of a job: a global allocator that counts the bytes that the threads of a job hold.
//!
//! [`Counting`] passes every call to the system's allocator and, for threads that belong to an
//! [`Account`], updates at most two atomics. It is in this crate because no other may contain
//! `unsafe` code. A program chooses it with `#[global_allocator]`; otherwise nothing is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Most open accounts.
pub const MAX_ACCOUNTS: usize = 1024;

struct Slot {
    in_use: AtomicBool,
    /// Bytes allocated less bytes freed by the account's threads.
    live: AtomicI64,
    /// The largest `live` so far.
    peak: AtomicI64,
}

static SLOTS: [Slot; MAX_ACCOUNTS] =
    [const { Slot { in_use: AtomicBool::new(false), live: AtomicI64::new(0), peak: AtomicI64::new(0) } }; MAX_ACCOUNTS];

thread_local! {
    /// This thread's account. A constant without destructor, so reading it never allocates.
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

/// Adds `bytes` (negative for freed ones) to this thread's account, if any.
fn count(bytes: i64) {
    let Some(slot) = MINE.get() else { return };
    let live = slot.live.fetch_add(bytes, Relaxed) + bytes;
    if live > slot.peak.load(Relaxed) {
        slot.peak.fetch_max(live, Relaxed);
    }
}

/// Makes freed blocks of a MiB or more return to the system from now on, for programs that seldom
/// need much memory; by default, glibc keeps freed memory for reuse. Does nothing with another C
/// library.
pub fn give_back_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// From glibc's `malloc.h`.
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        // SAFETY: `mallopt` takes two numbers, at any time and from any thread; an unsupported
        // value changes nothing.
        unsafe { mallopt(M_MMAP_THRESHOLD, 1 << 20) };
    }
}

/// Returns freed memory that the C library keeps for reuse to the system. Call it after freeing much
/// memory that other threads would not reuse. Takes milliseconds a gigabyte. Does nothing with
/// another C library than glibc.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: `malloc_trim` takes a number of bytes to keep, at any time and from any thread,
        // and touches nothing that is allocated.
        unsafe { malloc_trim(0) };
    }
}

/// The system's allocator, with counting.
pub struct Counting;

/// A layout has at most `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes as i64
}

// SAFETY: every call passes its arguments to `System`, which upholds the contract. `count` neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are those that `System` requires.
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
        // SAFETY: the pointer is from one of these functions, by the caller, and so from `System`.
        unsafe { System.dealloc(pointer, layout) };
        count(-signed(layout.size()));
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; `new_size` is valid, by the caller.
        let new_pointer = unsafe { System.realloc(pointer, layout, new_size) };
        if !new_pointer.is_null() {
            count(signed(new_size) - signed(layout.size()));
        }
        new_pointer
    }
}

/// Memory of the threads that have entered the account: bytes that they allocate less bytes that
/// they free. Freed blocks of other threads count too: received data offsets allocated data.
pub struct Account(&'static Slot);

impl Account {
    /// Opens an account; `None` if [`MAX_ACCOUNTS`] are open.
    #[must_use]
    pub fn open() -> Option<Self> {
        let slot = SLOTS.iter().find(|slot| slot.in_use.compare_exchange(false, true, Acquire, Relaxed).is_ok())?;
        slot.live.store(0, Relaxed);
        slot.peak.store(0, Relaxed);
        Some(Self(slot))
    }

    /// Counts this thread in this account until it enters another or ends. The account must outlive
    /// the thread's work.
    pub fn enter(&self) {
        MINE.set(Some(self.0));
    }

    /// As [`enter`](Self::enter), until the guard is dropped.
    #[must_use]
    pub fn visit(&self) -> Visit<'_> {
        Visit { before: MINE.replace(Some(self.0)), _account: self, _thread: PhantomData }
    }

    /// Most bytes that were held at one time; `None` if nothing was counted.
    pub fn peak(&self) -> Option<u64> {
        u64::try_from(self.0.peak.load(Relaxed)).ok().filter(|&peak| peak > 0)
    }
}

/// Bytes that the threads of all open accounts hold; 0 with another allocator.
pub fn held_bytes() -> u64 {
    let open = SLOTS.iter().filter(|slot| slot.in_use.load(Acquire));
    open.map(|slot| u64::try_from(slot.live.load(Relaxed)).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// A thread's visit to an account; ends when dropped.
pub struct Visit<'a> {
    before: Option<&'static Slot>,
    _account: &'a Account,
    /// Makes the type `!Send`.
    _thread: PhantomData<*const ()>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        MINE.set(self.before);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if MINE.get().is_some_and(|slot| std::ptr::eq(slot, self.0)) {
            MINE.set(None);
        }
        self.0.in_use.store(false, Release);
    }
}
