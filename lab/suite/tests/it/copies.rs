//! Tests of copies with non-temporal stores of each width.

use handover_suite::floor::{StoreWidth, copy_streaming_with};

#[repr(align(64))]
struct Lines([u8; 1024]);

#[test]
fn stores_of_every_width_copy_the_same() {
    let from = Lines(std::array::from_fn(|at| (at * 37 / 8) as u8));
    for width in StoreWidth::ALL.into_iter().filter(|width| width.is_supported()) {
        let mut to = Lines([0; 1024]);
        copy_streaming_with(width, &from.0[..768], &mut to.0[..768]);
        assert_eq!(to.0[..768], from.0[..768], "{width:?}");
        assert!(to.0[768..].iter().all(|it| *it == 0), "{width:?}");
    }
}
