use super::*;
use crate::api::shard_cluster::{MappingTable, ObjectTable};

fn tables() -> Tables {
    Tables {
        objects: vec![
            ObjectTable {
                name: "pins".into(),
                type_id: 1,
            },
            ObjectTable {
                name: "boards".into(),
                type_id: 2,
            },
        ],
        mappings: vec![MappingTable {
            name: "board_has_pins".into(),
        }],
        ddl_from: None,
    }
}
fn ddl(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
    keys.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}
fn with(text: &str) -> Result<TableSet, DdlError> {
    build(Some(&tables()), Some(&ddl(&[("10.sql", text)])))
}
fn sql(set: &TableSet) -> Vec<&str> {
    set.statements().iter().map(|s| s.sql.as_str()).collect()
}

#[test]
fn objects_and_mappings_are_the_tables_of_the_domain() {
    let set = build(Some(&tables()), None).unwrap();
    assert_eq!(
        sql(&set),
        [
            "CREATE TABLE IF NOT EXISTS `pins` (`local_id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, `data` JSON NOT NULL, `ts` TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), PRIMARY KEY (`local_id`)) ENGINE=InnoDB",
            "CREATE TABLE IF NOT EXISTS `boards` (`local_id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, `data` JSON NOT NULL, `ts` TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), PRIMARY KEY (`local_id`)) ENGINE=InnoDB",
            "CREATE TABLE IF NOT EXISTS `board_has_pins` (`from_id` BIGINT UNSIGNED NOT NULL, `to_id` BIGINT UNSIGNED NOT NULL, `sequence` BIGINT NOT NULL, PRIMARY KEY (`from_id`, `to_id`), KEY `from_id_sequence` (`from_id`, `sequence`)) ENGINE=InnoDB",
        ]
    );
    assert_eq!((set.tables(), set.hash().len()), (3, 64));
    assert!(build(None, None).unwrap().statements().is_empty());
}

#[test]
fn admitted_statements_are_normalised() {
    let set = with(
        "-- users by name\n create table if not exists Users (\n  id int /* key */ primary key,\n  note varchar(20) default 'a;  b'\n) ENGINE = innodb;\n\
         CREATE UNIQUE INDEX `by note` USING BTREE ON Users (note) # last\n;\
         create index by_ts on pins (ts);\
         CREATE TABLE parts (d int) PARTITION BY RANGE (d) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE);\
         CREATE TABLE gen (a int, engine int, directory int, b int AS (a + 1), CHECK (`select` LIKE 'x'), `select` text) COMMENT='SELECT'",
    )
    .unwrap();
    assert_eq!(
        sql(&set)[3..],
        [
            "CREATE TABLE IF NOT EXISTS `Users` ( id int primary key, note varchar(20) default 'a;  b' ) ENGINE = innodb",
            "CREATE UNIQUE INDEX `by note` USING BTREE ON Users (note)",
            "create index by_ts on pins (ts)",
            "CREATE TABLE IF NOT EXISTS `parts` (d int) PARTITION BY RANGE (d) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
            "CREATE TABLE IF NOT EXISTS `gen` (a int, engine int, directory int, b int AS (a + 1), CHECK (`select` LIKE 'x'), `select` text) COMMENT='SELECT'",
        ]
    );
    let places: Vec<_> = set.statements()[3..]
        .iter()
        .map(|s| s.place.to_string())
        .collect();
    assert_eq!(
        places[..2],
        [
            "key `10.sql`, statement 1, line 2",
            "key `10.sql`, statement 2, line 6"
        ]
    );
}

#[test]
fn comments_and_layout_do_not_change_the_hash() {
    let a = with("CREATE TABLE t (a int);\nCREATE INDEX i ON t (a)").unwrap();
    let b =
        with("/* x */ CREATE TABLE   IF NOT EXISTS\n`t` (a int) ;; -- y\nCREATE INDEX i ON t (a);").unwrap();
    assert_eq!(a.hash(), b.hash());
    assert_ne!(
        a.hash(),
        with("CREATE TABLE t (a bigint);CREATE INDEX i ON t (a)")
            .unwrap()
            .hash()
    );
}

