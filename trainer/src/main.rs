//! The binary `lockstep`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use lockstep_trainer::cli::{Cli, Command};
use lockstep_trainer::print::{print, printed};
use lockstep_trainer::train::TrainArgs;
use lockstep_trainer::{devices, explain, list, score, study, synthesize, threads, train, tree, verify};

/// Exit code for bad input and for any other error; clap uses the same code for a bad command line.
const BAD_INPUT: u8 = 2;
/// Exit code of `verify` when it finds a difference.
const DISAGREES: u8 = 1;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(cli.command.unwrap_or_else(|| Command::Train(Box::<TrainArgs>::default()))),
        // A bad command line, on stderr; or the help or the version, on stdout.
        Err(said) => printed(said.print()).map(|()| match said.use_stderr() {
            true => ExitCode::from(BAD_INPUT),
            false => ExitCode::SUCCESS,
        }),
    };
    outcome.unwrap_or_else(|error| {
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
    let mut code = ExitCode::SUCCESS;
    let said = match command {
        Command::Train(args) => {
            threads::quiet_candle()?;
            return Ok(finished(train::train(&args)?));
        }
        Command::Study(args) => {
            threads::quiet_candle()?;
            return Ok(finished(study::study(&args)?));
        }
        Command::Score(args) => {
            let (summary, warnings) = score::score(&args)?;
            for warning in warnings {
                let _ = writeln!(std::io::stderr(), "warning: {warning}");
            }
            format!("{summary}\n")
        }
        Command::Verify(args) => {
            let (report, agrees) = verify::verify(&args)?;
            if !agrees {
                code = ExitCode::from(DISAGREES);
            }
            format!("{report}\n")
        }
        Command::Rollouts(args) => format!("{}\n", synthesize::write(&args)?),
        Command::Explain(args) => explain::explain(&args)?,
        Command::Devices => devices::list(),
        Command::List(args) => list::list(&args)?,
        Command::Tree(args) => tree::tree(&args)?,
    };
    print(&said)?;
    Ok(code)
}
