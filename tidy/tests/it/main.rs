//! Tests of the rules on this repository and on planted violations.

mod house;
mod planted;
