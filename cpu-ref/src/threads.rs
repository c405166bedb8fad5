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

/// Runs all rows of `kernel`.
pub(crate) fn run<K: DisjointRows>(cpu: &Cpu, pool: &rayon::ThreadPool, kernel: &K) {
    let (tasks, shared) = (chunks(kernel), Shared(kernel));
    each(Some(pool), tasks.len(), &|task| shared.run(cpu, tasks[task].clone()));
}

/// Calls `work` for every task, on the calling thread and those of `pool`.
pub(crate) fn each(pool: Option<&rayon::ThreadPool>, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
    let Some(pool) = pool.filter(|_| tasks > 1) else { return (0..tasks).for_each(work) };
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                task if task < tasks => work(task),
                _ => break,
            }
        }
    };
    // The calling thread takes part, and starts before the others are awake.
    let others = pool.current_num_threads().min(tasks - 1);
    pool.in_place_scope(|scope| {
        (0..others).for_each(|_| scope.spawn(|_| take()));
        take();
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
