//! Runs the shipped GPU code on a CPU: the PTX text and the gfx942 code object, lane by lane, with checks
//! that hardware does not make.
//!
//! ```text
//! ptx, gfx942      interpreters: a module is parsed or decoded once, a team (warp or wave) runs step by step
//! memory           allocations, and what a block shares; every access is in bounds, aligned, of written
//!                  bytes, and free of races
//! launch           a grid of teams, run in turn by a `Program`
//! fault            what went wrong and where: kernel, team, lane, instruction, address
//! runtime          devices, streams, modules: the basis of the emulated driver libraries
//! counts           instructions, lane-instructions and memory transactions of a launch
//! ```
//!
//! Development only: nothing that a user links depends on it. An unimplemented instruction is a fault that
//! names it, never a guess.

#![forbid(unsafe_code)]

pub mod counts;
pub mod fault;
pub mod gfx942;
pub mod launch;
pub mod memory;
pub mod ptx;
pub mod runtime;
