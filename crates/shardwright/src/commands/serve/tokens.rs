//! Numbers of tokens as vLLM writes them: `32k` is 32,000, `32K` is 32,768, `auto` is up to the model.

/// 0 where the model decides.
pub(super) fn tokens(text: &str) -> Result<u32, String> {
    if ["auto", "-1"].contains(&text) {
        return Ok(0);
    }
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale: Option<u64> = match unit {
        "" => Some(1),
        "k" => Some(1_000),
        "m" => Some(1_000_000),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        _ => None,
    };
    let whole = |scale: u64| match number.parse::<u64>() {
        Ok(number) => number.checked_mul(scale),
        // vLLM has fractions of decimal units only, such as 25.6k
        Err(_) if unit.is_empty() || unit.chars().any(char::is_uppercase) => None,
        Err(_) => number.parse::<f64>().ok().map(|number| (number * scale as f64) as u64),
    };
    let tokens = scale.and_then(whole).and_then(|tokens| u32::try_from(tokens).ok());
    tokens.ok_or_else(|| {
        "must be a number of tokens such as 32768, 32k (32,000), 32K (32,768), 1M, or auto".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllms_words_for_numbers() {
        let check = |text: &str, expected: Option<u32>| assert_eq!(tokens(text).ok(), expected, "{text}");
        check("4096", Some(4096));
        check("32k", Some(32_000));
        check("32K", Some(32_768));
        check("1M", Some(1 << 20));
        check("1m", Some(1_000_000));
        check("25.6k", Some(25_600));
        for unset in ["auto", "-1", "0"] {
            check(unset, Some(0));
        }
        for bad in
            ["", "k", "-2", "1.5", "25.6K", "1.2.3k", "8G", "32 k", "5000000000", "99999999999M", "1e3", ".k"]
        {
            check(bad, None);
        }
    }
}
