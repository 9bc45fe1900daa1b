//! libFuzzer's entry to the target `template`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(template);
