//! All scenarios, in their groups.

mod broken;
mod children;
mod deleting;
mod editing;
mod making;
mod map;
mod operator;
mod packaging;
mod refused;
mod serving;
mod template;

use crate::scenario::Group;

/// Every group, in the order in which they are listed.
pub fn all() -> Vec<Group> {
    let mut all = vec![
        serving::group(),
        editing::group(),
        map::group(),
        children::group(),
        template::group(),
        refused::group(),
        broken::group(),
        making::group(),
        deleting::group(),
    ];
    all.extend(packaging::groups());
    all.extend(operator::groups());
    all
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
                let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                assert!(s.name.len() <= 45 && s.name.bytes().all(fits), "{}", s.name);
                assert!(seen.insert(s.name), "{} is there twice", s.name);
            }
        }
    }
}
