//! A table of text, as HTML or Markdown.

use super::escape;

/// A table.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(super) fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// An empty table that compares the first with the last `part` steps.
    pub(super) fn of_ends(part: usize) -> Self {
        Self::new([String::new(), format!("first {part} RL step(s)"), format!("last {part}")])
    }

    /// The table as HTML.
    pub(super) fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| -> String {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        let rows: String = self.rows.iter().map(|row| cells("td", row)).collect();
        format!("<table>{}{rows}</table>\n", cells("th", &self.head))
    }

    /// The table as Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let escaped =
            |row: &Vec<String>| -> Vec<String> { row.iter().map(|c| c.replace('|', "\\|")).collect() };
        let rows: String = self.rows.iter().map(|row| line(&escaped(row))).collect();
        format!("{}|{}\n{rows}", line(&escaped(&self.head)), "---|".repeat(self.head.len()))
    }
}
