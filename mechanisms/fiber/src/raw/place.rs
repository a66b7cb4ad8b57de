//! A worker's exclusive access to its post.

use super::biased::Biased;
use super::kernel;
use crate::drive::post::{Post, Shared};
use crate::engine::Ready;
use handover_base::sync::shared::{Ordering, fence};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Access to the post of this thread's worker; one exists per post, on its worker's thread.
#[derive(Debug)]
pub(crate) struct Place {
    post: NonNull<Post>,
    shared: Arc<Shared>,
    has_heavy_fence: bool,
    /// `true` if other workers may take fibers from the queue.
    is_visited: bool,
    /// Makes the type `!Send`: the queue is accessed without a lock.
    here: PhantomData<*mut ()>,
}

impl Place {
    /// Takes the only place of this post; `None` if it was taken before.
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

    /// Returns the runtime's shared state.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the post's address, as stored in its fibers.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<Post> {
        self.post
    }

    /// Calls `f` with the run queue; `f` must not use this place.
    #[inline(always)] // it is a few moves where no worker steals
    pub(crate) fn ready<R>(&self, f: impl FnOnce(&mut Ready) -> R) -> R {
        let queue: &Biased<Ready> = &self.queue;
        if !self.is_visited {
            // SAFETY: a post has one Place, which stays on its thread; `f` only works on the queue;
            // and without stealing no worker calls visit().
            return unsafe { queue.own_alone(f) };
        }
        // SAFETY: a post has one Place, which stays on its thread; `f` only works on the queue.
        unsafe { queue.own(|| self.fence_light(), f) }
    }

    /// Executes the owner's half of the fence; [`fence_heavy`](Self::fence_heavy) is the other
    /// half.
    #[inline(always)] // usually no instruction
    pub(crate) fn fence_light(&self) {
        if self.has_heavy_fence {
            fence_compiler();
        } else {
            // SeqCst: pairs with the fence in fence_heavy().
            fence(Ordering::SeqCst);
        }
    }

    /// Calls `f` with the queue of another worker, unless a third one is accessing it.
    pub(crate) fn visit<R>(&self, other: &Post, f: impl FnOnce(&mut Ready) -> R) -> Option<R> {
        if !self.is_visited {
            return None;
        }
        other.queue.visit(|| self.fence_heavy(), f)
    }

    /// Executes the fence that pairs with the light fences of all workers.
    pub(crate) fn fence_heavy(&self) {
        if self.has_heavy_fence {
            kernel::fence_heavy();
        } else {
            // SeqCst: pairs with the fence in fence_light().
            fence(Ordering::SeqCst);
        }
    }
}

impl Deref for Place {
    type Target = Post;

    #[inline]
    fn deref(&self) -> &Post {
        // SAFETY: `post` is one of the posts of `shared`, which `self` keeps alive, and which never
        // move.
        unsafe { self.post.as_ref() }
    }
}

/// Prevents the compiler from moving memory accesses across, without an instruction: the owner's
/// half of the fence whose other half is the membarrier in [`Place::fence_heavy`].
#[inline]
fn fence_compiler() {
    // SAFETY: the block contains no instruction; without `nomem` the compiler must assume that it
    // accesses memory.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}
