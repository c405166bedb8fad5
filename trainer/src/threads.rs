//! Threads. The loop runs its shards on its own pool, so candle must not start threads inside them: candle's
//! pool of spinning workers, entered from two shards at once, made a step twice as slow as a single thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// Variables that candle and gemm read, once, at process start.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

/// Re-executes this program with candle's own threads off, unless the user has set them. Setting the
/// variables from inside would need unsafe code, and is too late for a library that has already read them.
pub fn quiet_candle() -> Result<()> {
    if std::env::var_os(VARIABLES[0]).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's executable")?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).envs(VARIABLES.map(|v| (v, "1")));
    replace_process(command)
}

#[cfg(unix)]
fn replace_process(mut command: std::process::Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec()).context("cannot restart with candle's threads off")
}

#[cfg(not(unix))]
fn replace_process(mut command: std::process::Command) -> Result<()> {
    let status = command.status().context("cannot restart with candle's threads off")?;
    std::process::exit(status.code().unwrap_or(1))
}

/// Runs `work` on a pool of `threads` threads (`None`: all cores).
pub fn on_pool<T: Send>(threads: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number(threads)).build();
    pool.context("cannot start threads")?.install(work)
}

fn number(threads: Option<usize>) -> usize {
    threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

/// Does jobs on `threads` threads (`None`: all cores), each job on a single one, and returns their results in
/// order. After an error no further job begins.
pub fn each<T: Sync, R: Send>(
    threads: Option<usize>,
    jobs: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    // A pool for each thread, not one for all: in a shared one a job that waits for its shards takes another.
    let worker = || {
        on_pool(Some(1), || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::SeqCst);
                let Some(job) = jobs.get(index) else { return Ok(done) };
                let result = work(job).inspect_err(|_| next.store(jobs.len(), Ordering::SeqCst));
                done.push((index, result?));
            }
        })
    };
    let mut done = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..number(threads).min(jobs.len())).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            done.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(())
    })?;
    done.sort_unstable_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_come_out() {
        let jobs: Vec<usize> = (0..50).collect();
        for threads in [1, 3] {
            let squares = each(Some(threads), &jobs, |job| Ok(job * job)).unwrap();
            assert!(squares.iter().enumerate().all(|(i, square)| *square == i * i));
            let fails = |job: &usize| if *job == 7 { anyhow::bail!("seven") } else { Ok(()) };
            assert_eq!(each(Some(threads), &jobs, fails).unwrap_err().to_string(), "seven");
        }
        assert!(each(None, &[] as &[usize], |_| Ok(())).unwrap().is_empty());
    }
}
