//! All scenarios, in their groups.

mod broken;
mod children;
mod deleting;
mod disk;
mod durability;
mod editing;
mod failover;
mod forced;
mod making;
mod map;
mod nodes;
mod operator;
mod packaging;
mod refused;
mod rejoin;
mod replacement;
mod rolling;
mod serving;
mod split;
mod steps;
mod switchover;
mod template;

use crate::scenario::Group;

/// Scenarios that take much longer than the others, and how many seconds: a run begins with them.
pub const LONG: &[(&str, u64)] = &[
    ("disk-full", 240),
    ("crash-recovery-in-peace", 100),
    ("split-half", 60),
    ("pairref-changed", 80),
    ("split-to-serving-pair", 60),
    ("split-back", 90),
    ("split-manual", 60),
    ("split-open-transaction", 120),
    ("split-copy-changed", 90),
    ("split-aborted", 240),
    ("split-source-killed", 300),
    ("split-target-killed", 300),
    ("split-passives-killed", 300),
    ("split-512-in-half", 300),
];

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
        failover::group(),
        switchover::group(),
        rejoin::group(),
        durability::group(),
        disk::group(),
    ];
    all.extend(split::groups());
    all.extend(packaging::groups());
    all.extend(operator::groups());
    all.push(steps::group());
    all.push(nodes::group());
    all.extend(replacement::groups());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_scenarios_that_others_name_exist() {
        let names: BTreeSet<_> = super::all()
            .into_iter()
            .flat_map(|g| g.scenarios.into_iter().map(|s| s.name))
            .collect();
        for line in include_str!("../../../docs/field-scenarios.tsv")
            .lines()
            .filter(|l| !l.starts_with('#'))
        {
            let (field, scenario) = line.split_once('\t').unwrap();
            assert!(
                names.contains(scenario),
                "{field} names {scenario}, which there is not"
            );
        }
        for (long, _) in super::LONG {
            assert!(
                names.contains(long),
                "{long} is said to take long and is not there"
            );
        }
        let skips = crate::report::allowed_skips(include_str!("../../skips.tsv")).unwrap();
        for skip in skips.keys() {
            assert!(
                names.contains(skip.as_str()),
                "skips.tsv names {skip}, which there is not"
            );
        }
    }

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
