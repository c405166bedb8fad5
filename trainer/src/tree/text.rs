//! A tree as terminal text: one line per node.

use super::shape::Shape;

/// Draws the tree; each line has token range, value, number of responses, first token ids, and the responses
/// that end there.
pub(super) fn draw(shape: &Shape) -> String {
    let mut out = String::new();
    // Node, prefix of its children's lines, prefix of its own line.
    let mut waiting = vec![(0, String::new(), String::new())];
    while let Some((number, indent, own)) = waiting.pop() {
        let Some(node) = shape.nodes.get(number) else { continue };
        out += &format!("{own}{}..{}  {}", node.from, node.to, shape.value_text(number));
        if node.passing > 1 {
            out += &format!("  n {}", node.passing);
        }
        if node.to > node.from {
            out += &format!("  {}", shape.ids_text(number));
        }
        if !node.ends.is_empty() {
            out += &format!("  ends: {}", shape.ends_text(number));
        }
        out.push('\n');
        for (k, child) in node.children.iter().enumerate().rev() {
            let (fork, below) =
                if k + 1 == node.children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            waiting.push((*child, format!("{indent}{below}"), format!("{indent}{fork}")));
        }
    }
    out
}
