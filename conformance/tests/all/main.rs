//! All properties and examples that ops, API and recipes must satisfy.
//!
//! A single binary, because each op is compiled for each SIMD level and one binary per topic would compile
//! them all again.

mod accuracy;
mod aggregation;
mod api;
mod at_the_bounds;
mod bad_input;
mod combinations;
mod correction;
mod coverage;
mod differences;
mod disagreements;
mod exact;
mod exact_batch;
mod exact_limbs;
mod extremes;
mod extremes_ops;
mod extremes_recipes;
mod extremes_trees_routing;
mod fast_paths;
mod finite_difference;
mod gate_batch;
mod gates;
mod host_stages;
mod kl_in_recipes;
mod logits;
mod logits_pairs;
mod numbered;
mod on_device;
mod outcome;
mod over_time;
mod peers;
mod prelude;
mod properties;
mod ratios;
mod refused;
mod routing;
mod routing_blocks;
mod routing_traces;
mod selections;
mod sign_table;
mod suite;
mod surrogates;
mod trees;
mod two_calls;
mod values;
mod vocab_parallel;
mod wanted;
mod whole;
mod worked;
