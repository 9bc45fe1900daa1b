//! Where a JSON schema is wrong: the compiler says what, but not where. Only what it refuses too is looked for.

use serde_json::Value as Json;
use std::collections::HashSet;

/// What `type` may say.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Their values are schemas, or lists of them.
const INNER: [&str; 7] =
    ["additionalItems", "additionalProperties", "allOf", "anyOf", "items", "oneOf", "prefixItems"];

/// Their values have schemas under names that are the author's own.
const NAMED: [&str; 2] = ["patternProperties", "properties"];

/// The first fault, with its place, among all schemas that the root leads to.
pub(crate) fn check(root: &Json) -> Result<(), String> {
    let mut followed = HashSet::new();
    let mut left = vec![("#".to_owned(), root)];
    while let Some((place, schema)) = left.pop() {
        let Json::Object(fields) = schema else { continue };
        if let Some(found) = fields.get("type").and_then(unknown_type) {
            return Err(at(&format!("{place}/type"), &format!("`{}` is no type", found.escape_debug())));
        }
        if let Some(Json::String(reference)) = fields.get("$ref") {
            left.extend(follow(root, &place, reference, &mut followed)?);
        }
        for (key, value) in fields {
            let place = format!("{place}/{key}");
            match value {
                Json::Array(schemas) if INNER.contains(&key.as_str()) => {
                    left.extend(schemas.iter().enumerate().map(|(i, inner)| (format!("{place}/{i}"), inner)));
                }
                Json::Object(schemas) if NAMED.contains(&key.as_str()) => {
                    left.extend(schemas.iter().map(|(name, inner)| (format!("{place}/{name}"), inner)));
                }
                inner if INNER.contains(&key.as_str()) => left.push((place, inner)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn at(place: &str, why: &str) -> String {
    format!("`{}`: {why}", place.escape_debug())
}

fn unknown_type(given: &Json) -> Option<&str> {
    let names = given.as_array().map_or(std::slice::from_ref(given), Vec::as_slice);
    names.iter().filter_map(Json::as_str).find(|name| !TYPES.contains(name))
}

/// Where a reference leads, by way of others that lead on; None if that is known already.
fn follow<'a>(
    root: &'a Json,
    from: &str,
    reference: &'a str,
    followed: &mut HashSet<&'a str>,
) -> Result<Option<(String, &'a Json)>, String> {
    let (mut place, mut reference, mut passed) = (from, reference, HashSet::new());
    while followed.insert(reference) {
        passed.insert(reference);
        let target = look_up(root, reference).map_err(|why| at(&format!("{place}/$ref"), &why))?;
        match target.get("$ref").and_then(Json::as_str) {
            None => return Ok(Some((reference.to_owned(), target))),
            Some(next) => (place, reference) = (reference, next),
        }
    }
    match passed.contains(reference) {
        true => Err(at(&format!("{place}/$ref"), "the reference leads back to itself")),
        false => Ok(None),
    }
}

/// The part of the schema that a reference names.
fn look_up<'a>(root: &'a Json, reference: &str) -> Result<&'a Json, String> {
    let shown = reference.escape_debug();
    let Some(path) = reference.strip_prefix('#').filter(|path| path.is_empty() || path.starts_with('/'))
    else {
        return Err(format!("`{shown}` is not followed, only references within the schema are (`#/...`)"));
    };
    let names = path.strip_prefix('/').filter(|names| !names.is_empty());
    let found = names.into_iter().flat_map(|names| names.split('/')).try_fold(root, |at, name| match at {
        Json::Array(list) => list.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    });
    found.ok_or_else(|| format!("`{shown}` leads nowhere"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_have_a_place() {
        let check = |schema: Json, expected: Option<&str>| {
            let found = check(&schema).err();
            assert_eq!(found.as_deref().map(|why| why.split('`').nth(1).unwrap()), expected, "{found:?}");
        };
        check(json!({"type": "not-a-type"}), Some("#/type"));
        check(json!({"type": ["null", "text"]}), Some("#/type"));
        check(json!({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}), Some("#/$defs/n/$ref"));
        check(
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            Some("#/$defs/b/$ref"),
        );
        check(json!({"items": {"anyOf": [{}, {"$ref": "http://x/y"}]}}), Some("#/items/anyOf/1/$ref"));
        check(json!({"properties": {"a\n": {"$ref": "#/$defs/none"}}}), Some("#/properties/a\\n/$ref"));
        // names that look like keywords, values that look like schemas, and what nothing leads to
        check(json!({"properties": {"type": {"const": {"type": "x", "$ref": "y"}}, "$ref": {}}}), None);
        check(json!({"$defs": {"unused": {"type": "x"}}}), None);
        check(json!({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}), None);
        check(
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
                     "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "string"}}}),
            None,
        );
        check(
            json!({"$ref": "#/properties/a/items", "properties": {"a": {"items": {"type": "boolean"}}}}),
            None,
        );
    }
}
