//! What a pure room wants told to people; `report::events` publishes it.

/// What a pure room wants told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether it needs a person's attention.
    pub warning: bool,
    /// CamelCase reason, from a fixed list.
    pub reason: &'static str,
    /// For people.
    pub note: String,
}

impl Note {
    /// Something went as it should.
    pub fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            note: note.into(),
        }
    }
    /// Something needs attention.
    pub fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            note: note.into(),
        }
    }
}
