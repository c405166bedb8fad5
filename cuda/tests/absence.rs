//! On a machine without an NVIDIA driver its absence is a value.

use lockstep_cuda::{Error, devices, open};

#[test]
fn open_and_report_agree_and_do_not_panic() {
    let report = devices();
    println!("{report}");
    match open(0) {
        Ok(gpu) => assert!(report.usable(), "{gpu:?}"),
        Err(error) => {
            println!("{error}");
            let told = report.missing.or_else(|| report.devices[0].unusable.clone());
            assert_eq!(told.as_ref(), Some(&error));
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    match open(0) {
        Err(Error::NoDriver { api, tried, loader }) => {
            assert_eq!(api, "CUDA");
            assert!(tried.iter().any(|name| name.contains("cuda")), "{tried:?}");
            assert!(loader.contains("cuda"), "{loader}");
        }
        // The runtime without a device: Debian's package is enough for it.
        Err(Error::NoDevice { api, fault }) => {
            assert_eq!((api, fault.code, &fault.name[..]), ("CUDA", 100, "CUDA_ERROR_NO_DEVICE"));
            assert!(devices().library.is_some(), "it said that there is no device");
        }
        other => println!("{other:?}"),
    }
}
