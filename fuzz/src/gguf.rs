//! Headers of GGUF files, and every look-up in their metadata.

use shardwright_gguf::{Header, Meta, parse_header};

use crate::one_line;

/// The bytes are a file.
pub fn header(data: &[u8]) {
    match parse_header(data) {
        Ok(header) => {
            check(&header, data.len() as u64);
            look_up(&header.meta);
        }
        Err(e) => one_line(&e),
    }
}

/// What the header promises about its tensors.
pub(crate) fn check(header: &Header, file: u64) {
    let mut end = 0;
    for t in header.tensors.iter().filter(|_| header.unknown.is_empty()) {
        assert!(t.offset.is_multiple_of(header.alignment.into()) && t.offset >= end, "{t:?}");
        end = t.offset + t.bytes;
        assert!(end <= file && t.bytes > 0 && !t.ne.contains(&0), "{t:?} in {file} bytes");
        let row = t.quant.row_bytes(t.ne[0] as usize).expect("whole blocks");
        assert_eq!(row as u64 * t.ne[1..].iter().product::<u64>(), t.bytes, "{t:?}");
    }
    for warning in &header.warnings {
        one_line(warning);
    }
}

/// Every key as everything.
pub(crate) fn look_up(meta: &Meta) {
    macro_rules! all {
        ($key:expr, $($t:ty),*) => { $(
            complain(meta.need::<$t>($key));
            complain(meta.may::<Vec<$t>>($key));
            [1, 3].into_iter().for_each(|layers| complain(meta.may_per_layer::<$t>($key, layers)));
        )* };
    }
    for (key, value) in meta.iter() {
        all!(key, u32, i32, u64, i64, f32, f64, bool, String);
        complain(meta.may_strings(key));
        value.to_string();
    }
    complain(meta.need::<u32>("no such key"));
}

fn complain<T>(result: shardwright_gguf::Result<T>) {
    if let Err(e) = result {
        one_line(&e);
    }
}
