//! Definitions, without what may differ between servers that hold the same.

use crate::mysql::seed::without_fence;

/// A table's definition without its AUTO_INCREMENT counter, which each server counts on by itself.
fn table(create: &str) -> String {
    // The last line begins the options; before it, names and comments may hold anything.
    let Some(at) = create.rfind("\n) ENGINE=") else {
        return create.to_owned();
    };
    let (body, options) = create.split_at(at);
    // The counter is the first option behind the engine.
    let Some((engine, rest)) = options.split_once(" AUTO_INCREMENT=") else {
        return create.to_owned();
    };
    if engine.contains('\'') || engine.trim_start_matches("\n) ENGINE=").contains(' ') {
        return create.to_owned();
    }
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{body}{engine}{rest}")
}

/// How two definitions of a table differ, if they do.
pub(super) fn tables_differ(ours: &str, theirs: &str) -> Option<String> {
    differ(&table(ours), &table(theirs))
}

/// How two definitions of a database differ, if they do.
pub(super) fn databases_differ(ours: &str, theirs: &str) -> Option<String> {
    differ(&without_fence(ours), &without_fence(theirs))
}

fn differ(ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let mut lines = (ours.lines(), theirs.lines());
    loop {
        match (lines.0.next(), lines.1.next()) {
            (None, None) => return Some("the definitions differ in white space".into()),
            (a, b) if a == b => {}
            (a, b) => {
                let show = |l: Option<&str>| l.unwrap_or("(nothing)").trim().trim_end_matches(',').to_owned();
                return Some(format!("defined as `{}`, not as `{}`", show(b), show(a)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "CREATE TABLE `t` (\n  `a` int NOT NULL COMMENT 'x\n) ENGINE=y AUTO_INCREMENT=3'\n) ENGINE=InnoDB AUTO_INCREMENT=12 DEFAULT CHARSET=utf8mb4 COMMENT='z AUTO_INCREMENT=5'";

    #[test]
    fn only_the_counter_is_passed_over() {
        assert_eq!(tables_differ(T, &T.replace("AUTO_INCREMENT=12 ", "")), None);
        assert_eq!(tables_differ(T, &T.replace("=12", "=13")), None);
        assert!(tables_differ(T, &T.replace("=5'", "=6'")).is_some());
        assert!(tables_differ(T, &T.replace("=3'", "=4'")).is_some());
        let said = tables_differ(T, &T.replace("`a` int", "`a` bigint")).unwrap();
        assert!(said.contains("bigint"), "{said}");
    }

    #[test]
    fn a_fence_is_no_difference() {
        let a = "CREATE DATABASE `d` /*!40100 DEFAULT CHARACTER SET utf8mb4 */";
        assert_eq!(databases_differ(a, &format!("{a} /* READ ONLY = 1 */")), None);
        assert!(databases_differ(a, &a.replace("utf8mb4", "latin1")).is_some());
    }
}