#[test]
fn keys_are_run_in_their_order() {
    let keys = ddl(&[
        ("20.sql", "CREATE INDEX i ON t (a)"),
        ("10.sql", "CREATE TABLE t (a int)"),
    ]);
    let set = build(None, Some(&keys)).unwrap();
    assert_eq!(
        set.statements()
            .iter()
            .map(|s| s.object.to_string())
            .collect::<Vec<_>>(),
        ["table `t`", "index `i` on `t`"]
    );
    let error = build(
        None,
        Some(&ddl(&[
            ("1", "CREATE INDEX i ON t (a)"),
            ("2", "CREATE TABLE t (a int)"),
        ])),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("key `1`, statement 1, line 1: index `i` on `t`"),
        "{error}"
    );
}

#[test]
fn nothing_but_a_new_table_or_index_is_admitted() {
    for (text, place, what) in [
        ("DROP TABLE pins", "statement 1, line 1", "DROP is not admitted"),
        (
            "CREATE TABLE a (b int);\n\nALTER TABLE a ADD c int",
            "statement 2, line 3",
            "ALTER is not admitted",
        ),
        ("INSERT INTO pins VALUES (1)", "line 1", "INSERT is not admitted"),
        (
            "CREATE TEMPORARY TABLE a (b int)",
            "line 1",
            "CREATE TEMPORARY is not admitted",
        ),
        ("CREATE DATABASE a", "line 1", "CREATE DATABASE is not admitted"),
        (
            "CREATE UNIQUE TABLE a (b int)",
            "line 1",
            "CREATE UNIQUE is not admitted",
        ),
        ("CREATE\nUSER x", "line 2", "CREATE USER is not admitted"),
        ("CREATE", "line 1", "CREATE nothing is not admitted"),
        ("(SELECT 1)", "line 1", "`(` is not admitted"),
        (
            "DELIMITER $$\nCREATE TABLE a (b int)$$",
            "statement 1",
            "end each statement with `;`",
        ),
        ("/*!40101 SET x=1 */;", "statement 1, line 1", "run by the server"),
        (
            "CREATE TABLE a (b int /*!50000 , c int */)",
            "statement 1",
            "run by the server",
        ),
        ("CREATE TABLE mysql.a (b int)", "line 1", "names a database"),
        ("CREATE TABLE `db` . `a` (b int)", "line 1", "names a database"),
        (
            "CREATE INDEX i ON mysql.user (host)",
            "line 1",
            "names a database",
        ),
        ("CREATE TABLE a LIKE pins", "line 1", "write the columns out"),
        (
            "CREATE TABLE a (LIKE mysql.user)",
            "line 1",
            "write the columns out",
        ),
        (
            "CREATE TABLE a SELECT * FROM mysql.user",
            "line 1",
            "write the columns out",
        ),
        (
            "CREATE TABLE a AS TABLE mysql.user",
            "line 1",
            "write the columns out",
        ),
        ("CREATE TABLE a (b int)\nSELECT 1", "line 2", "filled by a query"),
        (
            "CREATE TABLE a (b int) (TABLE mysql.user)",
            "line 1",
            "filled by a query",
        ),
        (
            "CREATE TABLE a (b int) VALUES ROW(1)",
            "line 1",
            "filled by a query",
        ),
        (
            "CREATE TABLE a (b int) IGNORE AS (WITH x AS (SELECT 1) SELECT 2)",
            "line 1",
            "filled by a query",
        ),
        (
            "CREATE TABLE a (b int,\nFOREIGN KEY (b) REFERENCES pins (local_id))",
            "line 2",
            "foreign keys",
        ),
        (
            "CREATE TABLE a (b bigint REFERENCES pins)",
            "line 1",
            "foreign keys",
        ),
        (
            "CREATE TABLE a (b int) DATA DIRECTORY='/x'",
            "line 1",
            "one volume",
        ),
        (
            "CREATE TABLE a (b int) PARTITION BY HASH (b) (PARTITION p INDEX DIRECTORY '/x')",
            "line 1",
            "one volume",
        ),
        ("CREATE TABLE a (b int) TABLESPACE x", "line 1", "file of its own"),
        (
            "CREATE TABLE a (b int) ENGINE=MyISAM",
            "line 1",
            "engine `MyISAM`",
        ),
        (
            "CREATE TABLE a (b int) engine 'memory'",
            "line 1",
            "engine `memory`",
        ),
        (
            "CREATE TABLE a (b int) UNION=(mysql.user)",
            "line 1",
            "UNION is not admitted",
        ),
        (
            "CREATE TABLE a (b int) START TRANSACTION",
            "line 1",
            "START TRANSACTION",
        ),
        ("CREATE TABLE a (b int", "line 1", "never closed"),
        (
            "CREATE TABLE a (b int)) ENGINE=InnoDB",
            "line 1",
            "closes nothing",
        ),
        ("CREATE TABLE IF EXISTS a (b int)", "line 1", "NOT EXISTS"),
        ("CREATE TABLE 'a' (b int)", "line 1", "use backticks"),
        ("CREATE TABLE (b int)", "line 1", "`(` is no name"),
        ("CREATE TABLE", "line 1", "name of the table is missing"),
        ("CREATE TABLE `` (b int)", "line 1", "1 to 64"),
        ("CREATE INDEX i (a)", "line 1", "name its table"),
        ("CREATE INDEX i ON pins", "line 1", "columns of the index"),
        ("CREATE INDEX i ON nowhere (a)", "line 1", "not made before it"),
        ("CREATE TABLE a (b text DEFAULT 'x)", "line 1", "closing '"),
    ] {
        let error = with(text).expect_err(text);
        let said = error.to_string();
        assert!(said.starts_with("key `10.sql`, "), "{said}");
        assert!(error.place.to_string().contains(place), "{text}: {said}");
        assert!(said.contains(what), "{text}: {said}");
    }
    assert!(with(&format!("CREATE TABLE {} (b int)", "a".repeat(65))).is_err());
}

