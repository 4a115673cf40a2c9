//! Long buffers in large pages. Kernels that read several such buffers side by side, or at random
//! places, would otherwise spend as much time on looking up addresses as on computing. The module
//! is in this crate because no other may contain `unsafe` code.

use crate::block::Block;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a large page.
const LARGE_PAGE_BYTES: usize = 2 << 20;
/// Bytes from which a buffer is in a large page.
const LONG_BUFFER_BYTES: usize = 64 << 10;

/// A type for which all-zero bytes are a value.
///
/// # Safety
/// All bits zero must be a valid value, and a large page aligned enough.
pub unsafe trait Zeros: Copy + Send + Sync {}

// SAFETY: any bits are a number.
unsafe impl Zeros for u64 {}
// SAFETY: a block is a 128-bit number.
unsafe impl Zeros for Block {}

/// A buffer that may share a page with others. The page is freed with its last buffer.
pub struct Long<T> {
    start: NonNull<T>,
    len: usize,
    /// `None` for an empty buffer.
    _page: Option<Arc<Page>>,
}

/// Memory of one or several [`Long`] buffers.
struct Page {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a page owns its memory, which only its `drop` frees.
unsafe impl Send for Page {}
// SAFETY: nothing is read or written through a page.
unsafe impl Sync for Page {}
// SAFETY: buffers do not overlap, so each owns its entries as a vector does.
unsafe impl<T: Send> Send for Long<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Long<T> {}

impl<T> Default for Long<T> {
    fn default() -> Self {
        Self { start: NonNull::dangling(), len: 0, _page: None }
    }
}

impl<T: Zeros> Long<T> {
    /// A buffer of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::in_page(len, 1).pop().expect("one buffer was asked for")
    }

    /// Buffers of `len` zeros that fill a large page together if they are long; else one buffer.
    pub fn fill_page(len: usize) -> Vec<Self> {
        let bytes = Self::bytes(len);
        Self::in_page(len, if bytes >= LONG_BUFFER_BYTES { LARGE_PAGE_BYTES / bytes } else { 1 }.max(1))
    }

    fn bytes(len: usize) -> usize {
        len.checked_mul(size_of::<T>()).expect("buffers are far below half of all addresses")
    }

    fn in_page(len: usize, count: usize) -> Vec<Self> {
        let bytes = Self::bytes(len);
        if bytes == 0 {
            return vec![Self::default()];
        }
        let is_long = bytes >= LONG_BUFFER_BYTES;
        let align = if is_long { LARGE_PAGE_BYTES } else { align_of::<T>() };
        let layout =
            Layout::from_size_align(count * bytes, align).expect("buffers are far below half of all addresses");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        if is_long {
            advise(start, layout.size());
        }
        // SAFETY: `alloc` returned that many bytes.
        unsafe { start.write_bytes(0, layout.size()) };
        let page = Arc::new(Page { start, layout });
        let part = |i| {
            // SAFETY: the page has room for `count * len` entries, and at least their alignment.
            let start = unsafe { start.cast::<T>().add(i * len) };
            Self { start, len, _page: Some(page.clone()) }
        };
        (0..count).map(part).collect()
    }

    #[cfg(test)]
    fn page_bytes(&self) -> usize {
        self._page.as_ref().map_or(0, |page| page.layout.size())
    }
}

/// Requests large pages, which may be refused.
#[cfg(target_os = "linux")]
fn advise(start: NonNull<u8>, bytes: usize) {
    /// From Linux's `mman.h`.
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(start: *mut std::ffi::c_void, bytes: usize, advice: i32) -> i32;
    }
    // SAFETY: the caller owns the memory, and this advice only changes how it is mapped.
    unsafe { madvise(start.as_ptr().cast(), bytes, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: NonNull<u8>, _: usize) {}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and no buffer uses it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl<T> Deref for Long<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the buffer owns these entries, which began as zero bytes, a valid value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Long<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_disjoint() {
        for (len, count) in
            [(0, 1), (1, 1), (64, 1), (1 << 13, 32), (1 << 16, 4), (3 << 16, 1), (1 << 18, 1), (1 << 19, 1)]
        {
            let mut buffers = Long::<u64>::fill_page(len);
            assert_eq!(buffers.len(), count, "{len} words");
            assert!(buffers.iter().all(|words| words.len() == len && words.iter().all(|&w| w == 0)));
            for (i, words) in buffers.iter_mut().enumerate() {
                words.fill(i as u64 + 1);
            }
            assert!(buffers.iter().enumerate().all(|(i, words)| words.iter().all(|&w| w == i as u64 + 1)));
            assert_eq!(buffers[0].page_bytes(), count * 8 * len);
            // A buffer outlives the others of its page, on any thread.
            let last = buffers.pop().unwrap();
            drop(buffers);
            let sum = std::thread::spawn(move || last.iter().sum::<u64>()).join().unwrap();
            assert_eq!(sum, (len * count) as u64);
        }
        assert!(Long::<u64>::default().is_empty());
        let mut blocks = Long::<Block>::zeros(10_000);
        assert_eq!((blocks.len(), blocks.page_bytes()), (10_000, 160_000));
        assert!(blocks.iter().all(|block| *block == Block::ZERO));
        blocks[9999] = Block(7);
        assert!(blocks.to_vec().pop() == Some(Block(7)));
    }
}
