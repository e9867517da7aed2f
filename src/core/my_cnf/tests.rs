use super::owned::{DEFAULTS, OWNED, owner_of};
use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn parse(s: &str) -> UserConfig {
    UserConfig::parse(s).unwrap()
}
fn taken(s: &str) -> Vec<String> {
    parse(s).lines().iter().map(ToString::to_string).collect()
}
fn refused(s: &str) -> String {
    UserConfig::parse(s).unwrap_err().to_string()
}
fn server(ordinal: usize) -> Server<'static> {
    let ids = ServerIds::new("shop", "main", "main-p0");
    Server {
        ordinal,
        server_id: ids.of(ordinal),
        host: ["main-p0-0.main-p0.shop.svc", "main-p0-1.main-p0.shop.svc"][ordinal],
        memory: Some(2 << 30),
    }
}
fn line_of<'a>(file: &'a str, key: &str) -> Vec<&'a str> {
    let name = canonical(key);
    file.lines()
        .filter(|l| canonical(l.split('=').next().unwrap()) == name)
        .collect()
}

#[test]
fn lines_are_read_as_mysqld_reads_them() {
    let text = "
# a comment
; another
[mysqld]   # the only section
  Max-Connections = 200   # for the shop
sort_buffer_size=1M
innodb_print_all_deadlocks
loose-some_plugin.option = 'a # b'
\tgeneral_log_file\t=\t\"x#y\"# z
sql_mode =
";
    assert_eq!(
        taken(text),
        [
            "max_connections = 200",
            "sort_buffer_size = 1M",
            "innodb_print_all_deadlocks",
            "loose_some_plugin.option = 'a # b'",
            "general_log_file = \"x#y\"",
            "sql_mode = ",
        ]
    );
    assert!(taken("").is_empty() && taken("\n\n").is_empty());
}

#[test]
fn the_last_of_equal_keys_wins_however_it_is_written() {
    assert_eq!(
        taken("max_connections=1\nMax-Connections = 2"),
        ["max_connections = 2"]
    );
    assert_eq!(
        taken("slave_net_timeout=1\nreplica_net_timeout=2"),
        ["replica_net_timeout = 2"]
    );
    assert_eq!(taken("general_log=ON\nskip-general-log"), ["skip_general_log"]);
    assert_eq!(
        taken("performance_schema_instrument='a=ON'\nperformance_schema_instrument='b=ON'").len(),
        2
    );
}

#[test]
fn owned_keys_are_refused_however_they_are_written() {
    for key in [
        "server_id",
        "server-id",
        "SERVER_ID",
        "super_read_only",
        "loose_super_read_only",
        "skip-super-read-only",
        "disable_super_read_only",
        "loose-loose-super-read-only",
        "enable_event_scheduler",
        "skip_log_bin",
        "log-bin",
        "log_slave_updates",
        "skip-slave-start",
        "slave_skip_errors",
        "replicate-do-db",
        "maximum_offline_mode",
        "rpl_semi_sync_master_timeout",
        "rpl_semi_sync_source_enabled",
        "relay_log_space_limit",
        "relay-log",
        "sync_master_info",
        "skip-grant-tables",
        "skip_ssl",
        "ssl_ca",
        "tls_ciphersuites",
        "admin_address",
        "mysqlx_port",
        "init_slave",
        "plugin-load",
        "clone_valid_donor_list",
        "binlog_row_value_options",
        "performance_schema",
        "lower_case_table_names",
        "skip-networking",
        "skip-name-resolve",
        "initialize",
        "persisted_globals_load",
        "partial_revokes",
        "auto_increment_offset",
        "user",
        "datadir",
        "log_error",
    ] {
        for line in [key.to_owned(), format!("{key} = 1"), format!("  {key}=x")] {
            let e = refused(&line);
            assert!(
                e.contains(&format!("line 1: `{key}` is owned by the operator: ")),
                "{line}: {e}"
            );
        }
    }
}

#[test]
fn keys_like_owned_ones_are_taken() {
    for key in [
        "log_bin_trust_function_creators",
        "binlog_rows_query_log_events",
        "log_error_verbosity",
        "max_binlog_size",
        "max_relay_log_size",
        "clone_max_data_bandwidth",
        "replica_net_timeout",
        "replica_parallel_workers",
        "performance_schema_digests_size",
        "require_secure_transport",
        "innodb_buffer_pool_size",
        "binlog_expire_logs_seconds",
        "user_cache",
        "innodb_force_recovery",
        "transaction_isolation",
        "port_open_timeout",
        "versioned",
        "sql_mode",
    ] {
        assert_eq!(taken(&format!("{key} = 1")).len(), 1, "{key}");
    }
}

#[test]
fn what_is_wrong_is_said_with_line_key_and_remedy() {
    insta::assert_snapshot!(refused(
        "max_connections = 5\nserver-id = 7\n[client]\n!includedir /etc/my.d\n= 5\nmax connections = 5\n"
    ));
    let many = refused(&"server_id = 1\n".repeat(8));
    assert!(many.ends_with("; and 3 more"), "{many}");
    assert!(many.len() < 1024, "fits a condition's message");
    // A bare carriage return or a byte that ends strings could smuggle in a line.
    assert!(refused("sort_buffer_size = 1\rserver_id = 1").contains("control character"));
    assert!(refused("sort_buffer_size = 1\0").contains("control character"));
}

#[test]
fn normalised_is_blind_to_order_case_and_comments() {
    let a = parse("max_connections=5\nsort-buffer-size = 1M # x\n");
    let b = parse("[mysqld]\nSORT_BUFFER_SIZE=1M\n\nmax_connections =5\n");
    assert_eq!(a.normalised(), b.normalised());
    assert_ne!(
        a.normalised(),
        parse("max_connections=6\nsort_buffer_size=1M").normalised()
    );
}

