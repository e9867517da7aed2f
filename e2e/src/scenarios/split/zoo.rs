//! Columns and tables of every kind move both ways of copying, byte by byte.

use super::data::all_of_half;
use super::stage::{
    BUSY, FRESH, HALF, LAST, MIDDLE, OTHERS, begin, cluster, half, retained, seeded_by, split,
};
use super::watch::Watch;
use crate::blueprint::PAIR;
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::moves::MOVED;
use crate::wait::{REPAIR, SOON};
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde_json::json;
use shardwright::api::{LocalRef, Seed, ShardRange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tables of all kinds; each is filled by [`fill`].
const ZOO: &str = "CREATE TABLE keyless (a INT, b VARCHAR(20)) ENGINE=InnoDB;
CREATE TABLE collated (k VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci NOT NULL, v CHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs, \
b VARBINARY(40), PRIMARY KEY (k)) ENGINE=InnoDB;
CREATE TABLE documents (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, j JSON, name VARCHAR(100) AS (JSON_UNQUOTE(j->'$.name')) STORED, twice BIGINT AS (CHAR_LENGTH(name) * 2) VIRTUAL, \
PRIMARY KEY (id), KEY (name)) ENGINE=InnoDB;
CREATE TABLE numbers (u BIGINT UNSIGNED NOT NULL, d DECIMAL(65,30), f FLOAT, g DOUBLE, b BIT(13), y YEAR, e ENUM('a','b c',''), s SET('x','y'), PRIMARY KEY (u)) ENGINE=InnoDB;
CREATE TABLE moments (id INT NOT NULL, d DATE, t DATETIME(6), z TIMESTAMP(3) NULL, h TIME(6), PRIMARY KEY (id)) ENGINE=InnoDB;
CREATE TABLE large (id INT NOT NULL, text4 LONGTEXT CHARACTER SET utf8mb4, blob4 LONGBLOB, PRIMARY KEY (id)) ENGINE=InnoDB;
CREATE TABLE pairs_of (a INT NOT NULL, b INT NOT NULL, c INT, PRIMARY KEY (a, b), UNIQUE KEY (c)) ENGINE=InnoDB;";

/// Rows for [`ZOO`].
fn fill() -> Vec<String> {
    let mut all: Vec<String> = [
        "SET SESSION sql_mode = ''",
        "INSERT INTO keyless VALUES (1, 'same'), (1, 'same'), (1, 'same'), (NULL, NULL), (2, '')",
        "INSERT INTO collated VALUES (_latin1 x'4DFC6C6C6572', 'é', x'00FF0A0D5C2709'), (_latin1 x'DF', NULL, ''), ('', 'a', NULL)",
        r#"INSERT INTO documents (j) VALUES ('{"name": "ä\\n\\"𝄞\\"", "n": 18446744073709551615, "f": 1e308, "deep": [[[{}]]]}'), ('null'), (NULL), ('"text"'), ('1.0')"#,
        "INSERT INTO numbers VALUES (18446744073709551615, 99999999999999999999999999999999999.999999999999999999999999999999, 0.1, 0.1, b'1111111111111', 1901, 'b c', 'x,y'), \
         (0, -0.000000000000000000000000000001, -3.4e38, 4.9e-324, b'0', 0, '', ''), (9223372036854775808, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO moments VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '2026-03-29 02:30:00', '-838:59:59'), (2, '2026-02-00', '9999-12-31 23:59:59.999999', NULL, '00:00:00.000001'), \
         (3, '1000-01-01', NULL, '2038-01-19 03:14:07.999', NULL)",
        "INSERT INTO pairs_of VALUES (1, 1, NULL), (1, 2, NULL), (-2147483648, 2147483647, 5)",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    // Below what a statement of the ledger's connections may have; each has bytes that end lines and quotes.
    all.push("INSERT INTO large VALUES (1, REPEAT('𝄞€a', 1000), REPEAT(x'00010A0D5C22279F', 1900000)), (2, NULL, REPEAT('y', 15000000)), (3, '', '')".to_owned());
    all
}

pub(super) async fn moves(f: &Arc<Fleet>) -> Result<()> {
    const CONFIG: &str = "zoo";
    begin(f).await?;
    f.apply(&ConfigMap {
        metadata: ObjectMeta {
            name: Some(CONFIG.into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("zoo.sql".to_owned(), ZOO.to_owned())])),
        ..ConfigMap::default()
    })
    .await?;
    let mut with_zoo = cluster(f);
    if let Some(tables) = with_zoo.spec.tables.as_mut() {
        tables.ddl_from = Some(LocalRef::new(CONFIG));
    }
    f.apply(&with_zoo).await?;
    f.tables_on_both(PAIR, &all_of_half(), &["keyless", "large", "pairs_of"])
        .await?;
    f.all_ready(REPAIR).await?;
    let mut server = f.server(PAIR, f.active(PAIR).await?).await?;
    for shard in [MIDDLE, LAST] {
        server.run(&format!("USE `{}`", f.database(shard).await?)).await?;
        for sql in fill() {
            server.within(SOON, &sql).await?;
        }
    }
    drop(server);
    f.same_rows(&half(), &[PAIR]).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, BUSY, retained()).await?;
    seeded_by(f, PAIR, BUSY, Seed::PerDatabase).await?;
    f.at_home(&half(), BUSY, MOVED).await?;
    // Rows of every kind that come by the channel.
    let mut server = f.server_of(LAST).await?;
    server.run(&format!("USE `{}`", f.database(LAST).await?)).await?;
    for sql in [
        "DELETE FROM keyless WHERE a = 1 LIMIT 1",
        "UPDATE documents SET j = JSON_SET(j, '$.name', 'changed') WHERE id = 1",
        "UPDATE large SET blob4 = CONCAT(blob4, x'0A') WHERE id = 2",
        "UPDATE numbers SET u = 1 WHERE u = 0",
    ] {
        server.within(SOON, sql).await?;
    }
    drop(server);
    watch.writes().await?;
    watch.end(f, "split-zoo").await?.once(&half(), PAIR, BUSY)?;
    f.same_rows(&half(), &[BUSY, PAIR]).await?;
    // From there to an empty pair, by CLONE; `rb` goes along, so that nothing else is at the pair.
    f.edit::<ShardRange>(OTHERS, json!({"spec": retained()})).await?;
    f.send(OTHERS, FRESH).await?;
    f.send(HALF, FRESH).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.same_rows(&half(), &[FRESH, BUSY]).await?;
    f.intact().await?;
    f.apply(&cluster(f)).await?;
    begin(f).await
}
