//! Work shared by several threads, without waiting for threads that arrive late.
//!
//! A sleeping thread needs 10 to 50 µs to wake, by which time the calling thread may have finished.
//! `rayon`'s scopes wait for every thread they spawn on; here, a thread that arrives after the work is done
//! finds the door shut.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Calls `step` until it returns false, on the calling thread and on those of `pool`, on at most `tasks`
/// threads. Returns when no thread is inside `step` and none can enter. Resumes a panic of another thread.
pub(crate) fn share(pool: &rayon::ThreadPool, tasks: usize, step: &(dyn Fn() -> bool + Sync)) {
    let others = pool.current_num_threads().min(tasks.saturating_sub(1));
    let door = Arc::new(Door::default());
    let work = Work::of(step);
    let closing = Closing(&door);
    for _ in 0..others {
        let door = Arc::clone(&door);
        pool.spawn(move || door.enter(work));
    }
    while step() {}
    drop(closing);
    let panicked = door.lock().panicked.take();
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// A caller's `step` with its lifetime erased: a pointer, because late threads hold it after it is gone.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() -> bool + Sync));

// SAFETY: it points to something `Sync`, and is dereferenced only behind the door.
#[allow(unsafe_code)]
unsafe impl Send for Work {}

impl Work {
    #[allow(unsafe_code)]
    fn of<'a>(step: &'a (dyn Fn() -> bool + Sync + 'a)) -> Work {
        let step: *const (dyn Fn() -> bool + Sync + 'a) = step;
        // SAFETY: only the lifetime changes; `Door::enter` explains why it is upheld.
        Work(unsafe {
            std::mem::transmute::<
                *const (dyn Fn() -> bool + Sync + 'a),
                *const (dyn Fn() -> bool + Sync + 'static),
            >(step)
        })
    }
}

/// The door through which other threads reach the work.
#[derive(Default)]
struct Door {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    shut: bool,
    inside: usize,
    panicked: Option<Box<dyn Any + Send>>,
}

impl Door {
    /// Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work if the door is open.
    fn enter(&self, Work(step): Work) {
        {
            let mut state = self.lock();
            if state.shut {
                return;
            }
            state.inside += 1;
        }
        // SAFETY: the door was open when this thread was counted, so `Closing`, which lives in the function
        // that holds the reference, cannot finish dropping before this thread has left.
        #[allow(unsafe_code)]
        let step = unsafe { &*step };
        let done = catch_unwind(AssertUnwindSafe(|| while step() {}));
        let mut state = self.lock();
        state.inside -= 1;
        if let Err(panic) = done {
            state.panicked = Some(panic);
        }
        if state.inside == 0 {
            self.left.notify_all();
        }
    }
}

/// Shuts the door and waits for the threads inside, also when the calling thread's work panics.
struct Closing<'a>(&'a Door);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.shut = true;
        while state.inside > 0 {
            state = self.0.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn pool() -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread")
    }

    #[test]
    fn a_thread_that_comes_late_is_not_waited_for() {
        let pool = pool();
        let (free, held) = mpsc::channel::<()>();
        pool.spawn(move || {
            let _ = held.recv();
        });
        // The only other thread is busy until `free` is dropped.
        let steps = AtomicUsize::new(0);
        share(&pool, 2, &|| steps.fetch_add(1, Ordering::Relaxed) < 9);
        assert_eq!(steps.load(Ordering::Relaxed), 10);
        drop(free);
        // The work it was spawned for is gone: it finds the door shut.
        pool.install(|| ());
        assert_eq!(steps.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn a_panic_of_either_thread_arrives() {
        let (pool, caller) = (pool(), std::thread::current().id());
        for planted_on_caller in [true, false] {
            let came = AtomicBool::new(false);
            let step = || {
                let on_caller = std::thread::current().id() == caller;
                came.fetch_or(!on_caller, Ordering::Relaxed);
                while !came.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                assert!(on_caller != planted_on_caller, "planted");
                false
            };
            assert!(catch_unwind(AssertUnwindSafe(|| share(&pool, 2, &step))).is_err());
        }
    }
}
