//! The PTX interpreter: instruction by instruction against the ISA's definitions, the parser, the shipped
//! entry points, and planted faults.

mod blocks;
mod compare;
mod convert;
mod device;
mod entries;
mod exact;
mod exchange;
mod few_rows;
mod float;
mod flow;
mod fused;
mod integer;
mod lanes;
mod memory;
mod parser;
mod planted;
mod planted_shipped;
mod robust;
mod shared;
mod special;
