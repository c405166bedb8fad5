//! On a machine without AMD's runtime, its absence is an error value.

use lockstep_gpu_testing::absence::{self, Vendor};
use lockstep_rocm::{devices, open};

const VENDOR: Vendor = Vendor { api: "HIP", library: "amdhip64", no_device: (100, "hipErrorNoDevice") };

#[test]
fn open_and_report_agree_and_do_not_panic() {
    absence::open_and_report_agree(open(0), devices());
}

#[test]
fn what_is_missing_is_named() {
    absence::what_is_missing_is_named(VENDOR, open(0), &devices());
}
