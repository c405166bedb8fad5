//! The yardstick: the speed at which this machine copies memory on the same number of threads.

use rayon::prelude::*;

/// Two buffers larger than the caches.
#[derive(Debug)]
pub struct Copy {
    from: Vec<u8>,
    to: Vec<u8>,
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Copy {
    /// Creates buffers of `bytes` each, to be copied by `threads` threads.
    pub fn new(bytes: usize, threads: usize) -> Copy {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok();
        Copy { from: vec![1; bytes], to: vec![0; bytes], pool, threads }
    }

    /// Bytes moved by one run, read and written.
    pub fn bytes(&self) -> u64 {
        2 * self.from.len() as u64
    }

    /// The least of the times that a copy takes, in seconds.
    pub fn best(&mut self, runs: usize) -> f64 {
        let copied = crate::best(runs, || {
            self.run();
            Ok(())
        });
        copied.expect("a copy cannot fail")
    }

    /// Copies once.
    pub fn run(&mut self) {
        let chunk = self.from.len().div_ceil(self.threads).max(1);
        let (from, to) = (&self.from, &mut self.to);
        let mut copy = || {
            to.par_chunks_mut(chunk)
                .zip(from.par_chunks(chunk))
                .for_each(|(to, from)| to.copy_from_slice(from))
        };
        match &self.pool {
            Some(pool) => pool.install(copy),
            None => copy(),
        }
    }
}
