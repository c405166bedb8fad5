//! A tree for a terminal: a line for each stretch of tokens.

use super::shape::Shape;

/// Token range, value, number of responses that pass, first ids, responses that end.
pub(super) fn draw(shape: &Shape) -> String {
    let mut out = String::new();
    // Node, what stands before its children's lines, what stands before its own.
    let mut waiting = vec![(0, String::new(), String::new())];
    while let Some((number, indent, own)) = waiting.pop() {
        let Some(node) = shape.nodes.get(number) else { continue };
        out += &format!("{own}{}..{}  {}", node.from, node.to, node.value_text());
        if node.passing > 1 {
            out += &format!("  n {}", node.passing);
        }
        if node.to > node.from {
            out += &format!("  {}", node.ids_text());
        }
        if !node.ends.is_empty() {
            out += &format!("  ends: {}", node.ends_text());
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
