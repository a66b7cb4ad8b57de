//! Implementation of `Debug` for structs that cannot derive it.

/// Implements [`Debug`](core::fmt::Debug) for a struct with fields that are not `Debug`, or are
/// secret or too long. The output has the struct's name and the given values, each an expression
/// with a reference to the struct.
///
/// ```
/// struct Server { threads: Vec<std::thread::Thread>, handle: Box<dyn Fn()> }
/// handover_base::debug_struct!(Server as server { threads: server.threads.len() });
/// let server = Server { threads: Vec::new(), handle: Box::new(|| ()) };
/// assert_eq!(format!("{server:?}"), "Server { threads: 0, .. }");
/// ```
#[macro_export]
macro_rules! debug_struct {
    (
        $name:ident $(<$($generic:ident $(: $bound:path)?),+>)?
        $(as $this:ident { $($field:ident: $value:expr),+ })?
    ) => {
        impl $(<$($generic $(: $bound)?),+>)? ::core::fmt::Debug for $name $(<$($generic),+>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
