//! The five-minute tour.
fn main() {}
