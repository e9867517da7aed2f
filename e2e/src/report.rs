//! What a run prints and writes.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How a scenario ended.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "why")]
pub enum Outcome {
    /// As it should.
    Passed,
    /// With an error.
    Failed(String),
    /// It did not run.
    Skipped(String),
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Scenario.
    pub name: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Prints one scenario's line.
pub fn print(line: &Line) {
    let Line {
        name,
        outcome,
        seconds,
    } = line;
    match outcome {
        Outcome::Passed => println!("PASS  {seconds:6.1}s  {name}"),
        Outcome::Failed(why) => println!(
            "FAIL  {seconds:6.1}s  {name}\n      {}",
            why.replace('\n', "\n      ")
        ),
        Outcome::Skipped(why) => println!("SKIP          {name}: {why}"),
    }
}

/// Prints the sum and what took longest.
pub fn print_sum(lines: &[Line], took: Duration) {
    let count = |f: fn(&Outcome) -> bool| lines.iter().filter(|l| f(&l.outcome)).count();
    let mut slow: Vec<_> = lines
        .iter()
        .filter(|l| !matches!(l.outcome, Outcome::Skipped(_)))
        .collect();
    slow.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    println!("\nlongest:");
    for l in slow.iter().take(12) {
        println!("  {:6.1}s  {}", l.seconds, l.name);
    }
    println!(
        "\n{} passed, {} failed, {} skipped in {:.0} s",
        count(|o| *o == Outcome::Passed),
        count(|o| matches!(o, Outcome::Failed(_))),
        count(|o| matches!(o, Outcome::Skipped(_))),
        took.as_secs_f64()
    );
}

/// Writes the lines as JSON.
///
/// # Errors
/// When the file cannot be written.
pub fn write(lines: &[Line], file: &Path) -> Result<()> {
    std::fs::write(file, serde_json::to_string_pretty(lines)?)
        .with_context(|| format!("write {}", file.display()))
}

/// Writes the lines as JUnit's XML, which CI systems read. Folders are made.
///
/// # Errors
/// When the file cannot be written.
pub fn write_junit(lines: &[Line], file: &Path) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let cases: Vec<String> = lines
        .iter()
        .map(|l| {
            let inner = match &l.outcome {
                Outcome::Passed => String::new(),
                Outcome::Failed(why) => format!("<failure message=\"{}\"/>", escape(why)),
                Outcome::Skipped(why) => format!("<skipped message=\"{}\"/>", escape(why)),
            };
            format!(
                "  <testcase name=\"{}\" time=\"{:.3}\">{inner}</testcase>",
                escape(&l.name),
                l.seconds
            )
        })
        .collect();
    let failures = lines
        .iter()
        .filter(|l| matches!(l.outcome, Outcome::Failed(_)))
        .count();
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"e2e\" tests=\"{}\" failures=\"{failures}\">\n{}\n</testsuite>\n",
        lines.len(),
        cases.join("\n")
    );
    std::fs::write(file, xml).with_context(|| format!("write {}", file.display()))
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The checked-in list of scenarios that may be skipped: `name<TAB>reason`.
///
/// # Errors
/// When a line has no reason.
pub fn allowed_skips(text: &str) -> Result<BTreeMap<String, String>> {
    text.lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
        .map(|l| {
            l.split_once('\t')
                .filter(|(_, reason)| !reason.trim().is_empty())
                .map(|(n, r)| (n.to_owned(), r.trim().to_owned()))
                .with_context(|| format!("skips.tsv: no reason in: {l}"))
        })
        .collect()
}

/// Scenarios that were skipped and are not on the list.
pub fn not_allowed<'a>(lines: &'a [Line], allowed: &BTreeMap<String, String>) -> Vec<&'a str> {
    lines
        .iter()
        .filter(|l| matches!(l.outcome, Outcome::Skipped(_)) && !allowed.contains_key(&l.name))
        .map(|l| l.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_needs_a_reason_and_a_place_on_the_list() {
        let allowed = allowed_skips("# why\n\na\tno such nodes\n").unwrap();
        assert!(allowed_skips("a\n").is_err());
        let skip = |n: &str| Line {
            name: n.into(),
            outcome: Outcome::Skipped("x".into()),
            seconds: 0.0,
        };
        assert_eq!(not_allowed(&[skip("a"), skip("b")], &allowed), ["b"]);
    }
}
