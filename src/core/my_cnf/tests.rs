use super::*;

fn parse(s: &str) -> UserConfig {
    UserConfig::parse(s).unwrap()
}

#[test]
fn the_last_of_equal_keys_wins() {
    let c = parse("max_connections=1\nMax-Connections = 2");
    assert_eq!(c.lines().len(), 1);
    assert_eq!(c.lines()[0].to_string(), "max_connections = 2");
}
