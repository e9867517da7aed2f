use super::{
    sql::{Cell, Change, JsonChange, Table, Value},
    *,
};

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn gtid(n: i64) -> Gtid {
    format!("{A}:{n}").parse().unwrap()
}
fn set(text: &str) -> GtidSet {
    format!("{A}:{text}").parse().unwrap()
}
fn statement(database: &str, sql: &str) -> Change {
    Change::Statement {
        database: database.into(),
        sql: sql.into(),
    }
}
fn table() -> Table {
    Table {
        database: "db00042".into(),
        name: "pins".into(),
    }
}
fn cell(column: &str, key: bool, value: Value) -> Cell {
    Cell {
        column: column.into(),
        key,
        value,
    }
}
fn row(id: i64, text: &str) -> Vec<Cell> {
    vec![
        cell("local_id", true, Value::Number(id.to_string())),
        cell("data", false, Value::Text(text.into())),
        cell("ts", false, Value::Null),
    ]
}
fn insert(id: i64, text: &str) -> Change {
    Change::Insert {
        table: table(),
        row: row(id, text),
    }
}
fn written(change: &Change) -> String {
    let mut out = String::new();
    sql::write(&mut out, change);
    out
}

#[test]
fn a_transaction_reads_like_what_was_sent() {
    let mut script = Script::new(LIMIT, true);
    let at = "2026-11-30T05:53:18.000151Z".parse().ok();
    script.begin(gtid(5), at);
    script.change(&statement("db00042", "BEGIN"));
    script.change(&insert(1, "it's\na \\ \u{e9}"));
    script.change(&Change::Update {
        table: table(),
        before: row(1, "old"),
        after: row(1, "new"),
    });
    script.change(&Change::Delete {
        table: table(),
        row: row(2, "gone"),
    });
    script.change(&statement("", "COMMIT"));
    script.end();
    script.begin(gtid(6), None);
    script.change(&statement("db00042", "CREATE TABLE x (id INT)"));
    script.change(&statement("db00042", "DROP TABLE x"));
    script.begin(gtid(7), None);
    script.change(&statement("db1", "create database db1"));
    script.end();
    let saved = script.finish();
    insta::assert_snapshot!(saved.text);
    assert_eq!((saved.complete, saved.by_name), (set("5-7"), GtidSet::new()));
}

#[test]
fn a_body_with_semicolons_has_a_delimiter_of_its_own() {
    let sql = "CREATE PROCEDURE p() BEGIN SELECT '$$'; END";
    assert_eq!(
        written(&statement("", sql)),
        format!("DELIMITER $$$\n{sql}\n$$$\nDELIMITER ;\n")
    );
}

#[test]
fn every_value_is_one_that_sql_understands() {
    let values = [
        Value::Null,
        Value::Number("-1.5".into()),
        Value::Text("a'b\\\n".into()),
        Value::Binary(vec![0, 255]),
        Value::Json(r#"{"a": 1}"#.into()),
        Value::UnixTime("1.5".into()),
        Value::JsonPatch(vec![
            JsonChange {
                function: "JSON_REPLACE",
                path: "$.a".into(),
                value: Some("2".into()),
            },
            JsonChange {
                function: "JSON_REMOVE",
                path: "$.b".into(),
                value: None,
            },
        ]),
    ];
    let row = values.map(|v| cell("c", false, v)).to_vec();
    assert_eq!(
        written(&Change::Insert { table: table(), row }),
        "INSERT INTO `db00042`.`pins` (`c`, `c`, `c`, `c`, `c`, `c`, `c`) VALUES (NULL, -1.5, 'a''b\\\\\\n', X'00FF', \
         '{\"a\": 1}', FROM_UNIXTIME(1.5), JSON_REMOVE(JSON_REPLACE(`c`, '$.a', CAST('2' AS JSON)), '$.b'));\n"
    );
}

#[test]
fn a_row_without_a_primary_key_is_found_by_all_that_it_had() {
    let row = vec![
        cell("x`y", false, Value::Null),
        cell("j", false, Value::Json("[]".into())),
        cell("b", false, Value::Binary(vec![0])),
    ];
    assert_eq!(
        written(&Change::Delete { table: table(), row }),
        "DELETE FROM `db00042`.`pins` WHERE `x``y` IS NULL AND `j` = CAST('[]' AS JSON) AND `b` = X'00' LIMIT 1;\n"
    );
}

#[test]
fn nothing_of_a_row_ends_its_line() {
    let name = "a\nDROP TABLE t; -- ";
    let change = Change::Update {
        table: table(),
        before: vec![cell(name, false, Value::Text("x\r\n*/".into()))],
        after: vec![cell("b", false, Value::Number("1".into()))],
    };
    assert_eq!(sql::comment(name), "a DROP TABLE t; -- ");
    let text = written(&change);
    assert!(text.ends_with('\n') && !text.contains("x\r"), "{text}");
}

#[test]
fn what_does_not_fit_goes_to_the_next_text() {
    let fill = |script: &mut Script, sizes: &[usize]| {
        for (n, size) in (1..).zip(sizes) {
            script.begin(gtid(n), None);
            script.change(&insert(n, &"x".repeat(*size)));
            script.change(&insert(n, "y"));
        }
        script.end();
    };
    let mut first = Script::new(2000, false);
    fill(&mut first, &[100, 5000, 1000, 1000, 10]);
    assert!(first.is_full());
    let saved = first.finish();
    // 2 fits nowhere; 4 and 5 are left for the next.
    assert_eq!((saved.complete, saved.by_name), (set("1:3"), set("2")));
    assert_eq!(saved.why, [TOO_MUCH]);
    assert!(saved.text.len() <= 2000);

    let mut last = Script::new(2000, true);
    fill(&mut last, &[100, 5000, 1000, 1000, 10]);
    let saved = last.finish();
    assert_eq!((saved.complete, saved.by_name), (set("1:3:5"), set("2:4")));
    assert!(saved.text.len() <= 2000);
}

#[test]
fn what_cannot_be_shown_makes_a_transaction_known_by_name_only() {
    let mut script = Script::new(LIMIT, true);
    script.begin(gtid(1), None);
    script.change(&insert(1, "shown"));
    script.broken("a\nb");
    script.broken("not told twice");
    script.begin(gtid(2), None);
    script.begin(gtid(3), None);
    assert_eq!(script.give_up("torn"), Some(gtid(3)));
    assert_eq!(script.give_up("torn"), None);
    script.begin(gtid(4), None);
    script.change(&insert(4, "not ended"));
    assert_eq!(script.read(), set("1-3"));
    let saved = script.finish();
    assert_eq!((saved.complete, saved.by_name), (set("2"), set("1:3")));
    assert_eq!(saved.why, ["a\nb", "torn"]);
    assert!(saved.text.contains("'shown'"), "{}", saved.text);
    assert!(
        saved
            .text
            .contains("-- Not all of this transaction is shown: a b\n"),
        "{}",
        saved.text
    );
    assert!(saved.text.contains(":2\n-- (empty)\n"), "{}", saved.text);
    assert!(!saved.text.contains("not ended"), "{}", saved.text);
}
