//! A database with a table of every kind that is hard to copy.

/// Statements that make it, in the database that is chosen.
pub fn statements() -> Vec<String> {
    let mut all: Vec<String> = TABLES.iter().map(|s| (*s).to_owned()).collect();
    all.push("INSERT INTO numbers VALUES
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, -128, 255, -32768, 16777215, 4294967295, -9223372036854775808, 18446744073709551615, 99999999999999999999999999999999999.999999999999999999999999999999, -0.00001, 2155),
        (-9223372036854775808, 127, 0, 32767, 0, 1, 9223372036854775807, 9223372036854775808, -1.000000000000000000000000000001, 99999.99999, 1901),
        (9223372036854775807, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)".into());
    // 0.1 as FLOAT prints as 0.1 and is another number; the last ones need 17 digits.
    all.push("INSERT INTO floats VALUES (1, 0.1, 0.1, 1.005, 2.675), (2, 16777217, 9007199254740993, -0.0, 1e-300),
        (3, 3.4028234e38, 1.7976931348623157e308, 12345.678, 1234567.89), (4, 1.17549435e-38, 2.2250738585072014e-308, 0.333, 0.1),
        (5, 1.4e-45, 5e-324, NULL, NULL), (6, -1.0/3, -1e0/3, -0.001, -0.01)".into());
    all.push("INSERT INTO floats SELECT 100 + n, RAND(n) * POW(10, n % 60 - 30), RAND(n + 7) * POW(10, n - 100), RAND(n) * 100, RAND(n) * 1000
        FROM (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < 200) SELECT n FROM s) t".into());
    all.push("INSERT INTO times VALUES
        (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '-838:59:59.000000', '0000', '00:00:00'),
        (2, '2026-00-00', '2026-02-31 23:59:59.999999', '1970-01-01 00:00:01.000001', '838:59:59.000000', '1901', '-00:00:01'),
        (3, '9999-12-31', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '-00:00:00.000001', '2155', '23:59:59'),
        (4, '1000-01-01', '0000-00-00 01:02:03.5', '2026-03-29 01:30:00', '00:00:00.5', '2026', '99:00:00'),
        (5, NULL, NULL, NULL, NULL, NULL, NULL)".into());
    all.push("INSERT INTO texts VALUES
        (1, 'a  ', 'b\t', '\\\\N', _utf8mb4'𝒳𝒴😀', _utf8mb4'ß', _utf8mb4'Größe', _utf8mb4'\u{e5}', _utf8mb4'漢字', _utf8mb4'かな', 'plain', '\\0\\n\\r\\Z\\'\\\"\\\\'),
        (2, '', '', '', '', '', '', '', '', '', '', ''),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, 'NULL', '\\N', 'a\\tb\\nc', 'a,b', 'A', 'Z', 'z', 'q', 'r', 's', REPEAT('x', 255))".into());
    all.push("INSERT INTO bytes VALUES (1, 0x00, 0xFF00FE, 0x0102, 0x5C5C4E, 0x00, b'1', b'101010101010', b'1111111111111111111111111111111111111111111111111111111111111111'),
        (2, '', '', '', '', '', b'0', b'0', b'0'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, 0x5C, 0x090A0D, 0x270022, 0x80818283, 0xC3, b'1', b'10', b'1010')".into());
    all.push("INSERT INTO bytes (id, b) VALUES (5, (SELECT UNHEX(GROUP_CONCAT(LPAD(HEX(n), 2, '0') ORDER BY n SEPARATOR '')) FROM
        (WITH RECURSIVE s AS (SELECT 0 n UNION ALL SELECT n + 1 FROM s WHERE n < 255) SELECT n FROM s) t))".into());
    all.push(r#"INSERT INTO jsons VALUES (1, '{"b": 1, "a": [1.5, -0.0, 1e100, 18446744073709551615, -9223372036854775808, "\\u0000 \\" \\\\ 😀", null, true, {}]}', '[]'),
        (2, 'null', '"2026-01-31"'), (3, NULL, '0.1'), (4, '12345678901234567890123', '[0.12345678901234567, 1.7976931348623157e308, 5e-324]')"#.into());
    all.push("INSERT INTO choices VALUES (1, 'a', 'x,z', ''), (2, 'b''c', '', '1'), (3, '3', 'y', '2'), (4, NULL, NULL, NULL)".into());
    // The value 0 of an ENUM, which no list of members has; so many that a server stops counting in its list of warnings.
    all.push("SET sql_mode = ''".into());
    all.push("INSERT INTO choices SELECT 10 + n, 'nothing', 'x', '1' FROM (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) t".into());
    all.push("INSERT INTO choices SELECT 1000 + n, 'nothing', 'x', '1' FROM (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) t".into());
    all.push("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES'".into());
    all.push("INSERT INTO computed (id, a, b) VALUES (1, 2, 'x'), (2, NULL, NULL), (3, 7, 'Y')".into());
    all.push("INSERT INTO shapes VALUES (1, ST_GeomFromText('POINT(1 2)', 4326), ST_GeomFromText('POLYGON((0 0,0 3,3 3,0 0))'), ST_GeomFromText('POINT(5 5)')),
        (2, ST_GeomFromText('POINT(-90 180)', 4326), ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))'), NULL)".into());
    all.push(
        "INSERT INTO no_key VALUES (1, 'a'), (1, 'a'), (2, 'b'), (NULL, NULL), (NULL, NULL), (NULL, '')"
            .into(),
    );
    all.push("INSERT INTO counted VALUES (0, 'zero'), (7, 'seven'), (41, 'gone')".into());
    all.push("DELETE FROM counted WHERE id = 41".into());
    all.push("INSERT INTO composite VALUES ('b', -1, 0x01, 'x'), ('B', -1, 0x00, 'y'), ('a', 5, '', 'z'), ('', 0, 0xFF, NULL)".into());
    all.push("INSERT INTO parents VALUES (1), (2); INSERT INTO children VALUES (1, 2), (2, NULL)".into());
    all.push("INSERT INTO parted VALUES (1, 5), (2, 50), (3, 500)".into());
    all.push(
        "INSERT INTO `odd ``na'me` (`select`, `ü \"x\"`, hidden) VALUES (1, 'a', 9), (2, 'b', NULL)".into(),
    );
    all.push("INSERT INTO big VALUES (1, REPEAT(0x005C0A09, 4194304), REPEAT('ü', 100000), '[]'), (2, RANDOM_BYTES(1000), '', CONCAT('[\"', REPEAT('j', 1000000), '\"]'))".into());
    all.push("INSERT INTO vectors VALUES (1, TO_VECTOR('[1, -2.5, 3e-30]')), (2, NULL)".into());
    all
}

const TABLES: &[&str] = &[
    "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', sql_generate_invisible_primary_key = 0, time_zone = '+00:00'",
    "CREATE TABLE numbers (id BIGINT PRIMARY KEY, a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d MEDIUMINT UNSIGNED, e INT UNSIGNED ZEROFILL, f BIGINT,
        g BIGINT UNSIGNED, h DECIMAL(65,30), i DECIMAL(10,5), j YEAR)",
    "CREATE TABLE floats (id INT PRIMARY KEY, f FLOAT, d DOUBLE, fd FLOAT(10,3), dd DOUBLE(20,2))",
    "CREATE TABLE times (id INT PRIMARY KEY, d DATE DEFAULT '0000-00-00', dt DATETIME(6), ts TIMESTAMP(6) NULL, t TIME(6), y YEAR, t0 TIME)",
    "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(10), v VARCHAR(50), t TEXT, m MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
        l1 VARCHAR(50) CHARACTER SET latin1 COLLATE latin1_german2_ci, u3 VARCHAR(50) CHARACTER SET utf8mb3, u16 VARCHAR(50) CHARACTER SET utf16,
        sj VARCHAR(50) CHARACTER SET gbk, ej TEXT CHARACTER SET sjis, a CHAR(5) CHARACTER SET ascii COLLATE ascii_bin, tt TINYTEXT)",
    "CREATE TABLE bytes (id INT PRIMARY KEY, a BINARY(4), b VARBINARY(300), c BLOB, d TINYBLOB, e VARCHAR(10) CHARACTER SET binary, b1 BIT(1), b12 BIT(12), b64 BIT(64))",
    "CREATE TABLE jsons (id INT PRIMARY KEY, j JSON, k JSON NOT NULL)",
    "CREATE TABLE choices (id INT PRIMARY KEY, e ENUM('a','b''c','3','z'), s SET('x','y','z'), d ENUM('','1','2') CHARACTER SET latin1)",
    "CREATE TABLE computed (id INT PRIMARY KEY, a INT, b VARCHAR(10), v INT AS (a * 2) VIRTUAL, s VARCHAR(20) AS (CONCAT(b, '-', a)) STORED,
        KEY (v), KEY f ((UPPER(b))))",
    "CREATE TABLE shapes (id INT PRIMARY KEY, p POINT NOT NULL SRID 4326, g GEOMETRY NOT NULL, n POINT, SPATIAL INDEX (p))",
    "CREATE TABLE no_key (a INT, b VARCHAR(10))",
    "CREATE TABLE counted (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10) UNIQUE) AUTO_INCREMENT = 1000",
    "CREATE TABLE composite (a VARCHAR(10) COLLATE utf8mb4_bin, b INT, c VARBINARY(4), d TEXT, PRIMARY KEY (b, a, c), CHECK (b > -10))",
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    "CREATE TABLE children (id INT PRIMARY KEY, parent INT)",
    "CREATE TABLE parted (id INT, n INT NOT NULL, PRIMARY KEY (id, n)) PARTITION BY RANGE (n) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (100), PARTITION c VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE `odd ``na'me` (`select` INT PRIMARY KEY COMMENT 'AUTO_INCREMENT=5 ''\"`', `ü \"x\"` VARCHAR(10) DEFAULT 'ä''', hidden INT INVISIBLE)
        COMMENT 'a ) ENGINE=x AUTO_INCREMENT=7'",
    "CREATE TABLE big (id INT PRIMARY KEY, b LONGBLOB, t LONGTEXT, j JSON)",
    "CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3))",
];
