//! libFuzzer's entry to the target `quant`.
#![cfg_attr(fuzzing, no_main)]

shardwright_fuzz::entry!(quant);