#[test]
fn the_whole_file_of_both_servers() {
    let user = parse("max_connections = 200\nreplica-net-timeout = 20\nloose_my_plugin = 1\n");
    insta::assert_snapshot!(render(&server(0), &user));
    let (a, b) = (render(&server(0), &user), render(&server(1), &user));
    let differing: Vec<_> = a
        .lines()
        .zip(b.lines())
        .filter(|(a, b)| a != b)
        .map(|(a, _)| a)
        .collect();
    assert_eq!(differing.len(), 3, "{differing:?}");
}

#[test]
fn a_default_gives_way_to_the_users_line() {
    let file = render(
        &server(0),
        &parse("slave-net-timeout = 20\ninnodb_buffer_pool_size=1G\nskip-require-secure-transport"),
    );
    assert_eq!(line_of(&file, "replica_net_timeout"), ["slave_net_timeout = 20"]);
    assert_eq!(
        line_of(&file, "innodb_buffer_pool_size"),
        ["innodb_buffer_pool_size = 1G"]
    );
    assert_eq!(
        line_of(&file, "require_secure_transport"),
        ["skip_require_secure_transport"]
    );
}

#[test]
fn the_buffer_pool_follows_the_memory() {
    let pool = |memory| {
        let file = render(&Server { memory, ..server(0) }, &UserConfig::default());
        line_of(&file, "innodb_buffer_pool_size")[0].to_owned()
    };
    assert_eq!(pool(None), "innodb_buffer_pool_size = 128M");
    assert_eq!(pool(Some(64 << 20)), "innodb_buffer_pool_size = 64M");
    assert_eq!(pool(Some(1000 << 20)), "innodb_buffer_pool_size = 480M");
    assert_eq!(pool(Some(64 << 30)), "innodb_buffer_pool_size = 32768M");
}

#[test]
fn server_ids_are_stable_and_differ() {
    let id = |pair: &str, ordinal| ServerIds::new("shop", "main", pair).of(ordinal);
    assert_eq!((id("main-p0", 0), id("main-p0", 1)), (GOLDEN, GOLDEN + 1));
    let mut all: Vec<_> = (0..1000)
        .flat_map(|n| [id(&format!("p{n}"), 0), id(&format!("p{n}"), 1)])
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2000);
    assert!(!all.contains(&0));
}
/// A change of this number would give running servers another identity.
const GOLDEN: u32 = 1_110_616_125;

#[test]
fn the_table_owns_what_it_writes_and_the_defaults_are_free() {
    for o in OWNED {
        for (key, _) in o.writes {
            let owner = owner_of(&canonical(key)).unwrap_or_else(|| panic!("{key} is written and not owned"));
            assert!(std::ptr::eq(owner, o), "{key} is owned by another entry");
        }
        for key in o.keys {
            assert_eq!(canonical(key), *key, "must be canonical");
            let at = owner_of(key.trim_end_matches('*')).map(|owner| std::ptr::eq(owner, o));
            assert_eq!(at, Some(true), "{key} stands twice");
        }
    }
    for (key, _) in DEFAULTS {
        assert!(
            owner_of(&canonical(key)).is_none(),
            "{key} is a default and owned"
        );
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_no_owned_key_gets_into_the_file(text in "(([a-z_#;=!' \\[\\]\r-]{0,12}|super_read_only|server-id|skip_|loose-|log_bin|=| ){0,4}\n){0,6}") {
        if let Ok(user) = UserConfig::parse(&text) {
            for l in user.lines() {
                prop_assert!(owner_of(&canonical(&l.key)).is_none(), "{l}");
            }
            let file = render(&server(0), &user);
            prop_assert_eq!(line_of(&file, "super_read_only"), ["super_read_only = ON"]);
            prop_assert_eq!(line_of(&file, "server_id").len(), 1);
            // What was taken is read again as the same.
            let again: Vec<_> = user.lines().iter().map(|l| format!("{l}\n")).collect();
            prop_assert_eq!(UserConfig::parse(&again.concat()).unwrap(), user);
        }
    }
}

/// `docs/mysql-configuration.md` holds exactly this table.
#[test]
fn the_documentation_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mysql-configuration.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- owned keys: begin -->\n", "<!-- owned keys: end -->");
    let part = |doc: &str| {
        let from = doc.find(begin).unwrap() + begin.len();
        (from, doc[from..].find(end).unwrap() + from)
    };
    let (from, to) = part(&doc);
    let want = format!("{}\n", documented());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{}{want}{}", &doc[..from], &doc[to..])).unwrap();
    } else {
        assert_eq!(doc[from..to], want, "run the tests with UPDATE_DOCS=1");
    }
}

fn documented() -> String {
    let code = |s: String| format!("`{s}`");
    let mut out = String::from("| Keys | What is written | Why |\n| --- | --- | --- |\n");
    for o in OWNED {
        let keys: Vec<_> = o.keys.iter().map(|k| code((*k).to_owned())).collect();
        let writes: Vec<_> = o.writes.iter().map(|(k, v)| code(format!("{k} = {v}"))).collect();
        let writes = if writes.is_empty() {
            "nothing".to_owned()
        } else {
            writes.join("<br>")
        };
        writeln!(out, "| {} | {writes} | {} |", keys.join(", "), o.why).unwrap();
    }
    out.push_str("\n| Default | Value |\n| --- | --- |\n| `innodb_buffer_pool_size` | half of the container's memory (its limit, else its request), `128M` without either |\n");
    for (k, v) in DEFAULTS {
        writeln!(out, "| `{k}` | `{v}` |").unwrap();
    }
    out
}
