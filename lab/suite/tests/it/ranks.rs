//! Tests of the text form of an MPI rank's task.

use handover_suite::mpi::{RankOperation, RankTask};

#[test]
fn task_of_a_rank_survives_formatting_and_parsing() {
    for (_, operation) in RankOperation::ALL {
        let task = RankTask { operation, size_bytes: 4096, memory_bytes: 1 << 26, cpus: [0, 7] };
        assert_eq!(RankTask::parse(&task.to_text()), Some(task));
    }
    for text in ["", "get", "get 1 2 3", "walk 1 2 3 4", "put 1 2 3 -4"] {
        assert_eq!(RankTask::parse(text), None, "{text}");
    }
}
