//! Threads. The loop runs its shards on its own pool, so candle must not start threads inside them: candle's
//! pool of spinning workers, entered from two shards at once, made a step twice as slow as a single thread.

use anyhow::{Context, Result};

/// Variables that candle and gemm read, once, at process start.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

/// Re-executes this program with candle's own threads off, unless the user has set them. Setting the
/// variables from inside would need unsafe code, and is too late for a library that has already read them.
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

/// Runs `work` on a pool of `threads` threads (`None`: all cores).
pub fn on_pool<T: Send>(threads: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")?;
    pool.install(work)
}
