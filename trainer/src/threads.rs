//! Threads. The loop cuts its work into shards and runs them on a pool of its own, so candle must not start threads inside:
//! its pool of spinning workers, entered from two shards at once, made a step twice as slow as one thread alone.

use anyhow::{Context, Result};

/// What candle and gemm read, and only at the start of the process.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

/// Starts this program again in the same process with candle's own threads off, unless the user has set them. Setting the
/// variables from inside would be unsafe code, and too late for a library that has read them.
pub fn quiet_candle() -> Result<()> {
    if std::env::var_os(VARIABLES[0]).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).envs(VARIABLES.map(|v| (v, "1")));
    replace_process(command)
}

#[cfg(unix)]
fn replace_process(mut command: std::process::Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec()).context("cannot start again with candle's threads off")
}

#[cfg(not(unix))]
fn replace_process(mut command: std::process::Command) -> Result<()> {
    let status = command.status().context("cannot start again with candle's threads off")?;
    std::process::exit(status.code().unwrap_or(1))
}

/// Runs `work` on a pool of `threads` threads (all cores when there is no number).
pub fn on_pool<T: Send>(threads: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")?;
    pool.install(work)
}
