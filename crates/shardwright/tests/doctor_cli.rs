//! `shardwright doctor`, with whatever GPUs there are.
#![allow(clippy::unwrap_used)]

mod util;

use serde_json::Value;
use util::run;

#[test]
fn a_box_is_looked_at() {
    let all: Value = serde_json::from_str(&run(&["doctor", "--json"])).unwrap();
    assert!(all["host"]["cores"].as_u64().unwrap() > 0);
    let [cards, pairs] = ["cards", "pairs"].map(|name| all[name].as_array().unwrap().len());
    assert!(all["compiler"].is_null() || pairs == cards * cards.saturating_sub(1) / 2, "{all}");
    // a name, or null where nobody tells
    for pair in all["pairs"].as_array().unwrap() {
        assert!(pair["link"].is_string() || pair.get("link").is_some_and(Value::is_null), "{pair}");
    }
    let findings = all["findings"].as_array().unwrap();
    // where there is no GPU, that is what is found
    assert!(cards > 0 || findings.len() == 1, "{all}");
    let text = run(&["doctor"]);
    assert!(
        text.contains("cores") && text.contains("kernel compiler") && text.contains("library of sums"),
        "{text}"
    );
}
