//! Which statements of a user are admitted: those that only add a table or an index, within the database that is chosen.

use super::{
    Object,
    lexer::{Kind, Refusal, Token},
};

/// Longest name of a table or an index in MySQL, in characters.
const MAX_NAME: usize = 64;

/// What is admitted at all; the end of the message of every other statement.
const ADMITTED: &str =
    "only CREATE TABLE and CREATE [UNIQUE|FULLTEXT|SPATIAL] INDEX are admitted here: take it out";

/// A statement that is admitted.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) object: Object,
    /// Without comments and needless white space.
    pub(super) sql: String,
}

/// Reads along the tokens of one statement.
struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

/// Admits a statement, or says why not. `tokens` has at least one.
pub(super) fn admit(tokens: &[Token<'_>]) -> Result<Admitted, Refusal> {
    let mut c = Cursor { tokens, at: 0 };
    if c.take("DELIMITER") {
        return Err(
            c.refuse("DELIMITER is a command of the mysql client and no SQL: end each statement with `;`")
        );
    }
    if !c.take("CREATE") {
        let word = c.word();
        return Err(c.refuse(format!("{word} is not admitted, {ADMITTED}")));
    }
    if c.take("TABLE") {
        return table(c);
    }
    let kind = c.at;
    c.take_any(&["UNIQUE", "FULLTEXT", "SPATIAL"]);
    if c.take("INDEX") {
        return index(c);
    }
    c.at = kind;
    let word = c.word();
    Err(c.refuse(format!("CREATE {word} is not admitted, {ADMITTED}")))
}

fn table(mut c: Cursor<'_, '_>) -> Result<Admitted, Refusal> {
    if c.take("IF") && !(c.take("NOT") && c.take("EXISTS")) {
        return Err(c.refuse("IF must be followed by NOT EXISTS"));
    }
    let table = c.name("table")?;
    let body = c.at;
    if !c.take_symbol('(') {
        return Err(c.refuse(format!(
            "the name of table `{table}` must be followed by `(` and its columns: tables made from other tables (LIKE, AS, SELECT) are not admitted, write the columns out"
        )));
    }
    if c.take("LIKE") {
        return Err(c.refuse("CREATE TABLE … LIKE is not admitted: write the columns out"));
    }
    c.at = body;
    check_body(&c)?;
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} {}",
        super::quote(&table),
        render(c.rest())
    );
    Ok(Admitted {
        object: Object::Table { table },
        sql,
    })
}

fn index(mut c: Cursor<'_, '_>) -> Result<Admitted, Refusal> {
    let index = c.name("index")?;
    while c.peek().is_some_and(|t| !t.is("ON")) {
        c.at += 1;
    }
    if !c.take("ON") {
        return Err(c.refuse(format!("index `{index}` has no `ON`: name its table")));
    }
    let table = c.name("table")?;
    if !c.take_symbol('(') {
        return Err(c.refuse(format!(
            "`ON {table}` must be followed by `(` and the columns of the index"
        )));
    }
    balanced(c.tokens)?;
    Ok(Admitted {
        object: Object::Index { table, index },
        sql: render(c.tokens),
    })
}

