//! The keys of my.cnf that the operator owns: one table from which the refusals, the written file and
//! `docs/mysql-configuration.md` all come, so that they cannot differ.

/// Some keys that belong together, what is written for them, and why nobody else may set them.
#[derive(Debug)]
pub struct Owned {
    /// Canonical names (see [`super::canonical`]); a `*` at the end stands for any ending.
    pub keys: &'static [&'static str],
    /// Lines written, in order; `{server_id}`, `{host}` and `{offset}` are filled in. Empty where the server's default is
    /// right and only must stay so.
    pub writes: &'static [(&'static str, &'static str)],
    /// Why, for people: completes "… is owned by the operator: ".
    pub why: &'static str,
}

/// What is written ahead of the user's lines: production-sane, works in a small container, and is the user's to change.
/// `innodb_buffer_pool_size` is not here, it follows the memory of the container.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("binlog_expire_logs_seconds", "259200"),
    ("binlog_transaction_dependency_history_size", "25000"),
    ("innodb_log_buffer_size", "16M"),
    ("innodb_redo_log_capacity", "128M"),
    ("max_connect_errors", "4294967295"),
    ("max_connections", "500"),
    ("performance_schema_digests_size", "1000"),
    ("performance_schema_error_size", "0"),
    ("performance_schema_events_stages_history_long_size", "0"),
    ("performance_schema_events_statements_history_long_size", "0"),
    ("performance_schema_events_transactions_history_long_size", "0"),
    ("performance_schema_events_waits_history_long_size", "0"),
    ("performance_schema_max_digest_length", "256"),
    ("performance_schema_max_mutex_instances", "1000"),
    ("performance_schema_max_sql_text_length", "256"),
    ("performance_schema_max_table_handles", "1000"),
    ("performance_schema_max_table_instances", "1000"),
    ("replica_net_timeout", "8"),
    ("replica_parallel_workers", "32"),
    ("require_secure_transport", "OFF"),
    ("table_definition_cache", "4000"),
    ("table_open_cache", "4000"),
    ("temptable_max_ram", "64M"),
];

