//! my.cnf: the lines that a user may give, and the whole file that a server gets.
//!
//! The user's lines stand between the operator's defaults, which they override, and the keys that the operator owns
//! ([`owned::OWNED`]), which are refused with a message that names the key.

pub mod owned;
mod render;
#[cfg(test)]
mod tests;

pub use render::{Server, ServerIds, render};

use std::collections::BTreeMap;
use std::fmt;

/// Keys that mean something when they stand there more than once: every line of them is kept.
const REPEATABLE: &[&str] = &["performance_schema_instrument"];

/// How many problems an error message lists.
const LISTED: usize = 5;

/// One line that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// As the user wrote it, in lower case and with underscores, without `loose_`.
    pub key: String,
    /// Whether a server that does not know the key shall go on (`loose_`).
    pub loose: bool,
    /// The value, without surrounding blanks and without a comment at its end; `None` for a flag.
    pub value: Option<String>,
}

/// The user's lines: checked, of each key the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserConfig {
    lines: Vec<Line>,
}

/// Why a line was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The operator owns the key.
    Owned {
        /// As written.
        key: String,
        /// Completes "owned by the operator: ".
        why: &'static str,
    },
    /// A section other than `[mysqld]`.
    Section(String),
    /// `!include` or `!includedir`.
    Include,
    /// Neither a key nor a comment.
    NotAKey(String),
    /// A character that cannot stand in a value.
    BadValue(String),
}

/// A line that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineError {
    /// Its number, from 1; an override's lines are counted on after the template's.
    pub line: usize,
    /// Why.
    pub problem: Problem,
}

/// All lines that were not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub struct ConfigError {
    /// At least one.
    pub errors: Vec<LineError>,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.problem {
            Problem::Owned { key, why } => {
                write!(f, "`{key}` is owned by the operator: {why}; remove the line")
            }
            Problem::Section(s) => write!(
                f,
                "section `{s}` is not possible; only keys of [mysqld] are, remove the header and the keys of other programs"
            ),
            Problem::Include => f.write_str("`!include` is not possible; write the keys themselves"),
            Problem::NotAKey(s) => write!(f, "`{s}` is not a key; write `key = value`"),
            Problem::BadValue(key) => write!(f, "the value of `{key}` holds a control character; remove it"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`mysql.config` ")?;
        for (i, e) in self.errors.iter().take(LISTED).enumerate() {
            write!(f, "{}{e}", if i == 0 { "" } else { "; " })?;
        }
        match self.errors.len().saturating_sub(LISTED) {
            0 => Ok(()),
            n => write!(f, "; and {n} more"),
        }
    }
}

/// One name for all the ways in which mysqld lets an option be written: lower case, underscores, without `loose_`, without
/// `skip_`, `disable_` and `enable_`, and with today's words for what were master and slave.
pub fn canonical(key: &str) -> String {
    let mut key = key.trim().to_ascii_lowercase().replace('-', "_");
    // Any of them, in any order, until none is left: `loose_skip_…` and worse are understood by mysqld as well.
    while let Some(rest) = ["loose_", "skip_", "disable_", "enable_"]
        .iter()
        .find_map(|p| key.strip_prefix(p))
    {
        key = rest.to_owned();
    }
    let words = key.split('_').map(|w| match w {
        "slave" => "replica",
        "master" => "source",
        w => w,
    });
    words.collect::<Vec<_>>().join("_")
}

impl UserConfig {
    /// Reads the lines of `spec.mysql.config`.
    ///
    /// # Errors
    /// [`ConfigError`] with every line that is not possible.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut errors = vec![];
        let mut lines: Vec<(String, Line)> = vec![];
        for (i, raw) in text.lines().enumerate() {
            match parse_line(raw) {
                Ok(None) => {}
                Ok(Some(line)) => {
                    let name = canonical(&line.key);
                    if !REPEATABLE.contains(&name.as_str()) {
                        lines.retain(|(n, _)| *n != name);
                    }
                    lines.push((name, line));
                }
                Err(problem) => errors.push(LineError { line: i + 1, problem }),
            }
        }
        if errors.is_empty() {
            Ok(Self {
                lines: lines.into_iter().map(|(_, l)| l).collect(),
            })
        } else {
            Err(ConfigError { errors })
        }
    }

    /// The lines in the order in which they stand.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Whether the key is set, however it is written.
    pub fn sets(&self, key: &str) -> bool {
        let name = canonical(key);
        self.lines.iter().any(|l| canonical(&l.key) == name)
    }

    /// What the configuration says, whatever its order, case, dashes and comments: for comparing.
    pub fn normalised(&self) -> BTreeMap<String, Vec<String>> {
        let mut map = BTreeMap::<_, Vec<_>>::new();
        for l in &self.lines {
            map.entry(canonical(&l.key)).or_default().push(l.to_string());
        }
        map
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loose = if self.loose { "loose_" } else { "" };
        match &self.value {
            Some(v) => write!(f, "{loose}{} = {v}", self.key),
            None => write!(f, "{loose}{}", self.key),
        }
    }
}

fn parse_line(raw: &str) -> Result<Option<Line>, Problem> {
    let text = raw.trim();
    if text.is_empty() || text.starts_with(['#', ';']) {
        return Ok(None);
    }
    if text.starts_with('[') {
        let section = without_comment(text).trim_end();
        return match section {
            "[mysqld]" => Ok(None),
            other => Err(Problem::Section(shorten(other))),
        };
    }
    if text.starts_with('!') {
        return Err(Problem::Include);
    }
    let text = without_comment(text);
    let (key, value) = match text.split_once('=') {
        Some((k, v)) => (k.trim(), Some(v.trim())),
        None => (text.trim(), None),
    };
    let name_like = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !key.starts_with(|c: char| c.is_ascii_alphabetic()) || !key.chars().all(name_like) {
        return Err(Problem::NotAKey(shorten(text)));
    }
    let name = canonical(key);
    if let Some(o) = owned::owner_of(&name) {
        return Err(Problem::Owned {
            key: shorten(key),
            why: o.why,
        });
    }
    if value.is_some_and(|v| v.chars().any(char::is_control)) {
        return Err(Problem::BadValue(shorten(key)));
    }
    let plain = key.to_ascii_lowercase().replace('-', "_");
    let (loose, key) = match plain.strip_prefix("loose_") {
        Some(k) => (true, k.to_owned()),
        None => (false, plain),
    };
    Ok(Some(Line {
        key,
        loose,
        value: value.map(str::to_owned),
    }))
}

/// The line up to a `#` that is not inside quotes, as mysqld reads it.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (i, c) in line.char_indices() {
        match (c, quote) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            ('#', None) => return line.get(..i).unwrap_or(line),
            _ => {}
        }
    }
    line
}

fn shorten(s: &str) -> String {
    let mut out: String = s.chars().filter(|c| !c.is_control()).take(60).collect();
    if s.chars().count() > 60 {
        out.push('…');
    }
    out
}
