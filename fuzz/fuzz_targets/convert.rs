//! libFuzzer's entry to the target `convert`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(convert);
