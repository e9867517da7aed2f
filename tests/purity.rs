//! The pure rooms stay pure: what is decided and built there can be tested without a cluster, a server or a clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms without input, output, clocks and chance.
const ROOMS: [&str; 2] = ["src/core", "src/resources"];
/// What brings one of these in. A room may use the types of k8s-openapi, and of kube and std::net those that only hold data.
const BANNED: [&str; 19] = [
    "kube::Client",
    "kube::client",
    "kube::Api",
    "kube::api::Api",
    "kube::runtime",
    "tokio",
    "mysql_async",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "Instant",
    "rand::",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::process",
];

/// The code of a file outside `#[cfg(test)]`, comments left out; lines keep their numbers.
fn production(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut testing, mut depth, mut begun) = (false, 0_i32, false);
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        if code.trim_start().starts_with("#[cfg(test)]") {
            (testing, depth, begun) = (true, 0, false);
        }
        lines.push(if testing { String::new() } else { code.to_owned() });
        if testing {
            // The item that the attribute stands on ends with its last brace, or with a semicolon before the first one.
            let attribute_only = code.trim() == "#[cfg(test)]";
            depth += i32::try_from(code.matches('{').count()).unwrap();
            depth -= i32::try_from(code.matches('}').count()).unwrap();
            begun |= code.contains('{');
            testing = attribute_only || (begun && depth > 0) || (!begun && !code.contains(';'));
        }
    }
    lines
}

/// `use a::{b, c::{d, e}};` as `a::b`, `a::c::d`, `a::c::e`, each with its line.
fn imports(lines: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let begin = at;
        let first = lines[at].trim_start();
        let first = first.strip_prefix("pub ").unwrap_or(first);
        let first = first.strip_prefix("pub(super) ").unwrap_or(first);
        let first = first.strip_prefix("pub(crate) ").unwrap_or(first);
        if let Some(rest) = first.strip_prefix("use ") {
            let mut statement = rest.to_owned();
            while !statement.contains(';') && at + 1 < lines.len() {
                at += 1;
                statement.push_str(lines[at].trim());
            }
            expand("", statement.trim_end_matches(';'), &mut |path| {
                found.push((begin + 1, path));
            });
        }
        at += 1;
    }
    found
}

fn expand(prefix: &str, tree: &str, found: &mut impl FnMut(String)) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        if !tree.is_empty() {
            found(format!(
                "{prefix}{}",
                tree.split(" as ").next().unwrap_or_default()
            ));
        }
        return;
    };
    let group = group.trim_end().trim_end_matches('}');
    let group = if group.matches('{').count() > group.matches('}').count() {
        format!("{group}}}")
    } else {
        group.to_owned()
    };
    let (mut depth, mut part) = (0, String::new());
    for c in group.chars().chain([',']) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{head}"), &part, found);
                part.clear();
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
}

fn complaints(file: &str, text: &str) -> Vec<String> {
    let lines = production(text);
    let in_code = lines
        .iter()
        .enumerate()
        .flat_map(|(i, line)| BANNED.iter().filter(|b| word(line, b)).map(move |b| (i + 1, *b)));
    let imported = imports(&lines);
    let in_imports = imported
        .iter()
        .flat_map(|(line, path)| BANNED.iter().filter(|b| word(path, b)).map(move |b| (*line, *b)));
    let mut all: Vec<_> = in_code
        .chain(in_imports)
        .map(|(line, what)| format!("{file}:{line}: {what}"))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Whether `what` stands in `line`, and not as a part of a longer name.
fn word(line: &str, what: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(what).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(name);
        let after = !what.ends_with(':') && line[at + what.len()..].chars().next().is_some_and(name);
        !before && !after
    })
}

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A file that is wholly tests is declared under cfg(test) and called so.
        let tests = path
            .file_stem()
            .is_some_and(|n| n == "tests" || n.to_string_lossy().ends_with("_tests"));
        if path.is_dir() && !tests {
            files(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") && !tests {
            all.push(path);
        }
    }
}

#[test]
fn the_pure_rooms_are_pure() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    ROOMS
        .iter()
        .map(|room| root.join(room))
        .filter(|room| room.is_dir())
        .for_each(|room| files(&room, &mut all));
    assert!(all.len() > 8, "only {} files found", all.len());
    let bad: Vec<_> = all
        .iter()
        .flat_map(|path| {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            complaints(&name, &fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(
        bad.is_empty(),
        "not allowed in a pure room; pass in what it yields instead: {bad:#?}"
    );
}

#[test]
fn what_is_banned_is_found() {
    for (text, found) in [
        ("use kube::{Api, ResourceExt};", true),
        (
            "use std::{collections::BTreeMap, time::{Duration,\n    SystemTime}};",
            true,
        ),
        ("fn f() { let now = jiff::Timestamp::now(); }", true),
        ("fn f() { std::env::var(\"X\"); }", true),
        ("pub(super) use tokio::time::timeout;", true),
        ("use std::time::Duration; // not Instant", false),
        ("/// Unlike tokio.\nfn rand_x() {}", false),
        ("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", false),
        ("#[cfg(test)]\nmod tests;\nuse std::fs;", true),
        ("#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse std::fs;", true),
        ("use kube::ResourceExt as _;", false),
    ] {
        assert_eq!(!complaints("x.rs", text).is_empty(), found, "{text}");
    }
}
