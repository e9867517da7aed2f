//! The 64-bit ID that carries its shard: `shard << 46 | type << 36 | local`; bits 63 and 62 are 0.

/// Width of the local id, in bits; it begins at bit 0.
pub const LOCAL_BITS: u32 = 36;
/// Lowest bit of the type.
pub const TYPE_SHIFT: u32 = LOCAL_BITS;
/// Width of the type, in bits.
pub const TYPE_BITS: u32 = 10;
/// Lowest bit of the shard.
pub const SHARD_SHIFT: u32 = TYPE_SHIFT + TYPE_BITS;
/// Width of the shard, in bits.
pub const SHARD_BITS: u32 = 16;
/// Lowest of the two bits that are reserved.
pub const RESERVED_SHIFT: u32 = SHARD_SHIFT + SHARD_BITS;

/// Highest type.
pub const MAX_TYPE: u16 = (1 << TYPE_BITS) - 1;
/// Highest local id.
pub const MAX_LOCAL: u64 = (1 << LOCAL_BITS) - 1;

/// An ID taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Virtual shard, 0 to 65535.
    pub shard: u16,
    /// Type of the object, 0 to 1023.
    pub type_id: u16,
    /// `local_id` of the object in the table of its type, 0 to 2^36 - 1.
    pub local: u64,
}

/// Why there is no such ID.
#[derive(thiserror::Error, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdError {
    /// Bit 63 or 62 is set.
    #[error(
        "{0} is no ID: bits 63 and 62 are reserved and must be 0, so that the highest ID is 4611686018427387903"
    )]
    Reserved(u64),
    /// The type does not fit.
    #[error("type {0} is out of range: a type is 0 to {MAX_TYPE}")]
    Type(u16),
    /// The local id does not fit.
    #[error("local id {0} is out of range: a local id is 0 to {MAX_LOCAL}")]
    Local(u64),
}

impl Id {
    /// The ID as a number.
    pub const fn encode(self) -> Result<u64, IdError> {
        if self.type_id > MAX_TYPE {
            return Err(IdError::Type(self.type_id));
        }
        if self.local > MAX_LOCAL {
            return Err(IdError::Local(self.local));
        }
        Ok((self.shard as u64) << SHARD_SHIFT | (self.type_id as u64) << TYPE_SHIFT | self.local)
    }

    /// Takes a number apart.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the masks are as wide as the types they go into"
    )]
    pub const fn decode(id: u64) -> Result<Self, IdError> {
        if id >> RESERVED_SHIFT != 0 {
            return Err(IdError::Reserved(id));
        }
        Ok(Self {
            shard: (id >> SHARD_SHIFT) as u16,
            type_id: (id >> TYPE_SHIFT) as u16 & MAX_TYPE,
            local: id & MAX_LOCAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTOR: u64 = 241_294_492_511_762_325;

    #[test]
    fn the_published_example() {
        let id = Id {
            shard: 3429,
            type_id: 1,
            local: 7_075_733,
        };
        assert_eq!((Id::decode(VECTOR), id.encode()), (Ok(id), Ok(VECTOR)));
    }

    #[test]
    fn the_ends_of_the_range() {
        let highest = Id {
            shard: u16::MAX,
            type_id: MAX_TYPE,
            local: MAX_LOCAL,
        };
        assert_eq!(highest.encode(), Ok((1 << 62) - 1));
        assert_eq!(
            Id::decode(0),
            Ok(Id {
                shard: 0,
                type_id: 0,
                local: 0
            })
        );
        for reserved in [1 << 62, 1 << 63, u64::MAX] {
            assert_eq!(Id::decode(reserved), Err(IdError::Reserved(reserved)));
        }
        assert_eq!(
            Id {
                type_id: 1024,
                ..highest
            }
            .encode(),
            Err(IdError::Type(1024))
        );
        assert_eq!(
            Id {
                local: 1 << 36,
                ..highest
            }
            .encode(),
            Err(IdError::Local(1 << 36))
        );
    }

    proptest! {
        #[test]
        fn encode_and_decode_are_each_others_inverse(shard: u16, type_id in 0..=MAX_TYPE, local in 0..=MAX_LOCAL) {
            let id = Id { shard, type_id, local };
            prop_assert_eq!(Id::decode(id.encode().unwrap()), Ok(id));
        }

        #[test]
        fn every_number_below_two_to_the_62_is_an_id(n in 0..1u64 << 62) {
            prop_assert_eq!(Id::decode(n).unwrap().encode(), Ok(n));
        }
    }
}
