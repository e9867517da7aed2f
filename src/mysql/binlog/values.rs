//! From a value in a row event to one that SQL can say.

use super::decode::Layout;
use crate::core::errant::sql::{self, Characters, JsonChange, Value};
use mysql_async::{
    Column, Value as Raw,
    binlog::{
        jsonb::{self, JsonContainer, JsonDom, JsonNumber, JsonScalar},
        jsondiff::{JsonDiff, JsonDiffOperation},
        value::BinlogValue,
    },
    consts::ColumnType,
};

/// The names that ENUM and SET columns take their values from, column after column.
pub(super) struct Named<'l> {
    enums: std::slice::Iter<'l, Vec<String>>,
    sets: std::slice::Iter<'l, Vec<String>>,
}

impl<'l> Named<'l> {
    pub(super) fn new(layout: &'l Layout) -> Self {
        Self {
            enums: layout.enums.iter(),
            sets: layout.sets.iter(),
        }
    }
}

/// The value of one column; to be asked for one column after the other.
pub(super) fn value(column: &Column, value: BinlogValue<'_>, named: &mut Named<'_>) -> Result<Value, String> {
    use ColumnType as T;
    let kind = column.column_type();
    let choices = match kind {
        T::MYSQL_TYPE_ENUM => named.enums.next(),
        T::MYSQL_TYPE_SET => named.sets.next(),
        _ => None,
    };
    let raw = match value {
        BinlogValue::Jsonb(document) => return json(document).map(Value::Json),
        BinlogValue::JsonDiff(changes) => {
            return changes
                .iter()
                .map(change)
                .collect::<Result<_, _>>()
                .map(Value::JsonPatch);
        }
        BinlogValue::Value(raw) => raw,
    };
    Ok(match raw {
        Raw::NULL => Value::Null,
        Raw::Int(n) if kind == T::MYSQL_TYPE_ENUM => enumerated(n, choices),
        Raw::Int(n) if kind == T::MYSQL_TYPE_TIMESTAMP => Value::UnixTime(n.to_string()),
        Raw::Int(n) => Value::Number(n.to_string()),
        Raw::UInt(n) => Value::Number(n.to_string()),
        // With an exponent where that is shorter.
        Raw::Float(n) => Value::Number(format!("{n:?}")),
        Raw::Double(n) => Value::Number(format!("{n:?}")),
        Raw::Date(y, m, d, ..) if matches!(kind, T::MYSQL_TYPE_DATE | T::MYSQL_TYPE_NEWDATE) => {
            Value::Text(format!("{y:04}-{m:02}-{d:02}"))
        }
        Raw::Date(y, m, d, hour, minute, second, micros) => Value::Text(format!(
            "{y:04}-{m:02}-{d:02} {}",
            time(u64::from(hour), minute, second, micros)
        )),
        Raw::Time(negative, days, hour, minute, second, micros) => Value::Text(format!(
            "{}{}",
            if negative { "-" } else { "" },
            time(u64::from(days) * 24 + u64::from(hour), minute, second, micros)
        )),
        Raw::Bytes(bytes) => match kind {
            T::MYSQL_TYPE_NEWDECIMAL | T::MYSQL_TYPE_DECIMAL | T::MYSQL_TYPE_YEAR => {
                Value::Number(text(bytes)?)
            }
            T::MYSQL_TYPE_TIMESTAMP2 => Value::UnixTime(text(bytes)?),
            T::MYSQL_TYPE_BIT => Value::Number(number(bytes.iter().copied()).to_string()),
            T::MYSQL_TYPE_SET => members(number(bytes.iter().rev().copied()), choices),
            T::MYSQL_TYPE_GEOMETRY | T::MYSQL_TYPE_VECTOR => Value::Binary(bytes),
            _ => sql::bytes(&bytes, characters(column.character_set())),
        },
    })
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

fn time(hours: u64, minutes: u8, seconds: u8, micros: u32) -> String {
    let whole = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if micros == 0 {
        whole
    } else {
        format!("{whole}.{micros:06}")
    }
}

/// The most significant byte first.
fn number(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0, |n, b| n << 8 | u64::from(b))
}

