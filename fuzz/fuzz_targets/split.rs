//! libFuzzer's entry to the target `split`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(split);
