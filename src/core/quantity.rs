//! Quantities of Kubernetes (`1Gi`, `500m`, `1e3`) by value, so that two ways of writing the same are equal.

/// The value in thousandths, rounded up as the API server does; `None` when it is no quantity or too large.
///
/// Grammar: a decimal number and one of the suffixes `Ki Mi Gi Ti Pi Ei`, `n u m k M G T P E`, or an exponent `e3`/`E3`.
pub fn millis(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (negative, number) = match number.as_bytes().first()? {
        b'-' => (true, number.get(1..)?),
        b'+' => (false, number.get(1..)?),
        _ => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 24 {
        return None;
    }
    let mut value: i128 = digits.parse().ok()?;
    let decimal = |exp: i32| (1i128, exp);
    let (factor, exponent) = match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => decimal(other.strip_prefix(['e', 'E'])?.parse::<i8>().ok()?.into()),
    };
    value = value.checked_mul(factor)?;
    let shift = exponent + 3 - i32::try_from(fraction.len()).ok()?;
    let power = 10i128.checked_pow(shift.unsigned_abs())?;
    let scaled = if shift >= 0 {
        value.checked_mul(power)?
    } else {
        value.checked_add(power - 1)? / power
    };
    Some(if negative { -scaled } else { scaled })
}

/// The value as whole bytes; `None` when it is none or negative.
pub fn bytes(text: &str) -> Option<u64> {
    u64::try_from(millis(text)? / 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_written_differently_is_equal() {
        for (a, b) in [
            ("1Gi", "1024Mi"),
            ("0.5", "500m"),
            ("1", "1000m"),
            ("1k", "1e3"),
            ("1E3", "1000"),
            ("2G", "2000M"),
            ("1.5Gi", "1536Mi"),
            ("100n", "1m"),
            (".5Gi", "512Mi"),
            ("+1", "1"),
        ] {
            assert!(millis(a).is_some(), "{a}");
            assert_eq!(millis(a), millis(b), "{a} {b}");
        }
        assert_ne!(millis("1G"), millis("1Gi"));
        assert_eq!(millis("1E"), millis("1000P"));
        assert_eq!(millis("-1"), Some(-1000));
        assert_eq!(bytes("1Gi"), Some(1 << 30));
    }

    #[test]
    fn what_is_no_quantity_has_no_value() {
        for s in [
            "", "Gi", "1GiB", "1 Gi", "a", ".", "-", "1..2", "1e", "1e999", "--1", "1-1",
        ] {
            assert_eq!(millis(s), None, "{s}");
        }
    }
}
