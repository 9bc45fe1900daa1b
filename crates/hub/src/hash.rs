//! Hashes by which the hub names content: SHA-256 of large files, git's SHA-1 of small ones.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// A hash in lower-case hexadecimal digits, which makes it safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash(String);

impl Hash {
    /// None if it is neither of the two.
    pub(crate) fn parse(text: &str) -> Option<Hash> {
        (is_hex(text) && [40, 64].contains(&text.len())).then(|| Hash(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn kind(&self) -> &'static str {
        if self.0.len() == 64 { "SHA-256" } else { "git hash" }
    }

    /// Begins to compute the hash of this kind for a file of `size` bytes.
    pub(crate) fn hasher(&self, size: u64) -> Context {
        if self.0.len() == 64 {
            return Context::new(&SHA256);
        }
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(format!("blob {size}\0").as_bytes());
        context
    }
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The digits of what was computed.
pub(crate) fn finish(context: Context) -> String {
    context.finish().as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds() {
        let check = |hash: &str, content: &str| {
            let mut context = Hash::parse(hash).unwrap().hasher(content.len() as u64);
            context.update(content.as_bytes());
            assert_eq!(finish(context), hash);
        };
        // `printf 'hello\n' | git hash-object --stdin` and `| sha256sum`
        check("ce013625030ba8dba906f756967f9e9ca394464a", "hello\n");
        check("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "hello\n");
        for bad in ["", "abc", "../../../../../../../../../../etc/passwdxx", &"G".repeat(64), &"A".repeat(40)]
        {
            assert_eq!(Hash::parse(bad), None, "{bad}");
        }
    }
}
