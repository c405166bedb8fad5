//! Distributes rows over threads.

use crate::cpu::{Cpu, Rows};
use crate::shared_work::share;
use lockstep_core::op::DisjointRows;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Below this much work, a second thread costs more than it saves.
const TASK: usize = 16 * 1024;

/// A kernel shared by several threads.
struct Shared<'a, K: DisjointRows> {
    kernel: &'a K,
    rows: Rows<K>,
}

// SAFETY: a kernel is plain data and views. Inputs are only read. Outputs are cells, which two threads must
// not touch at once: `DisjointRows` promises that no two rows write the same element, and `run` gives each
// row to one task.
#[allow(unsafe_code)]
unsafe impl<K: DisjointRows> Sync for Shared<'_, K> {}

impl<K: DisjointRows> Shared<'_, K> {
    fn run(&self, cpu: &Cpu, rows: Range<usize>) {
        (self.rows)(cpu, self.kernel, rows);
    }
}

/// Runs all rows of `kernel`. Each idle thread takes the next rows, so that no pass over all rows comes first
/// (measured for a million rows: 3 ms on one thread) and memory is traversed in order.
pub(crate) fn run<K: DisjointRows>(cpu: &Cpu, pool: &rayon::ThreadPool, kernel: &K, rows: Rows<K>) {
    if task(kernel, 0) == kernel.rows() {
        return rows(cpu, kernel, 0..kernel.rows());
    }
    let (shared, next) = (Shared { kernel, rows }, Mutex::new(0));
    share(pool, usize::MAX, &|| {
        let rows = {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let start = *next;
            *next = task(shared.kernel, start);
            start..*next
        };
        if rows.is_empty() {
            return false;
        }
        shared.run(cpu, rows);
        true
    });
}

/// Calls `work` for every task, on the calling thread and on those of `pool`.
pub(crate) fn each(pool: Option<&rayon::ThreadPool>, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
    let Some(pool) = pool.filter(|_| tasks > 1) else { return (0..tasks).for_each(work) };
    let next = AtomicUsize::new(0);
    share(pool, tasks, &|| {
        let task = next.fetch_add(1, Ordering::Relaxed);
        if task < tasks {
            work(task);
        }
        task < tasks
    });
}

/// Returns the end of the rows that start at `start` and together have about [`TASK`] work.
fn task<K: DisjointRows>(kernel: &K, start: usize) -> usize {
    let (mut end, mut work) = (start, 0);
    while end < kernel.rows() && work < TASK {
        work += kernel.work(end) + 1;
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Two threads means two: `Cpu` gives a pool of one besides the caller's, and each task waits until the
    /// other has begun.
    #[test]
    fn the_calling_thread_counts_beside_the_pool() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
        let (first, second) = (mpsc::channel(), mpsc::channel());
        let ends = [(first.0, Mutex::new(second.1)), (second.0, Mutex::new(first.1))];
        each(Some(&pool), 2, &|task| {
            let (tell, hear) = &ends[task];
            tell.send(()).expect("the other end lives as long");
            let heard = hear.lock().expect("one task has it").recv_timeout(Duration::from_secs(60));
            assert!(heard.is_ok(), "task {task} ran alone");
        });
    }
}
