//! API of the timer wheel, and its comparison with a reference model.

mod api;
mod model;
