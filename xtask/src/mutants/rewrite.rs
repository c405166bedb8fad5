//! One text that holds a file and all of its changes, chosen between at run time.

use super::points::{Bytes, Place, Site};

/// A changed place in the text that came out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    /// Which place.
    pub(super) place: usize,
    /// Its bytes there.
    pub(super) bytes: Bytes,
}

/// Puts text before, between or behind parts of a place. At one byte what ends comes before what begins, the
/// inner end first.
struct Edit {
    bytes: Bytes,
    order: (u8, isize),
    text: String,
    /// The place that begins or ends here.
    place: Option<usize>,
}

/// The text, where the changes of place i have the numbers `ids[i]` (0: left out).
pub(super) fn rewrite(text: &str, places: &[Place], ids: &[Vec<u32>]) -> (String, Vec<Written>) {
    let mut edits = Vec::new();
    for (i, (place, ids)) in places.iter().zip(ids).enumerate() {
        let live: Vec<(&str, u32)> = place
            .becomes
            .iter()
            .map(String::as_str)
            .zip(ids.iter().copied())
            .filter(|(_, id)| *id > 0)
            .collect();
        if !live.is_empty() {
            edits.extend(place_edits(text, i, place, &live));
        }
    }
    edits.sort_by_key(|edit| (edit.bytes.start, edit.order));
    let (mut out, mut at) = (String::new(), 0);
    let mut written: Vec<Written> = Vec::new();
    for edit in edits {
        out.push_str(&text[at..edit.bytes.start]);
        let begin = out.len();
        out.push_str(&edit.text);
        at = edit.bytes.end;
        match edit.place {
            Some(place) if edit.order.0 == BEGIN => written.push(Written { place, bytes: begin..0 }),
            Some(place) => {
                let open = written.iter_mut().rev().find(|w| w.place == place);
                open.expect("an end has a beginning").bytes.end = out.len();
            }
            None => {}
        }
    }
    out.push_str(&text[at..]);
    (out, written)
}

const END: u8 = 0;
const BETWEEN: u8 = 1;
const BEGIN: u8 = 2;

/// `if is(7) { first } else if is(8) { second } else { original }`.
fn choice(live: &[(&str, u32)], original: &str, changed: impl Fn(&str) -> String) -> String {
    let changes: String = live
        .iter()
        .map(|(new, id)| format!("if crate::mutant::is({id}) {{ {} }} else ", changed(new)))
        .collect();
    format!("{changes}{{ {original} }}")
}

