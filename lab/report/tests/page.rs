//! The page and its chart.

mod support;

use handover_report::{html, ladder};
use support::{assert_golden, ladder as a_run};

#[test]
fn the_page_is_drawn_as_it_was_looked_at() {
    assert_golden("report.html", &html(&a_run()));
    assert_golden("ladder.svg", &ladder(&a_run(), 1080.0).draw_alone());
}
