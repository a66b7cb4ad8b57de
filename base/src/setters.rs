//! Setters of configurations that other crates cannot write as literals.

/// Implements setters for fields of a `#[non_exhaustive]` configuration, which only its own crate
/// can write as a literal. Each is named like its field, takes the new value, and returns the
/// configuration.
///
/// ```
/// /// Limits of a queue.
/// #[derive(Debug, Default)]
/// #[non_exhaustive]
/// pub struct Config {
///     /// Maximum number of messages.
///     pub messages_max: u32,
///     /// Name in log messages.
///     pub name: String,
/// }
/// handover_base::setters!(Config { messages_max: u32, name: String });
///
/// let config = Config::default().messages_max(16).name("requests".to_owned());
/// assert_eq!((config.messages_max, &*config.name), (16, "requests"));
/// ```
#[macro_export]
macro_rules! setters {
    ($config:ty { $($(#[$attribute:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        impl $config {
            $(
                $(#[$attribute])*
                #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                #[inline]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
