//! Models split into several files: their names, and the checks that the parts belong together.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::header::Header;
use crate::map::Map;
use crate::meta::Meta;

pub(crate) const KEY_NO: &str = "split.no";
pub(crate) const KEY_COUNT: &str = "split.count";
pub(crate) const KEY_TENSORS: &str = "split.tensors.count";
pub(crate) const MAX_PARTS: u32 = 1024;

/// A file that was mapped and whose header is in order.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) map: Map,
    pub(crate) header: Header,
}

/// What a part says about the set it belongs to.
struct Membership {
    no: u32,
    count: u32,
}

/// The name of part `no` (from 0) of `count`: `prefix-00001-of-00003.gguf`.
pub(crate) fn part_name(prefix: &str, no: u32, count: u32) -> String {
    format!("{prefix}-{:05}-of-{count:05}.gguf", no + 1)
}

/// Prefix, number from 0 and count of a name of the form `prefix-00001-of-00003.gguf`.
pub fn parse_part_name(name: &str) -> Option<(&str, u32, u32)> {
    let stem = name.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, no) = rest.rsplit_once('-')?;
    let number = |s: &str| (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?;
    let (no, count): (u32, u32) = (number(no)?, number(count)?);
    (1..=count).contains(&no).then(|| (prefix, no - 1, count))
}

/// All parts of the model that `first` is a part of, in order; `open` opens one more.
pub(crate) fn collect(first: Part, open: impl Fn(&Path) -> Result<Part>) -> Result<Vec<Part>> {
    refuse_glued(&first)?;
    let name = first.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = parse_part_name(&name).filter(|&(_, _, count)| count > 1);
    let Some(member) = membership(&first.header.meta).map_err(|e| e.in_file(&first.path))? else {
        return match named {
            None => Ok(vec![first]),
            Some((_, no, count)) => Err(split(format!(
                "is named as part {} of {count}, but its metadata has no `{KEY_COUNT}`: it was renamed, or made by a tool that does not split",
                no + 1
            ))
            .in_file(&first.path)),
        };
    };
    let Some((prefix, ..)) = named.filter(|&(_, no, count)| (no, count) == (member.no, member.count)) else {
        return Err(split(format!(
            "by its metadata it is part {} of {}, but its name does not end in {}: give the parts their names back",
            member.no + 1,
            member.count,
            part_name("", member.no, member.count)
        ))
        .in_file(&first.path));
    };
    let paths = siblings(&first.path, prefix, member.count)?;
    let given = member.no as usize;
    let mut parts = Vec::with_capacity(paths.len());
    let mut first = Some(first);
    for (i, path) in paths.iter().enumerate() {
        let part =
            if i == given { first.take().expect("only one index is the given one") } else { open(path)? };
        parts.push(part);
    }
    check_set(&parts)?;
    Ok(parts)
}

fn split(why: String) -> Error {
    Error::Split { why }
}

fn membership(meta: &Meta) -> Result<Option<Membership>> {
    let count = meta.may::<u32>(KEY_COUNT)?.unwrap_or(1);
    if count <= 1 {
        return Ok(None);
    }
    let no = meta.need::<u32>(KEY_NO)?;
    if count > MAX_PARTS || no >= count {
        return Err(split(format!(
            "`{KEY_NO}` {no} of `{KEY_COUNT}` {count}: expected 0 <= no < count <= {MAX_PARTS}"
        )));
    }
    Ok(Some(Membership { no, count }))
}

/// Parts joined with `cat`: after the data of the first comes the header of the next.
fn refuse_glued(part: &Part) -> Result<()> {
    let end = part.header.data_end;
    let padded = end.next_multiple_of(part.header.alignment.into());
    let follows = |at: u64| {
        usize::try_from(at).ok().and_then(|at| part.map.get(at..)).is_some_and(|b| b.starts_with(b"GGUF"))
    };
    match [end, padded].into_iter().find(|&at| follows(at)) {
        None => Ok(()),
        Some(at) => Err(split(format!(
            "another GGUF file follows at byte {at}: parts were glued together; they must stay separate files under their own names"
        ))
        .in_file(&part.path)),
    }
}

/// Where each part lies: beside the name as given, else in exactly one sub-folder of that folder.
fn siblings(given: &Path, prefix: &str, count: u32) -> Result<Vec<PathBuf>> {
    let folder = given.parent().map(Path::to_owned).unwrap_or_default();
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    let mut folders: Vec<PathBuf> = fs::read_dir(listed)
        .map(|entries| entries.flatten().map(|e| folder.join(e.file_name())).collect())
        .unwrap_or_default();
    folders.sort();
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for no in 0..count {
        let name = part_name(prefix, no, count);
        let beside = folder.join(&name);
        if beside.exists() {
            found.push(beside);
            continue;
        }
        let mut below = folders.iter().map(|f| f.join(&name)).filter(|p| p.exists());
        match (below.next(), below.next()) {
            (None, _) => missing.push(name),
            (Some(path), None) => found.push(path),
            (Some(a), Some(b)) => {
                return Err(split(format!(
                    "{name} is there twice: {} and {}; keep one",
                    a.display(),
                    b.display()
                )));
            }
        }
    }
    match missing.is_empty() {
        true => Ok(found),
        false => Err(split(format!(
            "{} of {count} parts are missing beside it and in the sub-folders there: {}",
            missing.len(),
            missing.join(", ")
        ))
        .in_file(given)),
    }
}

/// The parts agree with their places, with each other, and are as many files as there are names.
fn check_set(parts: &[Part]) -> Result<()> {
    let count = parts.len();
    let first = &parts[0];
    let total = first.header.meta.need::<u64>(KEY_TENSORS).map_err(|e| e.in_file(&first.path))?;
    let architecture = first.header.meta.get("general.architecture");
    let mut seen: HashMap<(u64, u64), &Path> = HashMap::new();
    for (i, part) in parts.iter().enumerate() {
        let fail = |why: String| Err(split(why).in_file(&part.path));
        if let Some(other) = seen.insert(part.map.identity(), &part.path) {
            return fail(format!("is the same file as {} under another name", other.display()));
        }
        refuse_glued(part)?;
        let place = membership(&part.header.meta).map_err(|e| e.in_file(&part.path))?;
        let (no, says) = place.map_or((0, 1), |m| (m.no as usize, m.count as usize));
        if (no, says) != (i, count) {
            return fail(format!(
                "by its metadata it is part {} of {says}, by its name {} of {count}",
                no + 1,
                i + 1
            ));
        }
        let tensors = part.header.meta.may::<u64>(KEY_TENSORS).map_err(|e| e.in_file(&part.path))?;
        if let Some(n) = tensors.filter(|&n| n != total) {
            return fail(format!(
                "its `{KEY_TENSORS}` is {n}, that of the first part {total}: parts of different models"
            ));
        }
        let own = part.header.meta.get("general.architecture");
        if own.is_some() && own != architecture {
            return fail("its `general.architecture` differs from that of the first part".to_owned());
        }
    }
    Ok(())
}

/// The number of tensors that all parts together must have, or None for a single file.
pub(crate) fn expected_tensors(parts: &[Part]) -> Result<Option<u64>> {
    match parts.len() {
        1 => Ok(None),
        _ => parts[0].header.meta.may(KEY_TENSORS),
    }
}
