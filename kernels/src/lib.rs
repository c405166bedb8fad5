//! The GPU side of Lockstep: a [team] of 32 or 64 threads, and one entry point for each op and variant of
//! core's table.
//!
//! This crate is compiled in three ways: for `nvptx64-nvidia-cuda` and `amdgcn-amd-amdhsa` by
//! `cargo xtask artifacts` (with a compiler that has the unstable features below), and for the host by
//! everything else, where it contains the built [`artifacts`] and tests the team with threads as lanes. It
//! contains no formulas.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(
    any(target_arch = "nvptx64", target_arch = "amdgpu"),
    feature(abi_gpu_kernel, core_intrinsics, link_llvm_intrinsics),
    allow(internal_features)
)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
extern crate std;

mod block;
mod scan;
pub mod team;
pub mod wave;

#[cfg(target_arch = "amdgpu")]
mod amd;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod artifacts;
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
mod entry;
#[cfg(target_arch = "nvptx64")]
mod nvidia;
