//! What cannot be checked, only promised.

use crate::{Config, Promise, Stealing};

impl Config {
    /// Lets workers take fibers that are suspended, too.
    ///
    /// # Safety
    /// No fiber of the runtime holds across a suspension (a yield, a sleep, any wait) what is tied to the thread on
    /// which it was got: a reference that `LocalKey::with` has lent, the address of a thread-local variable that
    /// foreign code keeps, a guard of a `std` lock, an `Rc` of which the thread keeps another, a handle that must
    /// be closed on its thread. Nothing of that is `Send`, and no compiler looks at what lies on a stack. A function
    /// that reads a thread-local variable before and after a suspension must do so in functions that are never
    /// inlined.
    #[must_use]
    pub unsafe fn steal_suspended(mut self) -> Self {
        self.stealing = Stealing::Suspended(Promise(()));
        self
    }
}
