//! `lockstep study`: experiments on the claims of papers. Each compares arms from the same warm starts, over
//! several seeds, and says what was shown and what was not.

mod definitions;
mod metrics;
mod runner;
mod statistics;
mod summary;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};

pub(crate) use definitions::label;
pub use definitions::{Arm, Comparison, Definitions, Direction, Experiment, Plan};
pub(crate) use metrics::SOLVED;
pub use metrics::{Metric, Run};
pub use runner::{Outcome, Stored, perform};
pub use statistics::Interval;
pub use summary::{ArmFindings, Findings, Judgement, Measured, Study, Verdict, summarise};

use crate::lock::Lock;
use crate::print::print;
use crate::train::on_ctrl_c;
use crate::{atomic, report};

/// Arguments of `lockstep study`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct StudyArgs {
    /// What to run: the name of an experiment, or all; list: print the experiments
    #[arg(value_name = "list|ID|all")]
    pub what: String,
    /// Number of seeds, counted from the experiment's first, 1 but for `rate` [default: the experiment's]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Small sizes and few steps: whether everything runs, not what is true
    #[arg(long)]
    pub quick: bool,
    /// Threads [default: all cores]; the number does not change a bit of the result
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Folder of the runs and of study.html, study.md and study.json [default: runs/study or
    /// runs/study-quick]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the list as docs/study.md
    #[arg(long)]
    pub markdown: bool,
}

/// Runs `lockstep study`. Returns whether it finished; Ctrl-C ends it early, without the runs in progress.
pub fn study(args: &StudyArgs) -> Result<bool> {
    let definitions = Definitions::built_in()?;
    ensure!(!args.markdown || args.what == "list", "--markdown needs list: expected study list --markdown");
    if args.what == "list" {
        let others = args.quick || args.seeds.is_some() || args.threads.is_some() || args.out.is_some();
        ensure!(!others, "study list runs nothing: expected no option but --markdown");
        print(&format!("{}\n", list(&definitions, args.markdown)?.trim_end()))?;
        return Ok(true);
    }
    let asked = definitions.plan(&args.what, args.quick, args.seeds)?;
    let default = if args.quick { "runs/study-quick" } else { "runs/study" };
    let folder = args.out.clone().unwrap_or_else(|| default.into());
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    let _lock = Lock::take(&folder)?;
    let files = ["study.json", "study.md", "study.html"].map(|name| folder.join(name));
    let plans = with_finished(&definitions, &asked, args.quick, &folder)?;
    // Fail now rather than after hours.
    files.iter().try_for_each(|path| atomic::check(path))?;
    let stop: std::sync::Arc<AtomicBool> = on_ctrl_c()?;
    let Some(runs) = perform(&plans, &folder, args.threads.map(usize::from), &stop)? else {
        let said = "stopped; the same command continues: the finished runs are in";
        print(&format!("{said} {}\n", folder.display()))?;
        return Ok(false);
    };
    let study = summarise(&plans, &runs, args.quick, env!("CARGO_PKG_VERSION"))?;
    let [json, markdown, html] = &files;
    atomic::write(json, &serde_json::to_vec(&study)?)?;
    atomic::write(markdown, report::study_markdown(&definitions, Some(&study))?.as_bytes())?;
    atomic::write(html, report::study_html(&study)?.as_bytes())?;
    print(&format!("{}\nreport: {}\n", report::study_verdicts(&study), html.display()))?;
    Ok(true)
}

/// What was asked for, and what the folder has of other experiments: its report covers all, and their
/// hypotheses are one family.
fn with_finished(all: &Definitions, asked: &[Plan], quick: bool, folder: &Path) -> Result<Vec<Plan>> {
    let mut plans = all.plan("all", quick, Some(0))?;
    for plan in &mut plans {
        match asked.iter().find(|own| own.experiment.id == plan.experiment.id) {
            Some(own) => *plan = own.clone(),
            None => plan.seeds = runner::finished(plan, folder),
        }
    }
    plans.retain(|plan| plan.seeds > 0);
    Ok(plans)
}

/// The experiments: docs/study.md, or blocks of lines for a terminal.
pub fn list(definitions: &Definitions, markdown: bool) -> Result<String> {
    if markdown {
        return report::study_markdown(definitions, None);
    }
    let mut text = String::new();
    for experiment in &definitions.experiments {
        let Experiment { id, claim, source, .. } = experiment;
        writeln!(text, "{id:<4} {claim}\n     source: {source}")?;
        if let Some(needs) = &experiment.needs {
            writeln!(text, "     needs: {needs}")?;
            continue;
        }
        writeln!(text, "     arms: {}", experiment.arms_text())?;
        writeln!(text, "     metrics: {}", experiment.metrics.join(", "))?;
        writeln!(text, "     cost: {:.0} minutes of a core", definitions.minutes(experiment))?;
    }
    Ok(text)
}
