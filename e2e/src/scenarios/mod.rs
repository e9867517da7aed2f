//! All scenarios, in their groups.

mod editing;
mod map;
mod serving;

use crate::scenario::Group;

/// Every group, in the order in which they are listed.
pub fn all() -> Vec<Group> {
    vec![serving::group(), editing::group(), map::group()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fit_a_namespace() {
        let mut seen = BTreeSet::new();
        for g in super::all() {
            assert!(g.name.len() <= 40);
            for s in g.scenarios {
                assert!(
                    s.name.len() <= 45
                        && s.name
                            .bytes()
                            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                    "{}",
                    s.name
                );
                assert!(seen.insert(s.name), "{} is there twice", s.name);
            }
        }
    }
}
