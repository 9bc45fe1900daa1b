//! libFuzzer's entry to the target `tokenizer`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(tokenizer);
