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
fn no_driver_names_what_was_looked_for() {
    if let Err(Error::NoDriver { api, tried, loader }) = open(0) {
        assert_eq!(api, "CUDA");
        assert!(tried.iter().any(|name| name.contains("cuda")), "{tried:?}");
        assert!(loader.contains("cuda"), "{loader}");
    } else {
        println!("this machine has the driver: {}", devices());
    }
}