#[test]
fn a_name_is_given_once_whatever_its_case() {
    let error = with("CREATE TABLE Pins (a int)").unwrap_err().to_string();
    assert!(
        error.contains("table `Pins` is made already as an object or a mapping"),
        "{error}"
    );
    let keys = ddl(&[
        ("a", "CREATE TABLE t (a int);"),
        ("b", "\n\nCREATE TABLE T (a int)"),
    ]);
    let error = build(None, Some(&keys)).unwrap_err().to_string();
    assert_eq!(
        error,
        "key `b`, statement 1, line 3: table `T` is made already by key `a`, statement 1, line 1: take one of the two out"
    );
    assert!(with("CREATE INDEX i ON pins (ts); CREATE INDEX I ON pins (data)").is_err());
    with("CREATE INDEX i ON pins (ts); CREATE INDEX i ON boards (ts)").unwrap();
    let mut twice = tables();
    twice.mappings.push(MappingTable { name: "pins".into() });
    assert_eq!(build(Some(&twice), None).unwrap_err().place, Place::Spec);
}

#[test]
fn only_what_a_shard_lacks_is_created() {
    let set = with("CREATE TABLE Notes (a int); CREATE INDEX i ON Notes (a)").unwrap();
    let entry = |t: &str, i: Option<&str>| (t.to_owned(), i.map(str::to_owned));
    let mut have = BTreeSet::new();
    assert_eq!(set.missing(&have).len(), 5);
    have.extend([
        entry("pins", None),
        entry("pins", Some("PRIMARY")),
        entry("boards", None),
        entry("notes", None),
    ]);
    let missing: Vec<_> = set.missing(&have).iter().map(|s| s.object.to_string()).collect();
    assert_eq!(missing, ["table `board_has_pins`", "index `i` on `Notes`"]);
    have.extend([entry("board_has_pins", None), entry("Notes", Some("I"))]);
    assert!(set.missing(&have).is_empty());
}
