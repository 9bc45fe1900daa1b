//! libFuzzer's entry to the target `header`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(header);
