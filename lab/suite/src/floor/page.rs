//! Floors of figures in bytes: constants of the machine.

use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::{Spec, Unit};

/// Declares floors whose figure is a constant number of bytes.
macro_rules! sizes {
    ($($(#[$doc:meta])* $name:ident: $id:literal, $what:literal, $bytes:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Workload for $name {
            type Args = ();
            const SPEC: Spec = Spec::new($id, $what).unit(Unit::Bytes);

            fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
                Ok($name)
            }

            fn sample(&mut self, out: &mut Samples) {
                if out.is_running() {
                    out.record_value(0, $bytes);
                }
            }
        }
    )*};
}

sizes! {
    /// Floor: one page, the least memory that a fiber or thread with its own stack uses.
    OnePage: "floor/page", "one page of memory, the minimum for a stack of its own",
        rustix::param::page_size() as f64;
    /// Floor: one word, the least memory that refers to a waiting fiber or a connection.
    OneWord: "floor/word",
        "one word of memory, the minimum for an entry in a table",
        size_of::<*const ()>() as f64;
}
