//! Serialises floats in JSON by their bits, so that they round-trip exactly.

macro_rules! by_bits {
    ($one:ident, $many:ident, $own:ty, $bits:ty) => {
        /// One float.
        pub(crate) mod $one {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(crate) fn serialize<S: Serializer>(x: &$own, to: S) -> Result<S::Ok, S::Error> {
                x.to_bits().serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$own, D::Error> {
                <$bits>::deserialize(from).map(<$own>::from_bits)
            }
        }

        /// A list of floats.
        pub(crate) mod $many {
            use serde::{Deserialize, Deserializer, Serializer};

            pub(crate) fn serialize<S: Serializer>(x: &[$own], to: S) -> Result<S::Ok, S::Error> {
                to.collect_seq(x.iter().map(|x| x.to_bits()))
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<$own>, D::Error> {
                let bits = Vec::<$bits>::deserialize(from)?;
                Ok(bits.into_iter().map(<$own>::from_bits).collect())
            }
        }
    };
}
by_bits!(float, floats, f32, u32);
by_bits!(double, doubles, f64, u64);
