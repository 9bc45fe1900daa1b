//! GPT-2's spelling of bytes as printable characters.

use std::sync::LazyLock;

/// The character of each byte: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100.
static CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100;
    std::array::from_fn(|b| {
        let code = if matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            b as u32
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).expect("below U+0200, no surrogate")
    })
});

/// The byte of each character up to the last that stands for one.
static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut table = [None; 0x144];
    for (b, &c) in (0..=u8::MAX).zip(CHARS.iter()) {
        table[c as usize] = Some(b);
    }
    table
});

/// Bytes as characters.
pub(crate) fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| CHARS[b as usize]).collect()
}

/// The bytes that a text spells; None if it holds a character that stands for no byte.
pub(crate) fn spelled_bytes(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    text.chars().map(|c| BYTES.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let spelled = spell(&all);
        assert_eq!(spelled.chars().count(), 256);
        assert_eq!(spelled_bytes(spelled.as_bytes()), Some(all));
        assert_eq!(spell(b" \n\x7f\xad"), "ĠĊġŃ");
        assert_eq!(spelled_bytes("a b".as_bytes()), None);
    }
}
