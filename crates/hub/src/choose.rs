//! Which of a repository's files make up the model that was asked for.

use std::collections::BTreeMap;

use shardwright_gguf::parse_part_name;

use crate::error::{Error, Result, gb};
use crate::wanted::Wanted;

/// A file's name, with the folders inside of the repository, and its size.
pub(crate) type Named<'a> = (&'a str, u64);

/// What is taken if the user names nothing.
const DEFAULT: &str = "Q4_K_M";

/// Missing parts that an error names.
const MOST_NAMED: usize = 10;

/// A model of the repository: a file, or what there is of the parts of a split one.
struct Model<'a> {
    /// `BF16/GLM-5-BF16`: without number and ending.
    stem: &'a str,
    count: u32,
    /// By number, from 0.
    parts: BTreeMap<u32, Part<'a>>,
}

struct Part<'a> {
    index: usize,
    path: &'a str,
    size: u64,
}

/// Where the files of the one model that fits are in the list, in the order of its parts.
pub(crate) fn choose(files: &[Named<'_>], wanted: &Wanted) -> Result<Vec<usize>> {
    let models = models(files);
    if models.is_empty() {
        return Err(Error::Choice(format!("{} has no GGUF model", wanted.repo)));
    }
    let (tag, found) = match &wanted.quant {
        Some(tag) => (tag.as_str(), fitting(&models, tag)),
        None if models.len() == 1 => (DEFAULT, vec![&models[0]]),
        None => (DEFAULT, fitting(&models, DEFAULT)),
    };
    match found[..] {
        [model] => model.complete(&wanted.repo),
        [] => Err(Error::Choice(format!("{} has no {tag}; there are: {}", wanted.repo, list(&models)))),
        _ => Err(Error::Choice(format!(
            "{} has {} models that are {tag}; name one by its file: {}",
            wanted.repo,
            found.len(),
            found.iter().map(|m| m.stem).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn models<'a>(files: &[Named<'a>]) -> Vec<Model<'a>> {
    let mut models: BTreeMap<(&str, u32), Model<'_>> = BTreeMap::new();
    for (index, &(path, size)) in files.iter().enumerate() {
        let Some(whole) = path.strip_suffix(".gguf") else { continue };
        let name = path.rsplit('/').next().unwrap_or_default().to_lowercase();
        // Projectors of images and statistics for quantizing lie beside the models.
        if ["mmproj", "imatrix"].iter().any(|other| name.contains(other)) {
            continue;
        }
        let (stem, no, count) = parse_part_name(path).unwrap_or((whole, 0, 1));
        let new = || Model { stem, count, parts: BTreeMap::new() };
        models.entry((stem, count)).or_insert_with(new).parts.insert(no, Part { index, path, size });
    }
    models.into_values().collect()
}

/// Those named so; else those of that quantization; else those whose dynamic variant it is.
fn fitting<'m, 'a>(models: &'m [Model<'a>], tag: &str) -> Vec<&'m Model<'a>> {
    let dynamic = format!("UD-{tag}");
    let rules: [&dyn Fn(&Model<'_>) -> bool; 3] =
        [&|m| m.is_named(tag), &|m| m.quant().eq_ignore_ascii_case(tag), &|m| {
            m.quant().eq_ignore_ascii_case(&dynamic)
        }];
    let mut found = rules.iter().map(|rule| models.iter().filter(|m| rule(m)).collect::<Vec<_>>());
    found.find(|fit| !fit.is_empty()).unwrap_or_default()
}

/// All quantizations and their sizes, smallest first.
fn list(models: &[Model<'_>]) -> String {
    let mut all: Vec<(u64, &str)> = models.iter().map(|m| (m.size(), m.quant())).collect();
    all.sort_unstable();
    all.iter().map(|(size, quant)| format!("{quant} ({})", gb(*size))).collect::<Vec<_>>().join(", ")
}

impl<'a> Model<'a> {
    fn size(&self) -> u64 {
        self.parts.values().fold(0, |sum, p| sum.saturating_add(p.size))
    }

    /// Is `tag` the name of the file, with or without folder and ending, or that of a part?
    fn is_named(&self, tag: &str) -> bool {
        let last = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
        let names = self.parts.values().flat_map(|p| [p.path, last(p.path)]);
        names.chain([self.stem, last(self.stem)]).any(|name| name == tag)
    }

    /// The quantization by its name, else by that of its folder, else the whole name.
    fn quant(&self) -> &'a str {
        self.stem.rsplit('/').find_map(quant_in).unwrap_or(self.stem)
    }

    fn complete(&self, repo: &str) -> Result<Vec<usize>> {
        let absent = |no: &u32| !self.parts.contains_key(no);
        let missing: Vec<String> =
            (0..self.count).filter(absent).map(|no| format!("{:05}", no + 1)).collect();
        if missing.is_empty() {
            return Ok(self.parts.values().map(|p| p.index).collect());
        }
        let first = missing.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if missing.len() > MOST_NAMED { ", ..." } else { "" };
        Err(Error::Choice(format!(
            "{repo}: {} of {} parts of {} are not there: {first}{more}",
            missing.len(),
            self.count,
            self.stem
        )))
    }
}

/// The last word of a name that looks like a quantization, with the `UD-` in front of it.
fn quant_in(name: &str) -> Option<&str> {
    let mut end = name.len();
    loop {
        let word = name[..end].rfind(['-', '.']).map_or(0, |at| at + 1);
        let inner = name[word..end].match_indices('_').map(|(at, _)| word + at + 1);
        if let Some(start) = std::iter::once(word).chain(inner).find(|&at| is_quant(&name[at..end])) {
            let dynamic = name[..start].len().checked_sub(3).filter(|&at| {
                name.get(at..start).is_some_and(|w| w.eq_ignore_ascii_case("UD-"))
                    && (at == 0 || name[..at].ends_with(['-', '.']))
            });
            return Some(&name[dynamic.unwrap_or(start)..end]);
        }
        end = word.checked_sub(1)?;
    }
}

/// `Q4_K_M`, `IQ2_XXS`, `TQ1_0`, `BF16`, `MXFP4_MOE`: a known beginning, then a digit.
fn is_quant(word: &str) -> bool {
    let word = word.to_uppercase();
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    ["IQ", "TQ", "Q", "BF", "F", "FP", "MXFP", "NVFP"]
        .iter()
        .any(|kind| word.strip_prefix(kind).is_some_and(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(paths: &[&str], tag: Option<&str>) -> std::result::Result<Vec<String>, String> {
        let wanted = Wanted { repo: "o/r".into(), quant: tag.map(str::to_owned) };
        let files: Vec<Named<'_>> = paths.iter().map(|p| (*p, 5_000_000_000)).collect();
        let found = choose(&files, &wanted).map_err(|e| e.to_string())?;
        Ok(found.iter().map(|&i| paths[i].to_owned()).collect())
    }

    const REPO: &[&str] = &[
        "README.md",
        "mmproj-F16.gguf",
        "imatrix_unsloth.gguf",
        "BF16/GLM-5-BF16-00002-of-00003.gguf",
        "BF16/GLM-5-BF16-00001-of-00003.gguf",
        "BF16/GLM-5-BF16-00003-of-00003.gguf",
        "UD-Q4_K_XL/GLM-5-UD-Q4_K_XL-00001-of-00002.gguf",
        "UD-Q4_K_XL/GLM-5-UD-Q4_K_XL-00002-of-00002.gguf",
        "GLM-5-Q4_K_M.gguf",
        "GLM-5-UD-Q4_K_M.gguf",
        "GLM-5-UD-IQ1_S.gguf",
    ];

    #[test]
    fn the_quantization_is_found_by_name() {
        let check = |tag: Option<&str>, want: &[&str]| {
            assert_eq!(chosen(REPO, tag).unwrap(), want, "{tag:?}");
        };
        let bf16: Vec<String> = (1..=3).map(|n| format!("BF16/GLM-5-BF16-{n:05}-of-00003.gguf")).collect();
        check(Some("bf16"), &bf16.iter().map(String::as_str).collect::<Vec<_>>());
        check(Some("UD-Q4_K_XL"), &REPO[6..8]);
        check(Some("q4_k_xl"), &REPO[6..8]);
        check(Some("Q4_K_M"), &["GLM-5-Q4_K_M.gguf"]);
        check(Some("ud-q4_k_m"), &["GLM-5-UD-Q4_K_M.gguf"]);
        check(Some("IQ1_S"), &["GLM-5-UD-IQ1_S.gguf"]);
        check(Some("GLM-5-UD-IQ1_S.gguf"), &["GLM-5-UD-IQ1_S.gguf"]);
        check(Some("UD-Q4_K_XL/GLM-5-UD-Q4_K_XL-00002-of-00002.gguf"), &REPO[6..8]);
        check(None, &["GLM-5-Q4_K_M.gguf"]);
    }

    #[test]
    fn without_a_tag_one_model_is_enough() {
        assert_eq!(chosen(&["a-Q8_0.gguf", "mmproj-a-f16.gguf"], None).unwrap(), ["a-Q8_0.gguf"]);
        assert_eq!(chosen(&["a.gguf"], None).unwrap(), ["a.gguf"]);
        assert_eq!(chosen(&["a-q4_k_m.gguf", "a-q8_0.gguf"], None).unwrap(), ["a-q4_k_m.gguf"]);
    }

    #[test]
    fn refusals_list_what_there_is() {
        let check = |paths: &[&str], tag: Option<&str>, want: &[&str]| {
            let why = chosen(paths, tag).unwrap_err();
            assert!(want.iter().all(|w| why.contains(w)), "{why}");
        };
        check(
            REPO,
            Some("Q6_K"),
            &["o/r has no Q6_K", "BF16 (15.00 GB)", "UD-Q4_K_XL (10.00 GB)", "UD-IQ1_S"],
        );
        check(REPO, Some("K_M"), &["has no K_M"]);
        check(&["a-Q8_0.gguf", "a-BF16.gguf"], None, &["no Q4_K_M", "Q8_0", "BF16"]);
        check(&["a-Q8_0.gguf", "b-Q8_0.gguf"], Some("q8_0"), &["2 models", "a-Q8_0, b-Q8_0"]);
        check(&["README.md", "mmproj-F16.gguf"], None, &["no GGUF model"]);
        check(&[], None, &["no GGUF model"]);
        let holes = ["x/a-Q8_0-00001-of-00004.gguf", "x/a-Q8_0-00003-of-00004.gguf"];
        check(&holes, None, &["2 of 4 parts of x/a-Q8_0", "00002, 00004"]);
    }

    #[test]
    fn names_tell_the_quantization() {
        let check = |name: &str, want: Option<&str>| assert_eq!(quant_in(name), want, "{name}");
        check("GLM-5-UD-Q4_K_XL", Some("UD-Q4_K_XL"));
        check("SmolLM2-135M-Instruct.Q4_1", Some("Q4_1"));
        check("qwen2.5-7b-instruct-q5_k_m", Some("q5_k_m"));
        check("model-IQ2_XXS-imat", Some("IQ2_XXS"));
        check("gpt-oss-MXFP4_MOE", Some("MXFP4_MOE"));
        check("cloud-Q8_0", Some("Q8_0"));
        check("UD-Q2_K", Some("UD-Q2_K"));
        check("Q8_0", Some("Q8_0"));
        check("llama_2_q4_k_m", Some("q4_k_m"));
        check("flash-final", None);
        check("", None);
        check("ü-BF16", Some("BF16"));
    }
}
