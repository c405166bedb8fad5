//! Checks of what a vendor's crate reports on a machine without its driver or hardware.

use lockstep_gpu::{Driver, Error, Gpu, Report};

/// The names that a vendor uses.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// The API.
    pub api: &'static str,
    /// A part of every name of its library.
    pub library: &'static str,
    /// Code and name of "no device".
    pub no_device: (i32, &'static str),
}

/// Opening and reporting agree, and neither panics.
pub fn open_and_report_agree<D: Driver>(opened: Result<Gpu<D>, Error>, report: Report) {
    println!("{report}");
    match opened {
        Ok(gpu) => assert!(report.usable(), "{}", gpu.info().name),
        Err(error) => {
            println!("{error}");
            let told = report.missing.or_else(|| report.devices[0].unusable.clone());
            assert_eq!(told.as_ref(), Some(&error));
        }
    }
}

/// The missing part is named.
pub fn what_is_missing_is_named<D: Driver>(vendor: Vendor, opened: Result<Gpu<D>, Error>, report: &Report) {
    match opened {
        Err(Error::NoDriver { api, tried, loader }) => {
            assert_eq!(api, vendor.api);
            assert!(tried.iter().any(|name| name.contains(vendor.library)), "{tried:?}");
            assert!(loader.contains(vendor.library), "{loader}");
        }
        // The library without a device, as with only Debian's package installed.
        Err(Error::NoDevice { api, fault }) => {
            assert_eq!((api, (fault.code, &fault.name[..])), (vendor.api, vendor.no_device));
            assert!(report.library.is_some(), "it said that there is no device");
        }
        Err(other) => println!("{other}"),
        Ok(gpu) => println!("{}", gpu.info().name),
    }
}
