//! A worker's own hold of its post.

use super::biased::Biased;
use super::kernel;
use crate::drive::post::{Post, Shared};
use crate::engine::Ready;
use handover_base::sync::shared::{Ordering, fence};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// The post of the worker that this thread is; there is one for each post, on its thread.
#[derive(Debug)]
pub(crate) struct Place {
    post: NonNull<Post>,
    shared: Arc<Shared>,
    has_heavy_fence: bool,
    /// Others may take from the queue.
    is_visited: bool,
    /// Not to be sent: the queue is taken without a lock.
    here: PhantomData<*mut ()>,
}

impl Place {
    /// The only one of this post. None if there is one already.
    pub(crate) fn take(shared: Arc<Shared>, index: usize) -> Option<Self> {
        let post = shared.posts.get(index)?;
        post.occupy().then(|| Self {
            post: NonNull::from(post),
            has_heavy_fence: kernel::has_heavy_fence(),
            is_visited: shared.steals(),
            shared: Arc::clone(&shared),
            here: PhantomData,
        })
    }

    /// The runtime.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The address by which fibers know the post.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<Post> {
        self.post
    }

    /// Calls `f` with the queue of those that can run; `f` calls nothing of ours.
    #[inline(always)] // it is a few moves where nobody steals
    pub(crate) fn ready<R>(&self, f: impl FnOnce(&mut Ready) -> R) -> R {
        let queue: &Biased<Ready> = &self.queue;
        if !self.is_visited {
            // SAFETY: there is one Place to a post, and it stays on its thread; f only works on the queue; and
            // nobody visits in a runtime where nobody steals.
            return unsafe { queue.own_alone(f) };
        }
        // SAFETY: there is one Place to a post, and it stays on its thread; f only works on the queue.
        unsafe { queue.own(|| self.fence_light(), f) }
    }

    /// The owner's half of the fence whose other half is [`fence_heavy`](Self::fence_heavy).
    #[inline(always)] // no instruction, as a rule
    pub(crate) fn fence_light(&self) {
        if self.has_heavy_fence {
            fence_compiler();
        } else {
            // SeqCst: pairs with the one in fence_heavy().
            fence(Ordering::SeqCst);
        }
    }

    /// Calls `f` with the queue of another worker, unless somebody else is there.
    pub(crate) fn visit<R>(&self, other: &Post, f: impl FnOnce(&mut Ready) -> R) -> Option<R> {
        if !self.is_visited {
            return None;
        }
        other.queue.visit(|| self.fence_heavy(), f)
    }

    /// The fence that pairs with the light ones of all workers.
    pub(crate) fn fence_heavy(&self) {
        if self.has_heavy_fence {
            kernel::fence_heavy();
        } else {
            // SeqCst: pairs with the one in fence_light().
            fence(Ordering::SeqCst);
        }
    }
}

impl Deref for Place {
    type Target = Post;

    #[inline]
    fn deref(&self) -> &Post {
        // SAFETY: it is one of the posts of `shared`, which we hold on to and which never move.
        unsafe { self.post.as_ref() }
    }
}

/// Keeps the compiler from moving memory accesses across, and costs no instruction: the owner's half of the fence
/// whose other half is the membarrier in [`Place::fence_heavy`].
#[inline]
fn fence_compiler() {
    // SAFETY: no instruction at all; what counts is that the compiler must take it to access memory.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}
