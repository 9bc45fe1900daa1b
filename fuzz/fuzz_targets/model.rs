//! libFuzzer's entry to the target `model`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(model);
