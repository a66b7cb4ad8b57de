//! The kernel's mechanisms, behind the traits of `handover-notify`: what a program would use
//! otherwise. Each of them enters the kernel at each notification.

mod descriptor;
mod eventfd;
mod futex;
mod pipe;

pub use eventfd::EventFd;
pub use futex::Futex;
pub use pipe::Pipe;
