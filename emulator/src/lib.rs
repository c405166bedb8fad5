//! Runs the shipped GPU code on a CPU: the PTX text and the gfx942 code object, lane by lane, with checks
//! that hardware does not make.
//!
//! ```text
//! ptx, gfx942      two interpreters: a module is parsed or decoded once, a team (warp or wave) runs instruction by instruction
//! memory           allocations; every access is inside one, aligned, of bytes that were written, and free of races
//! launch           a grid of teams, one after the other: a `Program` runs a `Team`
//! fault            what went wrong and where: kernel, team, lane, instruction, address
//! runtime          devices, streams, modules: what the emulated driver libraries are made of
//! counts           instructions, lane-instructions and memory transactions of a launch
//! ```
//!
//! Development only: nothing that a user links depends on it. An instruction that is not implemented is a
//! fault that names it, never a guess.

#![forbid(unsafe_code)]

pub mod counts;
pub mod fault;
pub mod gfx942;
pub mod launch;
pub mod memory;
pub mod ptx;
pub mod runtime;
