//! libFuzzer's entry to the target `stream`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(stream);