/// An ENUM is its place in the list, from 1; 0 is what an invalid value became.
fn enumerated(n: i64, names: Option<&Vec<String>>) -> Value {
    let place = usize::try_from(n).ok().and_then(|n| n.checked_sub(1));
    match place.and_then(|p| names?.get(p)) {
        Some(name) => Value::Text(name.clone()),
        None => Value::Number(n.to_string()),
    }
}

/// A SET is one bit for each member.
fn members(bits: u64, names: Option<&Vec<String>>) -> Value {
    let Some(names) = names else {
        return Value::Number(bits.to_string());
    };
    let has = |i: usize| u32::try_from(i).is_ok_and(|i| bits.checked_shr(i).is_some_and(|b| b & 1 == 1));
    let members: Vec<&str> = names
        .iter()
        .enumerate()
        .filter_map(|(i, name)| has(i).then_some(name.as_str()))
        .collect();
    Value::Text(members.join(","))
}

/// How a column of this collation writes its characters (`information_schema.collations`).
fn characters(collation: u16) -> Characters {
    match collation {
        // Not told; ascii; utf8mb3; utf8mb4; bytes.
        0 | 11 | 65 | 33 | 76 | 83 | 192..=215 | 223 | 45 | 46 | 224..=247 | 255..=323 | 63 => {
            Characters::Utf8
        }
        // ucs2, utf16, utf16le, utf32: ASCII is not written as ASCII.
        35 | 90 | 128..=151 | 159 | 54 | 55 | 56 | 62 | 101..=124 | 60 | 61 | 160..=183 => {
            Characters::Unknown
        }
        _ => Characters::AsciiAtMost,
    }
}

fn json(document: jsonb::Value<'_>) -> Result<String, String> {
    let mut out = String::new();
    write_json(&mut out, document.parse().map_err(|e| e.to_string())?);
    Ok(out)
}

/// Decimals stay numbers, as MySQL shows them; dates and times are strings, as there.
fn write_json(out: &mut String, dom: JsonDom) {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    match dom {
        JsonDom::Container(JsonContainer::Array(items)) => {
            out.push('[');
            for (i, item) in items.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_json(out, item);
            }
            out.push(']');
        }
        JsonDom::Container(JsonContainer::Object(items)) => {
            out.push('{');
            for (i, (key, item)) in items.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                out.push_str(&quote(&key));
                out.push_str(": ");
                write_json(out, item);
            }
            out.push('}');
        }
        JsonDom::Scalar(JsonScalar::Number(JsonNumber::Decimal(n))) => out.push_str(&n.to_string()),
        JsonDom::Scalar(scalar) => out.push_str(&serde_json::Value::from(scalar).to_string()),
    }
}

fn change(diff: &JsonDiff<'_>) -> Result<JsonChange, String> {
    let path = diff.path_str().into_owned();
    let value = diff.value().cloned().map(json).transpose()?;
    let function = match diff.operation() {
        JsonDiffOperation::REPLACE => "JSON_REPLACE",
        JsonDiffOperation::INSERT if path.ends_with(']') => "JSON_ARRAY_INSERT",
        JsonDiffOperation::INSERT => "JSON_INSERT",
        JsonDiffOperation::REMOVE => "JSON_REMOVE",
    };
    Ok(JsonChange {
        function,
        path,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_enum_and_set() {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(enumerated(2, Some(&names)), Value::Text("b".into()));
        assert_eq!(enumerated(0, Some(&names)), Value::Number("0".into()));
        assert_eq!(enumerated(9, None), Value::Number("9".into()));
        assert_eq!(members(0b101, Some(&names)), Value::Text("a,c".into()));
        assert_eq!(members(0, Some(&names)), Value::Text(String::new()));
        assert_eq!(members(5, None), Value::Number("5".into()));
    }

    #[test]
    fn only_what_is_ascii_is_shown_of_a_foreign_character_set() {
        let latin1 = characters(8);
        assert_eq!(sql::bytes(b"abc", latin1), Value::Text("abc".into()));
        assert_eq!(
            sql::bytes("\u{e9}".as_bytes(), latin1),
            Value::Binary(vec![0xc3, 0xa9])
        );
        assert_eq!(sql::bytes(b"NN", characters(54)), Value::Binary(b"NN".to_vec()));
        assert_eq!(
            sql::bytes("\u{e9}".as_bytes(), characters(45)),
            Value::Text("\u{e9}".into())
        );
    }
}
