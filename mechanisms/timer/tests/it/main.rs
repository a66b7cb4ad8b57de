//! Tests of the timer wheel's API, and its comparison with a reference model.

mod api;
mod model;
