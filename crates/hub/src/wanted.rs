//! What a user asks for: `OWNER/REPO[:QUANT]`.

use std::str::FromStr;

use crate::error::Error;

/// A repository, and which of its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `OWNER/REPO`.
    pub repo: String,
    /// The quantization, or the name of a file.
    pub quant: Option<String>,
}

impl FromStr for Wanted {
    type Err = Error;

    fn from_str(text: &str) -> Result<Wanted, Error> {
        let (repo, quant) = match text.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (text, None),
        };
        let fits = repo.split_once('/').is_some_and(|(owner, name)| is_name(owner) && is_name(name));
        match fits && quant != Some("") {
            true => Ok(Wanted { repo: repo.to_owned(), quant: quant.map(str::to_owned) }),
            false => Err(Error::Wanted(text.to_owned())),
        }
    }
}

/// The hub's own rule. It also keeps `--`, which joins owner and name in the cache, out of both.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: char| c == '-' || c == '.';
    (1..=96).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with(ends)
        && !name.ends_with(ends)
        && !["--", ".."].iter().any(|bad| name.contains(bad))
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.quant {
            Some(quant) => write!(f, "{}:{quant}", self.repo),
            None => f.write_str(&self.repo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_hub() {
        let check = |text: &str, want: Option<(&str, Option<&str>)>| {
            let found = text.parse::<Wanted>().ok();
            assert_eq!(found.as_ref().map(|w| (w.repo.as_str(), w.quant.as_deref())), want, "{text}");
        };
        check("unsloth/GLM-5-GGUF", Some(("unsloth/GLM-5-GGUF", None)));
        check("a/b_c.d:UD-Q4_K_XL", Some(("a/b_c.d", Some("UD-Q4_K_XL"))));
        check("a/b:BF16/x-00001-of-00002.gguf", Some(("a/b", Some("BF16/x-00001-of-00002.gguf"))));
        for bad in [
            "", "gpt2", "a/", "/b", "a/b/c", "a/b:", "../b", "a/..", "a--b/c", "a/b c", "a/b?x", "a/-b",
            "ä/b",
        ] {
            check(bad, None);
        }
        check(&format!("a/{}", "b".repeat(97)), None);
    }
}