/// Refuses what reaches beyond the table that is created.
fn check_body(c: &Cursor<'_, '_>) -> Result<(), Refusal> {
    let tokens = c.rest();
    balanced(c.tokens)?;
    let mut depth = 0_i32;
    for (i, t) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(i + n);
        let next_is = |word| next(1).is_some_and(|t| t.is(word));
        let refuse = |what: &str| Err(Refusal::new(t.line, what));
        if t.is_symbol('(') {
            depth += 1;
        } else if t.is_symbol(')') {
            depth -= 1;
        } else if t.is("SELECT")
            || t.is("TABLE")
            || (t.is("VALUES") && next_is("ROW"))
            || (depth == 0 && t.is("AS"))
        {
            return refuse(
                "a table that is filled by a query is not admitted: take the query out, every shard begins empty",
            );
        } else if t.is("FOREIGN") || t.is("REFERENCES") {
            return refuse(
                "foreign keys are not admitted, an object and what it refers to need not be in the same shard: take out FOREIGN KEY and REFERENCES",
            );
        } else if (t.is("DATA") || t.is("INDEX")) && next_is("DIRECTORY") {
            return refuse(
                "DATA DIRECTORY and INDEX DIRECTORY are not admitted, the server has one volume: take them out",
            );
        } else if depth == 0 && t.is("TABLESPACE") {
            return refuse(
                "TABLESPACE is not admitted, a table needs a file of its own so that a dropped shard gives its space back: take it out",
            );
        } else if depth == 0 && t.is("UNION") {
            return refuse("UNION is not admitted, it names tables of other databases: take it out");
        } else if depth == 0 && t.is("START") {
            return refuse("START TRANSACTION is not admitted in CREATE TABLE: take it out");
        } else if depth == 0 && t.is("ENGINE") {
            let engine = next(1).filter(|t| !t.is_symbol('=')).or_else(|| next(2));
            let engine = engine.map_or("", |t| t.text.trim_matches(['`', '\'', '"']));
            if !engine.eq_ignore_ascii_case("InnoDB") {
                return Err(Refusal::new(
                    t.line,
                    format!(
                        "engine `{engine}` is not admitted, it is neither safe in a crash nor copied by CLONE: use InnoDB"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Refuses parentheses that do not match, without which no depth means anything.
fn balanced(tokens: &[Token<'_>]) -> Result<(), Refusal> {
    let mut open = Vec::new();
    for t in tokens {
        if t.is_symbol('(') {
            open.push(t.line);
        } else if t.is_symbol(')') && open.pop().is_none() {
            return Err(Refusal::new(
                t.line,
                "a `)` closes nothing: take it out, or add the `(`",
            ));
        }
    }
    open.pop().map_or(Ok(()), |line| {
        Err(Refusal::new(line, "a `(` is never closed: add the `)`"))
    })
}

/// The tokens as one line: a space where there was white space or a comment, strings and names untouched.
fn render(tokens: &[Token<'_>]) -> String {
    let mut sql = String::new();
    for t in tokens {
        if t.spaced && !sql.is_empty() {
            sql.push(' ');
        }
        sql.push_str(t.text);
    }
    sql
}

impl<'t, 'a> Cursor<'t, 'a> {
    fn peek(&self) -> Option<&'t Token<'a>> {
        self.tokens.get(self.at)
    }
    fn rest(&self) -> &'t [Token<'a>] {
        self.tokens.get(self.at..).unwrap_or_default()
    }
    /// Passes over the keyword `word`, if it is next.
    fn take(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|t| t.is(word));
        self.at += usize::from(found);
        found
    }
    /// Passes over one of the keywords, if one is next.
    fn take_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.take(word))
    }
    fn take_symbol(&mut self, symbol: char) -> bool {
        let found = self.peek().is_some_and(|t| t.is_symbol(symbol));
        self.at += usize::from(found);
        found
    }
    /// The next token for a message; a keyword in capitals.
    fn word(&self) -> String {
        match self.peek() {
            Some(t) if t.kind == Kind::Word => t.text.to_uppercase(),
            Some(t) => format!("`{}`", t.text),
            None => "nothing".to_owned(),
        }
    }
    /// A refusal on the line of the next token, or of the last one at the end.
    fn refuse(&self, what: impl Into<String>) -> Refusal {
        let line = self.peek().or_else(|| self.tokens.last()).map_or(1, |t| t.line);
        Refusal::new(line, what)
    }

    /// The name that is next, of a `what`; not one of another database.
    fn name(&mut self, what: &str) -> Result<String, Refusal> {
        let Some(token) = self.peek() else {
            return Err(self.refuse(format!("the name of the {what} is missing")));
        };
        let name = match token.kind {
            Kind::Word => token.text.to_owned(),
            Kind::Quoted => token
                .text
                .get(1..token.text.len() - 1)
                .unwrap_or_default()
                .replace("``", "`"),
            Kind::Text => {
                let text = token.text;
                return Err(self.refuse(format!(
                    "{text} is a string and no name of a {what}: use backticks"
                )));
            }
            Kind::Symbol => {
                let word = self.word();
                return Err(self.refuse(format!("{word} is no name of a {what}")));
            }
        };
        let length = name.chars().count();
        if length == 0 || length > MAX_NAME {
            return Err(self.refuse(format!(
                "the name of a {what} must have 1 to {MAX_NAME} characters, `{name}` has {length}"
            )));
        }
        self.at += 1;
        if self.peek().is_some_and(|t| t.is_symbol('.')) {
            return Err(self.refuse(format!(
                "`{name}.` names a database: take it out, the statement is run in each shard's own"
            )));
        }
        Ok(name)
    }
}
