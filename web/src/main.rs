//! `site write MODULE.wasm LAUNCHES FOLDER` writes the site. For the pages' test: `site answer [FILE]`
//! answers the request on stdin, as the module does in the browser; `site rollouts RECIPE FILE` writes a file
//! to drop.
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", module, launches, folder] => {
            let [module, launches] = [std::fs::read(module)?, std::fs::read(launches)?];
            println!("{}", lockstep_web::site::write(&module, &launches, Path::new(folder))?);
            Ok(())
        }
        ["answer", ref attached @ ..] => {
            let mut request = Vec::new();
            std::io::stdin().read_to_end(&mut request)?;
            let attached = attached.first().map_or(Ok(Vec::new()), std::fs::read)?;
            Ok(std::io::stdout().write_all(lockstep_web::answer(&request, &attached).as_bytes())?)
        }
        ["rollouts", recipe, file] => {
            let rollouts = lockstep::synthetic::rollouts(&lockstep::Recipe::named(recipe)?, 16, 600, 1)?;
            Ok(std::fs::write(file, rollouts.to_safetensors()?)?)
        }
        _ => {
            Err("expected `write MODULE.wasm LAUNCHES FOLDER`, `answer [FILE]` or `rollouts RECIPE FILE`"
                .into())
        }
    }
}
