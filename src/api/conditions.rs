//! Conditions in kstatus form: `Ready`, `Reconciling`, `Stalled`, and what is ours besides.
//!
//! kstatus reads them in the order deletionTimestamp, generation, `Reconciling`, `Stalled`, `Ready`, so
//! `Ready=True` never stands beside `Reconciling=True` or `Stalled=True`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The object does what its spec says.
pub const READY: &str = "Ready";
/// The operator works on it.
pub const RECONCILING: &str = "Reconciling";
/// It cannot go on without help; the reason and message say what helps.
pub const STALLED: &str = "Stalled";
/// A ShardRange's claim on its shards is valid.
pub const ACCEPTED: &str = "Accepted";
/// Every shard on record is covered by a ShardRange.
pub const SHARDS_COVERED: &str = "ShardsCovered";

/// Each commit on a pair is on two servers before it is acknowledged.
pub const DURABLE: &str = "Durable";
/// The volumes of a pair are as large as the spec says.
pub const STORAGE_AS_SPECIFIED: &str = "StorageAsSpecified";

/// The longest message that is written; Kubernetes allows 32 KiB, people read less.
pub const MAX_MESSAGE: usize = 1024;

/// What a pure room says of one condition; the clock is added when it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Said {
    /// One of the constants above.
    pub type_: &'static str,
    /// `Some(true)` is `True`, `None` is `Unknown`.
    pub status: Option<bool>,
    /// CamelCase, from a fixed list.
    pub reason: &'static str,
    /// For people; says what to do where something is to be done.
    pub message: String,
}

impl Said {
    /// A condition that is `True`.
    pub fn yes(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            status: Some(true),
            reason,
            message: message.into(),
        }
    }
    /// A condition that is `False`.
    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            status: Some(false),
            reason,
            message: message.into(),
        }
    }
}

/// The state of an object as a whole, from which the three kstatus conditions follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Overall {
    /// All is as the spec says.
    Ready {
        /// CamelCase.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// Being worked on; will be ready without anyone's help.
    Working {
        /// CamelCase.
        reason: &'static str,
        /// What is being done, and what is waited for.
        message: String,
    },
    /// Needs a person.
    Stalled {
        /// CamelCase.
        reason: &'static str,
        /// What is wrong and what helps.
        message: String,
    },
}

impl Overall {
    /// The reason, whichever state it is.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ready { reason, .. } | Self::Working { reason, .. } | Self::Stalled { reason, .. } => {
                reason
            }
        }
    }
    /// The message, whichever state it is.
    pub fn message(&self) -> &str {
        match self {
            Self::Ready { message, .. } | Self::Working { message, .. } | Self::Stalled { message, .. } => {
                message
            }
        }
    }
    /// Whether this is [`Overall::Ready`].
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    /// The three kstatus conditions that say this.
    pub fn said(&self) -> [Said; 3] {
        let (r, m) = (self.reason(), self.message());
        let quiet = |type_| Said::no(type_, r, "");
        match self {
            Self::Ready { .. } => [Said::yes(READY, r, m), quiet(RECONCILING), quiet(STALLED)],
            Self::Working { .. } => [
                Said::no(READY, r, m),
                Said::yes(RECONCILING, r, m),
                quiet(STALLED),
            ],
            Self::Stalled { .. } => [
                Said::no(READY, r, m),
                quiet(RECONCILING),
                Said::yes(STALLED, r, m),
            ],
        }
    }
}

/// Puts what was said into `conditions`: `lastTransitionTime` moves only when the status changes, so that a
/// pass that finds nothing new changes nothing (rule O2).
pub fn set(conditions: &mut Vec<Condition>, said: &[Said], generation: Option<i64>, now: Timestamp) {
    for s in said {
        let status = match s.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let mut message = s.message.clone();
        if message.len() > MAX_MESSAGE {
            let end = (0..MAX_MESSAGE)
                .rev()
                .find(|i| message.is_char_boundary(*i))
                .unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        let mut new = Condition {
            type_: s.type_.to_owned(),
            status: status.to_owned(),
            reason: s.reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: Time(now),
        };
        match conditions.iter_mut().find(|c| c.type_ == s.type_) {
            Some(old) => {
                if old.status == new.status {
                    new.last_transition_time = old.last_transition_time.clone();
                }
                *old = new;
            }
            None => conditions.push(new),
        }
    }
}

/// Whether `conditions` has `type_` with status `True` for `generation` (any, when `None`).
pub fn is_true(conditions: &[Condition], type_: &str, generation: Option<i64>) -> bool {
    conditions.iter().any(|c| {
        c.type_ == type_
            && c.status == "True"
            && (generation.is_none() || c.observed_generation == generation)
    })
}

/// The schema that metav1.Condition has in Go; the one derived from the type lacks its limits.
pub fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 16,
        "description": "Conditions in kstatus form.",
        "items": {
            "type": "object",
            "description": "One aspect of the state, as metav1.Condition.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "description": "CamelCase type.",
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown." },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0, "description": "The generation that the condition speaks of." },
                "lastTransitionTime": { "type": "string", "format": "date-time", "description": "When the status last changed." },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "description": "Why, in one CamelCase word for machines.",
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "message": { "type": "string", "maxLength": 32768, "description": "Why, for people." }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_status_keeps_its_transition_time() {
        let (t0, t1) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let mut c = vec![];
        set(&mut c, &[Said::yes(READY, "Serving", "a")], Some(1), t0);
        set(&mut c, &[Said::yes(READY, "Serving", "b")], Some(2), t1);
        assert_eq!(
            (c.len(), c[0].last_transition_time.0, c[0].message.as_str()),
            (1, t0, "b")
        );
        set(&mut c, &[Said::no(READY, "Broken", "c")], Some(2), t1);
        assert_eq!(c[0].last_transition_time.0, t1);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let mut c = vec![];
        set(
            &mut c,
            &[Said::yes(READY, "R", "ü".repeat(2000))],
            None,
            Timestamp::UNIX_EPOCH,
        );
        assert!(c[0].message.len() <= MAX_MESSAGE + 2 && c[0].message.ends_with('…'));
    }

    #[test]
    fn ready_never_stands_beside_reconciling_or_stalled() {
        for o in [
            Overall::Ready {
                reason: "A",
                message: String::new(),
            },
            Overall::Working {
                reason: "A",
                message: String::new(),
            },
            Overall::Stalled {
                reason: "A",
                message: String::new(),
            },
        ] {
            assert_eq!(o.said().iter().filter(|s| s.status == Some(true)).count(), 1);
        }
    }
}
