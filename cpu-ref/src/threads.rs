//! Rows over threads.

use crate::cpu::Cpu;
use lockstep_core::op::DisjointRows;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this much work a second thread costs more than it saves.
const TASK: usize = 16 * 1024;

/// A kernel seen by several threads.
struct Shared<'a, K: DisjointRows>(&'a K);

// SAFETY: a kernel is plain data and views. Inputs are only read. Outputs are cells, which two threads must not touch at
// once: `DisjointRows` says that no element is written by two rows, and `chunks` gives each row to one task.
#[allow(unsafe_code)]
unsafe impl<K: DisjointRows> Sync for Shared<'_, K> {}

impl<K: DisjointRows> Shared<'_, K> {
    fn run(&self, cpu: &Cpu, rows: Range<usize>) {
        cpu.rows(self.0, rows);
    }
}

/// Runs all rows of `kernel` on the calling thread and those of `pool`.
pub(crate) fn run<K: DisjointRows>(cpu: &Cpu, pool: &rayon::ThreadPool, kernel: &K) {
    let tasks = chunks(kernel);
    if tasks.len() < 2 {
        return cpu.rows(kernel, 0..kernel.rows());
    }
    let (shared, next) = (Shared(kernel), AtomicUsize::new(0));
    let work = || {
        while let Some(rows) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            shared.run(cpu, rows.clone());
        }
    };
    // The calling thread takes part, and starts before the others are awake.
    let others = pool.current_num_threads().min(tasks.len() - 1);
    pool.in_place_scope(|scope| {
        (0..others).for_each(|_| scope.spawn(|_| work()));
        work();
    });
}

/// Consecutive rows with about [`TASK`] work each.
fn chunks<K: DisjointRows>(kernel: &K) -> Vec<Range<usize>> {
    let mut tasks = Vec::new();
    let (mut start, mut work) = (0, 0);
    for row in 0..kernel.rows() {
        work += kernel.work(row) + 1;
        if work >= TASK {
            tasks.push(start..row + 1);
            (start, work) = (row + 1, 0);
        }
    }
    if start < kernel.rows() {
        tasks.push(start..kernel.rows());
    }
    tasks
}
