//! The crates with `unsafe` between threads, under the compiler's sanitizers.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::prerequisites::component;
use crate::run::Run;
use crate::test::Context;
