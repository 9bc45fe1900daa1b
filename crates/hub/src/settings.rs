//! What the environment says, in the variables that all tools of the hub know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};

/// Where the hub is, who asks, and where files are kept. Not printable, as it holds the token.
#[derive(Clone)]
pub struct Settings {
    /// `HF_ENDPOINT`: scheme and host, without a slash at the end.
    pub endpoint: String,
    /// `HF_TOKEN`, or what the file says that `hf auth login` writes.
    pub token: Option<String>,
    /// `HF_HUB_CACHE`.
    pub cache: PathBuf,
    /// `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Before the first repetition of what failed; then twice as long each time.
    pub pause: Duration,
    /// Bytes that are asked for at once, at most: the hub's CDN answers with no more than 50 GB.
    pub piece: u64,
}

/// Less than the CDN's limit, by far.
const PIECE: u64 = 16 << 30;

impl Settings {
    /// From the environment.
    ///
    /// # Errors
    /// Values that make no sense, a token file that cannot be read, no folder to keep files in.
    pub fn from_env() -> Result<Settings> {
        Settings::read(&|name| std::env::var_os(name))
    }

    fn read(env: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings> {
        let var = |name: &str| env(name).filter(|v| !v.is_empty());
        let text = |name: &str| match var(name).map(OsString::into_string).transpose() {
            Ok(value) => Ok(value),
            Err(_) => Err(Error::Setting(format!("{name} is not UTF-8"))),
        };
        let user = var("HOME").map(PathBuf::from);
        let path = |name: &str| var(name).map(|v| expand(Path::new(&v), user.as_deref()));
        let home = path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").map(|p| p.join("huggingface")))
            .or_else(|| user.as_ref().map(|h| h.join(".cache/huggingface")));
        let nowhere = || Error::Setting("no folder to keep files in: set HF_HOME or HOME".into());
        let cache =
            path("HF_HUB_CACHE").or_else(|| home.as_ref().map(|h| h.join("hub"))).ok_or_else(nowhere)?;
        let endpoint = text("HF_ENDPOINT")?.unwrap_or_else(|| "https://huggingface.co".into());
        if !["https://", "http://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(Error::Setting(format!(
                "HF_ENDPOINT is `{endpoint}`; it must begin with https:// or http://"
            )));
        }
        let token = match text("HF_TOKEN")? {
            Some(token) => Some(token),
            None => token_file(path("HF_TOKEN_PATH").or_else(|| home.map(|h| h.join("token"))))?,
        };
        let token = token.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        if token.as_ref().is_some_and(|t| !t.bytes().all(|b| b.is_ascii_graphic())) {
            // never the token itself: errors end up in logs
            return Err(Error::Setting(
                "the token of HF_TOKEN or its file holds characters that no token has".into(),
            ));
        }
        let yes = |v: String| ["1", "ON", "YES", "TRUE"].contains(&v.to_uppercase().as_str());
        Ok(Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            cache,
            offline: text("HF_HUB_OFFLINE")?.is_some_and(yes),
            pause: Duration::from_secs(1),
            piece: PIECE,
        })
    }
}

/// `~` is the user's own folder, as in a shell.
fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

fn token_file(path: Option<PathBuf>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::at(&path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        let check = |vars: &[(&str, &str)], want: &str| {
            assert_eq!(read(vars).ok().map(|s| s.cache), Some(want.into()), "{vars:?}");
        };
        check(&[("HOME", "/u")], "/u/.cache/huggingface/hub");
        check(&[("HOME", "/u"), ("HF_HOME", "")], "/u/.cache/huggingface/hub");
        check(&[("HOME", "/u"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[("HOME", "/u"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/h")], "/u/h/hub");
        check(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c");
        assert!(read(&[]).is_err());
    }

    #[test]
    fn endpoint_and_offline() {
        let home = ("HOME", "/u");
        let check = |vars: &[(&str, &str)], endpoint: Option<&str>, offline: bool| {
            let found = read(&[&[home], vars].concat()).ok();
            assert_eq!(found.as_ref().map(|s| s.endpoint.as_str()), endpoint, "{vars:?}");
            assert_eq!(found.is_some_and(|s| s.offline), offline, "{vars:?}");
        };
        check(&[], Some("https://huggingface.co"), false);
        check(&[("HF_ENDPOINT", "http://mirror:8080/")], Some("http://mirror:8080"), false);
        check(&[("HF_ENDPOINT", "mirror.example")], None, false);
        check(&[("HF_HUB_OFFLINE", "yes")], Some("https://huggingface.co"), true);
        check(&[("HF_HUB_OFFLINE", "0")], Some("https://huggingface.co"), false);
    }

    #[test]
    fn tokens_come_from_the_variable_or_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let token = |vars: &[(&str, &str)]| read(&[&[("HF_HOME", home)], vars].concat()).map(|s| s.token);
        assert_eq!(token(&[]).unwrap(), None);
        std::fs::write(dir.path().join("token"), "hf_file\n").unwrap();
        assert_eq!(token(&[]).unwrap().as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_TOKEN", " hf_var ")]).unwrap().as_deref(), Some("hf_var"));
        let why = token(&[("HF_TOKEN", "hf_secret\r\nX: y")]).unwrap_err().to_string();
        assert!(why.contains("HF_TOKEN") && !why.contains("secret"), "{why}");
    }
}