fn place_edits(text: &str, number: usize, place: &Place, live: &[(&str, u32)]) -> Vec<Edit> {
    let Bytes { start, end } = place.bytes;
    let size = (end - start) as isize;
    // Of two places that begin at one byte the larger is the outer one; so it is where they end.
    let begin =
        |to: usize, text: String| Edit { bytes: start..to, order: (BEGIN, -size), text, place: Some(number) };
    let finish = |text: String| Edit { bytes: end..end, order: (END, size), text, place: Some(number) };
    let part = |from: usize, to: usize, text: &str| Edit {
        bytes: from..to,
        order: (BETWEEN, 0),
        text: text.to_owned(),
        place: None,
    };
    let is = &place.is;
    match &place.site {
        Site::Values { left, right } => {
            let body = choice(live, &format!("l {is} r"), |new| format!("l {new} r"));
            vec![
                begin(start, "({ let (l, r) = (".into()),
                part(left.end, right.start, ", "),
                finish(format!("); {body} }})")),
            ]
        }
        Site::Compared { left, right } => {
            let body = choice(live, &format!("*l {is} *r"), |new| format!("*l {new} *r"));
            vec![
                begin(start, "(match (&(".into()),
                part(left.end, right.start, "), &("),
                finish(format!(")) {{ (l, r) => {body} }})")),
            ]
        }
        Site::Logic { left, right, and } => {
            let is = format!("crate::mutant::is({})", live[0].1);
            let op = if *and { "!=" } else { "==" };
            vec![
                begin(start, "({ let l: bool = ".into()),
                part(left.end, right.start, &format!("; if l {op} {is} {{ ")),
                finish(" } else { l } })".into()),
            ]
        }
        Site::Assigned { left, right } => {
            let target = &text[left.clone()];
            let body = choice(live, &format!("{target} {is} r;"), |new| format!("{target} {new} r;"));
            vec![begin(right.start, "{ let r = ".into()), finish(format!("; {body} }}"))]
        }
        Site::Unary { operand } => {
            let op = if is == "!" { "!" } else { "-" };
            let body = choice(live, &format!("{op}v"), |_| "v".into());
            vec![begin(operand.start, "({ let v = ".into()), finish(format!("; {body} }})"))]
        }
        Site::Literal => {
            let body = choice(live, &text[start..end], str::to_owned);
            vec![begin(end, format!("({body})")), finish(String::new())]
        }
        Site::Method { left, right } => {
            let body = choice(live, &format!("l.{is}(r)"), |new| format!("l.{new}(r)"));
            let tail = part(right.end, end, "");
            vec![
                begin(start, "({ let (l, r) = (".into()),
                part(left.end, right.start, ", "),
                tail,
                finish(format!("); {body} }})")),
            ]
        }
        Site::Call { function, arguments } => {
            let name = &text[function.clone()];
            let all = |list: &[&str]| format!("{name}({})", list.join(", "));
            let letters = &["a", "b", "c"][..arguments.len()];
            let body = choice(live, &all(letters), |new| match new {
                "swapped" => all(&["b", "a"]),
                "min" | "max" => format!("{}{new}(a, b)", &name[..name.len() - is.len()]),
                _ => all(&["a", "b", "-c"]),
            });
            let mut edits = vec![
                begin(arguments[0].start, format!("({{ let ({}) = (", letters.join(", "))),
                part(arguments[arguments.len() - 1].end, end, ""),
                finish(format!("); {body} }})")),
            ];
            for pair in arguments.windows(2) {
                edits.push(part(pair[0].end, pair[1].start, ", "));
            }
            edits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::points::places;

    /// All changes of a text, each applied alone.
    fn rewritten(text: &str) -> String {
        let places = places(text).unwrap();
        let mut numbers = 1..;
        let ids: Vec<Vec<u32>> =
            places.iter().map(|place| numbers.by_ref().take(place.becomes.len()).collect()).collect();
        let (out, written) = rewrite(text, &places, &ids);
        syn::parse_file(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
        assert!(written.iter().all(|w| w.bytes.end > w.bytes.start), "{written:?}");
        out
    }

    #[test]
    fn nested_places_are_nested() {
        let out = rewritten("fn f(x: f32, y: f32) -> f32 { -(x + y * 0.5) }");
        assert!(out.contains("let (l, r) = (x, ({ let (l, r) = (y, (if crate::mutant::is(4)"), "{out}");
        assert!(out.contains("{ (0.5 * 1.01) } else { 0.5 }"), "{out}");
    }

    #[test]
    fn every_kind_of_place_parses_again() {
        let out = rewritten(
            "fn f(x: f32, y: f32, mut n: u32) -> bool {
                 n += 1 + n;
                 let z = num::div(x, y.min(-x)).max(A::fma(x, y, 2.0));
                 !(x < y && z == 1.0) || n & 1 != 0 || true
             }",
        );
        assert!(out.contains("num::div(b, a)") && out.contains("A::fma(a, b, -c)"), "{out}");
        assert!(out.contains("n -= r;"), "{out}");
    }

    #[test]
    fn a_tie_that_changes_nothing_is_left_out() {
        let out = rewritten(
            "fn f(n: u32, x: f32) -> f32 { let n = if n > 1 { n as f64 } else { 1.0 }; if x < n { n } else { \
             0.0 } }",
        );
        assert_eq!(out.matches("*l >= *r").count(), 0, "{out}");
        assert_eq!(out.matches("*l <= *r").count(), 1, "{out}");
    }

    #[test]
    fn constants_patterns_and_gpu_code_stay() {
        let text = "const A: f32 = 1.0 + 2.0;
             const fn g() -> f32 { 1.0 + 2.0 }
             #[cfg(target_arch = \"amdgpu\")] fn h(x: f32) -> f32 { x + x }
             fn f(x: [u8; 3 + 1]) { match x[0] { 1 => [0; 2 + 1], _ => [0; 3] }; if let -1.0 = 1 { } }";
        assert_eq!(rewritten(text), text);
    }
}
