//! On a machine without an NVIDIA driver, its absence is an error value.

use lockstep_cuda::{devices, open};
use lockstep_gpu_testing::absence::{self, Vendor};

const VENDOR: Vendor = Vendor { api: "CUDA", library: "cuda", no_device: (100, "CUDA_ERROR_NO_DEVICE") };

#[test]
fn open_and_report_agree_and_do_not_panic() {
    absence::open_and_report_agree(open(0), devices());
}

#[test]
fn what_is_missing_is_named() {
    absence::what_is_missing_is_named(VENDOR, open(0), &devices());
}
