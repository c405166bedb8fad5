//! Floats in JSON: by their bits, so that they round-trip exactly, or as numbers, which are finite.

use serde::{Deserialize, Deserializer};

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

/// A struct whose fields of type `f64` and `Vec<f64>` read `null` as NaN, for serde_json writes it in place
/// of an infinity or a NaN.
macro_rules! with_nan {
    ($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        with_nan! { [$(#[$meta])* pub struct $name] [] $($fields)* }
    };
    // What is before the fields, the fields that are done, and the others.
    ([$($head:tt)*] [$($done:tt)*]) => { $($head)* { $($done)* } };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* pub $name:ident: f64, $($rest:tt)*) => {
        with_nan! { $head [$($done)* $(#[$meta])*
            #[serde(deserialize_with = "crate::train::bits::or_nan")] pub $name: f64,] $($rest)* }
    };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* pub $name:ident: Vec<f64>, $($rest:tt)*) => {
        with_nan! { $head [$($done)* $(#[$meta])*
            #[serde(deserialize_with = "crate::train::bits::each_or_nan")] pub $name: Vec<f64>,] $($rest)* }
    };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* pub $name:ident: $type:ty, $($rest:tt)*) => {
        with_nan! { $head [$($done)* $(#[$meta])* pub $name: $type,] $($rest)* }
    };
}
pub(crate) use with_nan;

/// Reads a number; `null` is NaN.
pub(crate) fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Reads a list of such numbers.
pub(crate) fn each_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(from)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}
