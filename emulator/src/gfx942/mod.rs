//! gfx942 (AMD Instinct MI300, CDNA3): machine code of a code object, wave by wave.

pub mod code;
