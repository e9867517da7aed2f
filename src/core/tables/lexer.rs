//! Cuts SQL into statements and tokens, no further than it takes to know what a statement is.
//!
//! It reads as the server does with the `sql_mode` that the operator's sessions have: a backslash escapes within strings,
//! and `"` quotes a string and not a name.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword, a name without quotes, or a number.
    Word,
    /// A name between backticks.
    Quoted,
    /// A string.
    Text,
    /// Any other single character.
    Symbol,
}

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// As it is written, quotes included.
    pub(super) text: &'a str,
    /// Line that it begins on, from 1.
    pub(super) line: usize,
    /// Whether white space or a comment stood before it.
    pub(super) spaced: bool,
}

impl Token<'_> {
    /// Whether this is the keyword `word`, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
    /// Whether this is the character `symbol`.
    pub(super) fn is_symbol(&self, symbol: char) -> bool {
        self.kind == Kind::Symbol && self.text.starts_with(symbol)
    }
}

/// What is wrong, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: usize,
    pub(super) what: String,
}

impl Refusal {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            line,
            what: what.into(),
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

/// The statements of a text, empty ones left out. An error comes with the number of the statement that it is in, from 1.
pub(super) fn statements(text: &str) -> Result<Vec<Vec<Token<'_>>>, (usize, Refusal)> {
    let mut lexer = Lexer {
        text: text.strip_prefix('\u{feff}').unwrap_or(text),
        at: 0,
        line: 1,
    };
    let (mut done, mut current) = (Vec::new(), Vec::new());
    while let Some(token) = lexer.token().map_err(|refusal| (done.len() + 1, refusal))? {
        if !token.is_symbol(';') {
            current.push(token);
        } else if !current.is_empty() {
            done.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        done.push(current);
    }
    Ok(done)
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }
    fn advance(&mut self, bytes: usize) {
        let over = self.rest().get(..bytes).unwrap_or_default();
        self.line += over.bytes().filter(|b| *b == b'\n').count();
        self.at += bytes;
    }
    fn advance_while(&mut self, pred: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.advance(rest.find(|c| !pred(c)).unwrap_or(rest.len()));
    }

    /// Skips white space and comments; says whether there were any.
    fn skip(&mut self) -> Result<bool, Refusal> {
        let from = self.at;
        loop {
            self.advance_while(char::is_whitespace);
            let rest = self.rest();
            let dashes = rest
                .strip_prefix("--")
                .is_some_and(|r| r.chars().next().is_none_or(|c| c <= ' '));
            if dashes || rest.starts_with('#') {
                self.advance_while(|c| c != '\n');
            } else if rest.starts_with("/*!") || rest.starts_with("/*M!") {
                return Err(Refusal::new(
                    self.line,
                    "a comment with `!` is run by the server: write what is in it as plain SQL, or make it an ordinary comment",
                ));
            } else if let Some(body) = rest.strip_prefix("/*") {
                let end = body.find("*/").ok_or_else(|| {
                    Refusal::new(self.line, "the comment that begins here has no end: add `*/`")
                })?;
                self.advance(end + 4);
            } else {
                return Ok(self.at > from);
            }
        }
    }

    /// The next token, or `None` at the end.
    fn token(&mut self) -> Result<Option<Token<'a>>, Refusal> {
        let spaced = self.skip()?;
        let (from, line) = (self.at, self.line);
        let Some(first) = self.peek() else { return Ok(None) };
        let kind = match first {
            '`' => {
                self.quoted('`', false)?;
                Kind::Quoted
            }
            '\'' | '"' => {
                self.quoted(first, true)?;
                Kind::Text
            }
            c if is_word(c) => {
                self.advance_while(is_word);
                Kind::Word
            }
            c => {
                self.advance(c.len_utf8());
                Kind::Symbol
            }
        };
        let text = self.text.get(from..self.at).unwrap_or_default();
        Ok(Some(Token {
            kind,
            text,
            line,
            spaced,
        }))
    }

    /// Passes over something between `quote`s, in which two of them stand for one.
    fn quoted(&mut self, quote: char, escapes: bool) -> Result<(), Refusal> {
        let line = self.line;
        self.advance(1);
        while let Some(c) = self.peek() {
            self.advance(c.len_utf8());
            if c == '\\' && escapes {
                if let Some(escaped) = self.peek() {
                    self.advance(escaped.len_utf8());
                }
            } else if c == quote {
                if self.peek() != Some(quote) {
                    return Ok(());
                }
                self.advance(1);
            }
        }
        Err(Refusal::new(
            line,
            format!("what begins here with {quote} has no end: add the closing {quote}"),
        ))
    }
}

/// Characters of names without quotes.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<&str>> {
        statements(text)
            .unwrap()
            .into_iter()
            .map(|s| s.into_iter().map(|t| t.text).collect())
            .collect()
    }

    #[test]
    fn a_semicolon_in_a_string_a_name_or_a_comment_ends_nothing() {
        let text = "CREATE 'a;''b\\';' /* ; */ `x;``y` -- ;\n z; # ;\n;; next";
        assert_eq!(
            words(text),
            [vec!["CREATE", r"'a;''b\';'", "`x;``y`", "z"], vec!["next"]]
        );
    }

    #[test]
    fn dashes_begin_a_comment_only_before_white_space() {
        assert_eq!(words("1--1\n2 --\n3"), [["1", "-", "-", "1", "2", "3"]]);
    }

    #[test]
    fn lines_are_counted_within_comments_and_strings() {
        let all = statements("/* a\n b */ 'c\nd'\ne;\nf").unwrap();
        assert_eq!(
            all.iter().flatten().map(|t| t.line).collect::<Vec<_>>(),
            [2, 4, 5]
        );
    }

    #[test]
    fn what_has_no_end_is_named_where_it_begins() {
        for (text, number, line, what) in [
            ("a;\n'b\n", 2, 2, "closing '"),
            ("a\n;b;`c", 3, 2, "closing `"),
            ("/* a", 1, 1, "*/"),
            ("a;\n\n/*!40101 b */", 2, 3, "run by the server"),
            ("/*M! a */", 1, 1, "run by the server"),
        ] {
            let (n, refusal) = statements(text).unwrap_err();
            assert_eq!((n, refusal.line), (number, line), "{text}");
            assert!(refusal.what.contains(what), "{text}: {}", refusal.what);
        }
    }
}
