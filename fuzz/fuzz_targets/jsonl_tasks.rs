//! Fuzzes task files: an error names the faulty line; accepted problems are solved by their own solutions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_trainer::task::{JsonlTask, parse_jsonl, share_a_prompt};

/// The line that an error names, counted from 1.
fn named_line(message: &str) -> Option<usize> {
    message.strip_prefix("line ")?.split(':').next()?.parse().ok()
}

fuzz_target!(|text: &[u8]| {
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let filled = |lines: &[&[u8]]| lines.iter().filter(|line| !line.trim_ascii().is_empty()).count();
    let problems = match parse_jsonl(text) {
        Ok(problems) => problems,
        Err(error) => {
            let message = format!("{error:#}");
            let Some(line) = named_line(&message) else {
                // No line is wrong: there are too few problems.
                assert!(message.contains("problems") && filled(&lines) < 2, "{message}");
                return;
            };
            assert!((1..=lines.len()).contains(&line), "{message}: there are {} lines", lines.len());
            assert!(message.len() > "line 1: ".len(), "{message}");
            assert!(!lines[line - 1].trim_ascii().is_empty(), "{message}: that line is empty");
            // The lines before it have no fault.
            let before = lines[..line - 1].join(&b'\n');
            if let Err(error) = parse_jsonl(&before) {
                let earlier = format!("{error:#}");
                assert!(named_line(&earlier).is_none(), "{message}, but without that line {earlier}");
            }
            return;
        }
    };
    assert_eq!(problems.len(), filled(&lines));
    for (i, problem) in problems.iter().enumerate() {
        assert_eq!(problem.reward(&problem.solution), 1.0, "{problem:?}");
        assert!(!problem.prompt.is_empty() && !problem.answer.is_empty(), "{problem:?}");
        assert!(problems[..i].iter().all(|p| p.prompt != problem.prompt), "{problem:?} twice");
    }
    match JsonlTask::new(text) {
        Err(error) => assert!(error.to_string().contains("different characters"), "{error:#}"),
        Ok(task) => {
            let held_out = task.held_out(usize::MAX);
            assert!(!held_out.is_empty() && held_out.len() < problems.len());
            let training: Vec<_> =
                (0..(problems.len() - held_out.len()) as u64).map(|i| task.training(&mut |_| i)).collect();
            assert!(!share_a_prompt(&training, &held_out));
            assert!(training.iter().chain(&held_out).all(|p| problems.contains(p)));
        }
    }
});
