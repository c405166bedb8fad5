//! The binary `lockstep`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use lockstep_trainer::cli::{Cli, Command};
use lockstep_trainer::train::TrainArgs;
use lockstep_trainer::{devices, explain, list, score, study, synthesize, threads, train, tree, verify};

/// Exit code for any bad input; clap uses the same code for a bad command line.
const BAD_INPUT: u8 = 2;
/// Exit code of `verify` when it finds a difference.
const DISAGREES: u8 = 1;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    run(cli.command.unwrap_or_else(|| Command::Train(Box::<TrainArgs>::default()))).unwrap_or_else(|error| {
        // Not `eprintln!`: a closed stderr must not turn an error into a panic.
        let _ = writeln!(std::io::stderr(), "error: {}", message(&error));
        ExitCode::from(BAD_INPUT)
    })
}

/// The error and its causes on one line, without repetition: some errors already quote their cause.
fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = error.chain().map(ToString::to_string).collect();
    parts.dedup_by(|cause, effect| effect.contains(cause.as_str()));
    parts.join(": ")
}

fn finished(finished: bool) -> ExitCode {
    if finished { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Train(args) => {
            threads::quiet_candle()?;
            Ok(finished(train::train(&args)?))
        }
        Command::Score(args) => {
            let (summary, warnings) = score::score(&args)?;
            for warning in warnings {
                let _ = writeln!(std::io::stderr(), "warning: {warning}");
            }
            let _ = writeln!(std::io::stdout(), "{summary}");
            Ok(ExitCode::SUCCESS)
        }
        Command::Explain(args) => {
            let _ = write!(std::io::stdout(), "{}", explain::explain(&args)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Rollouts(args) => {
            let _ = writeln!(std::io::stdout(), "{}", synthesize::write(&args)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Study(args) => {
            threads::quiet_candle()?;
            Ok(finished(study::study(&args)?))
        }
        Command::Devices => {
            let _ = write!(std::io::stdout(), "{}", devices::list());
            Ok(ExitCode::SUCCESS)
        }
        Command::List(args) => {
            let _ = write!(std::io::stdout(), "{}", list::list(&args)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Tree(args) => {
            let _ = write!(std::io::stdout(), "{}", tree::tree(&args)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify(args) => {
            let (report, agrees) = verify::verify(&args)?;
            let _ = writeln!(std::io::stdout(), "{report}");
            Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::from(DISAGREES) })
        }
    }
}
