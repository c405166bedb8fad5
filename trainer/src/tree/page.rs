//! A tree as a self-contained page with an inline SVG, without scripts or anything to fetch.

use lockstep::ops::tree::Node;

use super::Drawn;
use super::shape::Shape;
use crate::report;

/// Width of the token axis, height of a line, and margins, in pixels.
const WIDTH: f64 = 960.0;
const LINE: f64 = 22.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 34.0;

/// Renders the page.
pub(super) fn html(drawn: &Drawn) -> String {
    let title = format!("prefix tree of group {}", drawn.group);
    let head = report::head(&title, "", "Prefix tree", &drawn.head().replace('\n', "<br>"));
    format!(
        "{head}<p>From left to right: tokens of the responses. A line is a stretch that the same responses \
         share, as thick as they are many and coloured by its value V, the mean reward of the responses that \
         pass (red: the group's smallest reward, green: its largest, grey: none has a reward). Point at a \
         line for its token ids.</p>\n<figure>{}</figure>\n</main></body></html>\n",
        svg(&drawn.shape)
    )
}

fn svg(shape: &Shape) -> String {
    let longest = shape.nodes.iter().map(|node| node.to).max().unwrap_or(0).max(1);
    let x = |token: usize| LEFT + WIDTH * token as f64 / longest as f64;
    let rows = rows(shape);
    let lines = rows.iter().copied().fold(0.0, f64::max) + 1.0;
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + LINE * lines + 14.0);
    let y = |number: usize| TOP + LINE * (rows[number] + 0.5);
    let mut out = format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#373c46\">\n"
    );
    for tick in ticks(longest) {
        out += &format!(
            "<path d=\"M{0:.1} {TOP}V{1:.1}\" stroke=\"#eef0f3\"/><text x=\"{0:.1}\" y=\"20\" \
             text-anchor=\"middle\" fill=\"#6b7280\">{tick}</text>\n",
            x(tick),
            height - 10.0
        );
    }
    for (number, node) in shape.nodes.iter().enumerate() {
        let (left, right, own) = (x(node.from), x(node.to), y(number));
        for &child in &node.children {
            out += &format!(
                "<path d=\"M{right:.1} {own:.1}V{:.1}\" stroke=\"#c3c8d1\" fill=\"none\"/>\n",
                y(child)
            );
        }
        let thick = 2.0 + 6.0 * node.passing as f64 / shape.rewards.len().max(1) as f64;
        out += &format!(
            "<path d=\"M{left:.1} {own:.1}H{:.1}\" stroke=\"{}\" stroke-width=\"{thick:.1}\"><title>tokens \
             {}..{}: {}</title></path>\n",
            right.max(left + 3.0),
            colour(node, shape.range),
            node.from,
            node.to,
            shape.ids_text(number)
        );
        let label = if node.children.is_empty() {
            let ends = shape.ends_text(number);
            format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n", right + 8.0, own + 4.0, ends)
        } else {
            let ends = match node.ends.is_empty() {
                true => String::new(),
                false => format!(" · ends: {}", shape.ends_text(number)),
            };
            let (at, up) = (right - 5.0, own - 6.0);
            let text = format!("{} · {}{ends}", shape.value_text(number), node.passing);
            format!("<text x=\"{at:.1}\" y=\"{up:.1}\" text-anchor=\"end\">{text}</text>\n")
        };
        out += &label;
    }
    out + "</svg>"
}

/// The line of each node: leaves are stacked, and a parent sits halfway between its first and last child.
fn rows(shape: &Shape) -> Vec<f64> {
    let (mut rows, mut next) = (vec![0.0; shape.nodes.len()], 0.0);
    // Nodes are in depth-first order.
    for (number, node) in shape.nodes.iter().enumerate() {
        if node.children.is_empty() {
            rows[number] = next;
            next += 1.0;
        }
    }
    for (number, node) in shape.nodes.iter().enumerate().rev() {
        if let (Some(first), Some(last)) = (node.children.first(), node.children.last()) {
            // Keep a single child from hiding under the label.
            rows[number] = (rows[*first] + rows[*last]) / 2.0;
        }
    }
    rows
}

/// About eight ticks at round numbers of tokens.
fn ticks(longest: usize) -> Vec<usize> {
    let rough = (longest / 8).max(1);
    let power = 10usize.pow(rough.ilog10());
    let step = [1, 2, 5, 10].into_iter().map(|k| k * power).find(|step| *step >= rough).unwrap_or(rough);
    (0..=longest / step).map(|k| k * step).collect()
}

/// A colour from red through yellow to green.
fn colour(node: &Node, (low, high): (f32, f32)) -> String {
    if node.value.is_nan() {
        return "#9aa1ad".to_owned();
    }
    let width = f64::from(high) - f64::from(low);
    let part = if width > 0.0 { ((node.value - f64::from(low)) / width).clamp(0.0, 1.0) } else { 0.5 };
    format!("hsl({:.0} 65% 42%)", 130.0 * part)
}
