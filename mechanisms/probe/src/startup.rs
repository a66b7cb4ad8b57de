//! Start of the program: the hooks, and the sites that the environment switches on.

use crate::environment::{self, PATTERN_VARIABLE};
use crate::{recording, registry};

/// Installs the fork and exit handlers, and switches on the sites that the environment selects.
/// Reports errors on stderr, as there is no caller to which to return them.
pub(crate) fn install_and_enable() {
    recording::install_hooks();
    let Ok(pattern) = std::env::var(PATTERN_VARIABLE) else { return };
    if pattern.is_empty() {
        return;
    }
    let done = environment::config_from_environment().map_err(|error| error.to_string()).and_then(
        |config| {
            recording::set_pending_config(config);
            registry::enable(&pattern).map_err(|error| error.to_string())
        },
    );
    if let Err(error) = done {
        eprintln!("handover-probe: {PATTERN_VARIABLE}={pattern}: {error}");
    }
}
