//! A vendor's shared library, loaded at run time, and a table of its functions.

use crate::Error;
#[doc(hidden)]
pub use libloading::Library;

/// Loads the first of `names` that the system has, and returns the library and that name. Errors with
/// [`Error::NoDriver`].
pub fn open(api: &'static str, names: &[&str]) -> Result<(Library, String), Error> {
    let mut said = Vec::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers. These are the vendors' driver libraries under
        // their own names, which expect to be loaded by any program.
        #[allow(unsafe_code)]
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok((library, (*name).to_owned())),
            Err(error) => said.push((*name, words(&error))),
        }
    }
    // A file that exists but does not load is more informative than one that is missing.
    let missing = |(name, said): &&(&str, String)| said.starts_with(&format!("{name}: cannot open"));
    let loader = said.iter().find(|said| !missing(said)).or(said.first()).map(|(_, said)| said.clone());
    let tried = names.iter().map(|name| (*name).to_owned()).collect();
    Err(Error::NoDriver { api, tried, loader: loader.unwrap_or_default() })
}

/// A library and the table of its functions, none of which outlives it.
pub struct Loaded<S> {
    /// The table of functions.
    pub symbols: S,
    file: String,
    /// The library that holds the functions. Never unloaded before them.
    _library: Library,
}

impl<S> Loaded<S> {
    /// Loads the first of `names` that the system has, and its functions with `table`, the `load` of a
    /// [`symbols!`](crate::symbols) table.
    ///
    /// # Safety
    /// The library's functions have the argument types that the table declares.
    #[allow(unsafe_code)]
    pub unsafe fn open(
        api: &'static str,
        names: &[&str],
        table: unsafe fn(&Library, &str) -> Result<S, Error>,
    ) -> Result<Self, Error> {
        let (library, file) = open(api, names)?;
        // SAFETY: the caller vouches for the argument types; the library is stored beside the table.
        let symbols = unsafe { table(&library, &file)? };
        Ok(Loaded { symbols, file, _library: library })
    }

    /// Returns the name under which the library was found.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl<S> std::fmt::Debug for Loaded<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)
    }
}

/// Returns the system loader's message, which libloading keeps as the error's source.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the error for a function that a library lacks.
pub fn missing(library: &str, symbol: &'static str, error: &libloading::Error) -> Error {
    Error::MissingSymbol { library: library.to_owned(), symbol, loader: words(error) }
}

/// Returns the text that a C function left in a buffer.
pub fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// Declares a table of a library's functions as `name(arguments);` lines. They return the vendor's code as an
/// `i32` unless declared otherwise; functions that older versions lack are `optional`.
///
/// Codes are numbers rather than a Rust `enum`, because a driver newer than this program returns codes that
/// no list here contains.
#[macro_export]
macro_rules! symbols {
    (
        $(#[$meta:meta])* struct $table:ident {
            $($name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $returns:ty)?;)*
        }
        optional {
            $($other:ident($($other_arg:ident: $other_type:ty),* $(,)?);)*
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg: $type),*) -> $crate::returns!($($returns)?),)*
            $(pub(crate) $other: Option<unsafe extern "C" fn($($other_arg: $other_type),*) -> i32>,)*
        }

        impl $table {
            /// Finds every function. Errors with the name of the first that is missing.
            ///
            /// # Safety
            /// The functions of `library` have these arguments, and are used only while it is loaded.
            pub(crate) unsafe fn load(
                library: &$crate::library::Library,
                file: &str,
            ) -> Result<Self, $crate::Error> {
                Ok($table {
                    $(
                        // SAFETY: the caller's.
                        $name: *unsafe { library.get(stringify!($name)) }
                            .map_err(|error| $crate::library::missing(file, stringify!($name), &error))?,
                    )*
                    $(
                        // SAFETY: the caller's.
                        $other: unsafe { library.get(stringify!($other)) }.ok().map(|symbol| *symbol),
                    )*
                })
            }
        }
    };
}

/// Implements those methods of [`Driver`](crate::Driver) that are one call of the same form in both vendors'
/// APIs, with the `call!` of the crate: `make` returns the handle that the function writes to its first
/// argument, `end` ignores the function's result, and `on` returns it.
#[macro_export]
macro_rules! calls {
    (
        $(make $make:ident($($size:ident: $type:ty)?) = $create:ident($($given:expr),*);)*
        $(end $end:ident = $destroy:ident;)*
        $(on $on:ident($($handle:ident),+) = $function:ident($($flags:expr)?);)*
    ) => {
        $(
            fn $make(&self, $($size: $type)?) -> Result<$crate::Handle, $crate::Fault> {
                let mut made = ::std::ptr::null_mut();
                call!(self.$create(&mut made, $($given),*))?;
                Ok($crate::Handle(made))
            }
        )*
        $(
            unsafe fn $end(&self, handle: $crate::Handle) {
                _ = call!(self.$destroy(handle.0));
            }
        )*
        $(
            unsafe fn $on(&self, $($handle: $crate::Handle),+) -> Result<(), $crate::Fault> {
                call!(self.$function($($handle.0,)+ $($flags)?))
            }
        )*
    };
}

/// A function's result: what is said, or a code.
#[doc(hidden)]
#[macro_export]
macro_rules! returns {
    () => {
        i32
    };
    ($type:ty) => {
        $type
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_the_loaders_words() {
        let Err(Error::NoDriver { api, tried, loader }) =
            open("CUDA", &["libno-such-a.so", "libno-such-b.so"])
        else {
            panic!("there is no such library")
        };
        assert_eq!((api, tried.len()), ("CUDA", 2));
        assert!(loader.contains("libno-such-a.so"), "{loader}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_function_that_is_not_there_is_named() {
        mod table {
            #![allow(unsafe_code, dead_code)]
            crate::symbols! {
                struct Table { strlen(text: *const std::ffi::c_char); no_such_function(); } optional {}
            }
        }
        let (library, file) = open("C", &["libc.so.6"]).unwrap();
        // SAFETY: neither function is called.
        #[allow(unsafe_code)]
        let table = unsafe { table::Table::load(&library, &file) };
        let Err(Error::MissingSymbol { library, symbol, .. }) = table else { panic!("no such function") };
        assert_eq!((&library[..], symbol), ("libc.so.6", "no_such_function"));
    }

    #[test]
    fn text_ends_at_the_nul_or_with_the_buffer() {
        assert_eq!([text(b"ab\0c"), text(b"ab"), text(b"")], ["ab", "ab", ""]);
    }
}
