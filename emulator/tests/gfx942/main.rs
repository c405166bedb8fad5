//! The gfx942 interpreter: decoding against LLVM, semantics, shipped kernels, planted faults.

mod decoding;
#[path = "../ptx/device.rs"]
mod device;
mod division;
mod edges;
mod faults;
mod llvm;
mod machine;
mod random;
mod robust;
mod scalar;
mod sequences;
mod shipped;
mod vector;
