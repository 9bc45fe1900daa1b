//! libFuzzer's entry to the target `reply`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(reply);
