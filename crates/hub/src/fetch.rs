//! From a name to files on disk.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::cache::Repo;
use crate::choose::{Named, choose};
use crate::client::Client;
use crate::download::Download;
use crate::error::{Error, Result};
use crate::listing::{self, File};
use crate::patience::Patience;
use crate::settings::Settings;
use crate::wanted::Wanted;

/// Files that are fetched side by side.
const SIDE_BY_SIDE: usize = 4;

/// What a path in an address may hold as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Whoever wants to know how it goes. Called from several threads.
pub trait Watch: Sync {
    /// These files, by name and size, are fetched now; of all of them so many bytes are missing.
    fn begin(&self, files: &[(&str, u64)], missing: u64);
    /// So many bytes of the file of that number are there.
    fn at(&self, file: usize, bytes: u64);
    /// Something that a person may want to know.
    fn note(&self, text: &str);
}

/// The path of the model's file, or of its first part, once everything is in the cache.
///
/// # Errors
/// No such model, no way to it, no room for it, or content that is not what was listed.
pub fn fetch(settings: &Settings, wanted: &Wanted, watch: &dyn Watch) -> Result<PathBuf> {
    let repo = Repo::new(&settings.cache, &wanted.repo);
    if settings.offline {
        return cached(&repo, wanted, true);
    }
    let stop = AtomicBool::new(false);
    let patience = Patience { pause: settings.pause, stop: &stop, watch };
    let client = Client::new(settings, &wanted.repo)?;
    let listing = match listing::read(&client, &wanted.repo, &patience) {
        Ok(listing) => listing,
        Err(e) if e.is_passing() => {
            let path = cached(&repo, wanted, false).map_err(|_| e)?;
            watch.note(&format!("the hub gives no answer; using what is cached of {}", wanted.repo));
            return Ok(path);
        }
        Err(e) => return Err(e),
    };
    let names: Vec<Named<'_>> = listing.files.iter().map(|f| (f.path.as_str(), f.size)).collect();
    let files: Vec<&File> = choose(&names, wanted)?.into_iter().map(|i| &listing.files[i]).collect();
    let missing: Vec<&File> = files.iter().copied().filter(|f| !repo.has(f)).collect();
    if !missing.is_empty() {
        let bytes = missing.iter().fold(0u64, |sum, f| sum.saturating_add(repo.missing(f)));
        repo.prepare(bytes)?;
        watch.begin(&missing.iter().map(|f| (f.path.as_str(), f.size)).collect::<Vec<_>>(), bytes);
        let url = |f: &File| {
            format!("{}/resolve/{}/{}", client.page(), listing.commit, utf8_percent_encode(&f.path, PLAIN))
        };
        let download = |number: usize| {
            let (file, piece) = (missing[number], settings.piece);
            let (client, repo, patience) = (&client, &repo, &patience);
            let job = Download { client, repo, patience, url: url(file), file, piece, number };
            job.run().map_err(|e| e.in_file(&file.path))
        };
        side_by_side(missing.len(), &stop, &download)?;
    }
    repo.publish(&listing.commit, &files)
}

/// Does jobs `0..count`, a few at a time, until one fails.
fn side_by_side(count: usize, stop: &AtomicBool, job: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(e) = job(number) {
                // Only the first one is the reason; the others are told to stop.
                if !stop.swap(true, Ordering::Relaxed) {
                    *failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(e);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count.min(SIDE_BY_SIDE) {
            scope.spawn(worker);
        }
    });
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// The model, if the cache has all of it.
fn cached(repo: &Repo, wanted: &Wanted, offline: bool) -> Result<PathBuf> {
    let none = || Error::NotCached { repo: wanted.repo.clone(), folder: repo.folder(), offline };
    let (folder, files) = repo.snapshot().filter(|(_, files)| !files.is_empty()).ok_or_else(none)?;
    let names: Vec<Named<'_>> = files.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    let here = |e| match e {
        Error::Choice(why) => {
            Error::Choice(format!("{why} (in the cache alone: {})", repo.folder().display()))
        }
        e => e,
    };
    let chosen = choose(&names, wanted).map_err(here)?;
    Ok(folder.join(names[chosen[0]].0))
}