/// The table. Written after the user's lines, so that the last word is the operator's even for a name it did not know.
pub static OWNED: &[Owned] = &[
    // Who and where the server is.
    Owned {
        keys: &["server_id*", "report_*"],
        writes: &[
            ("server_id", "{server_id}"),
            ("report_host", "{host}"),
            ("report_port", "3306"),
        ],
        why: "each server of the fleet has its own, made from the names of namespace, cluster and pair",
    },
    Owned {
        keys: &[
            "bind_address",
            "port",
            "networking",
            "admin_*",
            "create_admin_listener_thread",
            "mysqlx*",
        ],
        writes: &[("bind_address", "*"), ("port", "3306"), ("mysqlx", "OFF")],
        why: "Services, probes and the NetworkPolicy lead to port 3306 and to no other",
    },
    Owned {
        keys: &["name_resolve"],
        writes: &[("skip_name_resolve", "ON")],
        why: "a slow name server must not hold up a login, least of all the operator's",
    },
    Owned {
        keys: &[
            "datadir",
            "socket",
            "pid_file",
            "tmpdir",
            "replica_load_tmpdir",
            "innodb_tmpdir",
            "innodb_data_home_dir",
            "innodb_log_group_home_dir",
            "innodb_undo_directory",
            "innodb_doublewrite_dir",
            "innodb_directories",
            "innodb_temp_tablespaces_dir",
            "basedir",
            "plugin_dir",
            "chroot",
        ],
        writes: &[
            ("datadir", "/var/lib/mysql/data"),
            ("socket", "/run/mysqld/mysqld.sock"),
            ("pid_file", "mysqld.pid"),
            ("tmpdir", "/tmp"),
        ],
        why: "the volume is mounted there, and everything else of the container is read-only",
    },
    Owned {
        keys: &["user", "daemonize", "log_error", "no_monitor", "gdb", "console"],
        writes: &[],
        why: "mysqld is the container's first process, runs as user 999 and logs to its standard error",
    },
    Owned {
        keys: &[
            "initialize*",
            "bootstrap",
            "help",
            "verbose",
            "version",
            "validate_config",
            "print_defaults",
            "no_defaults",
            "defaults_*",
            "keyring_migration_*",
            "tc_heuristic_recover",
        ],
        writes: &[],
        why: "it makes mysqld do something else than serve",
    },
    Owned {
        keys: &["persisted_globals_load"],
        writes: &[("persisted_globals_load", "OFF")],
        why: "values kept by SET PERSIST would override this file, the write fence among them",
    },
    // Boots fenced.
    Owned {
        keys: &[
            "read_only",
            "super_read_only",
            "offline_mode",
            "innodb_read_only",
            "autocommit",
            "transaction_read_only",
        ],
        writes: &[
            ("read_only", "ON"),
            ("super_read_only", "ON"),
            ("offline_mode", "OFF"),
        ],
        why: "a server boots closed, and only a recorded decision opens it: never two writers in a pair",
    },
    Owned {
        keys: &["replica_start"],
        writes: &[("skip_replica_start", "ON")],
        why: "a server that comes back follows only after its transactions were compared",
    },
    Owned {
        keys: &["event_scheduler"],
        writes: &[("event_scheduler", "OFF")],
        why: "events write by themselves, also where nobody should",
    },
    Owned {
        keys: &["init_file", "init_replica"],
        writes: &[("init_file", "/etc/shardwright/accounts.sql")],
        why: "it sets up the operator's own account at each boot",
    },
    // Replication.
    Owned {
        keys: &["gtid_mode", "enforce_gtid_consistency", "log_replica_updates"],
        writes: &[
            ("gtid_mode", "ON"),
            ("enforce_gtid_consistency", "ON"),
            ("log_replica_updates", "ON"),
        ],
        why: "what a server has and lacks is told by its GTIDs",
    },
    Owned {
        // binlog_format is deprecated and left to its default, ROW: writing it would only make a warning.
        keys: &[
            "log_bin",
            "log_bin_index",
            "binlog_format",
            "binlog_row_*",
            "binlog_do_db",
            "binlog_ignore_db",
            "binlog_error_action",
        ],
        writes: &[
            ("log_bin", "binlog"),
            ("binlog_row_image", "FULL"),
            ("binlog_row_metadata", "FULL"),
            ("binlog_error_action", "ABORT_SERVER"),
        ],
        why: "the other server and every migration live by a complete binary log",
    },
    Owned {
        keys: &["relay_log*", "sync_relay_log*", "sync_source_info"],
        writes: &[
            ("relay_log", "relay"),
            ("relay_log_recovery", "OFF"),
            ("sync_relay_log", "1"),
        ],
        why: "an acknowledged transaction may be in the relay log only, and must survive a restart there",
    },
    Owned {
        keys: &[
            "sync_binlog",
            "innodb_flush_log_at_trx_commit",
            "innodb_doublewrite",
            "binlog_order_commits",
        ],
        writes: &[
            ("sync_binlog", "1"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
        ],
        why: "a commit that was answered must survive a crash",
    },
    Owned {
        keys: &["auto_increment_*"],
        writes: &[
            ("auto_increment_increment", "2"),
            ("auto_increment_offset", "{offset}"),
        ],
        why: "the two servers of a pair hand out different numbers",
    },
    Owned {
        keys: &[
            "replicate_*",
            "replica_skip_errors",
            "replica_exec_mode",
            "replica_preserve_commit_order",
            "replica_parallel_type",
        ],
        writes: &[("replica_preserve_commit_order", "ON")],
        why: "both servers of a pair hold the same, in the same order; an error is an error",
    },
    Owned {
        keys: &["group_replication*"],
        writes: &[],
        why: "who is active is decided by the operator",
    },
    Owned {
        keys: &["rpl_semi_sync_*"],
        writes: &[
            ("loose_rpl_semi_sync_replica_enabled", "ON"),
            ("loose_rpl_semi_sync_source_enabled", "OFF"),
            ("loose_rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
            ("loose_rpl_semi_sync_source_timeout", "4294967295"),
            ("loose_rpl_semi_sync_source_wait_no_replica", "ON"),
        ],
        why: "the operator turns the waiting for acknowledgements on, and off only after that was recorded",
    },
    Owned {
        keys: &["plugin_load*", "early_plugin_load"],
        writes: &[
            ("plugin_load_add", "mysql_clone.so"),
            ("plugin_load_add", "semisync_source.so"),
            ("plugin_load_add", "semisync_replica.so"),
        ],
        why: "a second list of plugins replaces the first, and the operator needs its own",
    },
    Owned {
        keys: &[
            "clone_block_ddl",
            "clone_ddl_timeout",
            "clone_donor_timeout_after_network_failure",
            "clone_ssl_*",
            "clone_valid_donor_list",
        ],
        writes: &[("loose_clone_ddl_timeout", "60")],
        why: "the operator says from where a server is cloned; how fast is yours",
    },
    Owned {
        keys: &["performance_schema"],
        writes: &[("performance_schema", "ON")],
        why: "it tells who holds a lock and how a copy goes; its sizes are yours",
    },
    // Accounts and what may be read and written.
    Owned {
        keys: &["ssl*", "tls_*", "auto_generate_certs"],
        writes: &[
            ("ssl_ca", "/etc/shardwright/tls/ca.crt"),
            ("ssl_cert", "/etc/shardwright/tls/tls.crt"),
            ("ssl_key", "/etc/shardwright/tls/tls.key"),
            ("tls_version", "TLSv1.2,TLSv1.3"),
            ("auto_generate_certs", "OFF"),
        ],
        why: "operator and servers check each other by the cluster's own certificates",
    },
    Owned {
        keys: &["grant_tables", "authentication_policy", "partial_revokes"],
        writes: &[
            ("authentication_policy", "caching_sha2_password"),
            ("partial_revokes", "OFF"),
        ],
        why: "accounts and the pattern in the application's grant mean what the operator wrote",
    },
    Owned {
        keys: &["local_infile", "secure_file_priv", "log_raw"],
        writes: &[
            ("local_infile", "OFF"),
            ("secure_file_priv", "NULL"),
            ("log_raw", "OFF"),
        ],
        why: "files of the server and passwords in its logs are nobody's to read",
    },
    // What every server of a fleet has in common.
    Owned {
        keys: &["default_storage_engine", "innodb_file_per_table"],
        writes: &[
            ("default_storage_engine", "InnoDB"),
            ("innodb_file_per_table", "ON"),
        ],
        why: "only InnoDB survives a crash and is copied to a new server, and a dropped shard has to give its space back",
    },
    Owned {
        keys: &[
            "lower_case_table_names",
            "innodb_page_size",
            "innodb_data_file_path",
        ],
        writes: &[],
        why: "it is fixed when a data folder is made, and servers that copy from each other must agree",
    },
];

/// The entry that owns `canonical`, if any does.
pub fn owner_of(canonical: &str) -> Option<&'static Owned> {
    let owns = |name: &str| {
        OWNED.iter().find(|o| {
            o.keys.iter().any(|k| {
                k.strip_suffix('*')
                    .map_or_else(|| name == *k, |stem| name.starts_with(stem))
            })
        })
    };
    owns(canonical).or_else(|| canonical.strip_prefix("maximum_").and_then(owns))
}
