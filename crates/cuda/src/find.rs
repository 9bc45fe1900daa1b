//! Where NVIDIA's libraries lie: in a toolkit, in a Python environment, or wherever the loader looks.

use std::ffi::OsString;
use std::iter::once_with;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of the environment, or what a test puts in their place.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A library that may be there.
pub(crate) struct Wanted {
    /// What it is, for people.
    pub(crate) title: &'static str,
    /// Its file names, the best first.
    pub(crate) names: &'static [&'static str],
    /// The variable that names its file or folder. Where it is set, nothing else is tried.
    pub(crate) variable: &'static str,
    /// What to do when there is none.
    pub(crate) cure: &'static str,
}

/// Somewhere to look.
struct Place {
    /// In words.
    name: String,
    /// What to open: files that are there, or bare names for the loader.
    files: Vec<PathBuf>,
}

impl Wanted {
    /// The first that opens. An error says in one line what was searched.
    pub(crate) fn first<T>(
        &self,
        env: Environment<'_>,
        open: impl Fn(&Path) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut searched = Vec::new();
        for place in self.places(env) {
            let mut tried = place.name;
            for file in &place.files {
                match open(file) {
                    Ok(library) => return Ok(library),
                    // that the loader does not know a name is no news
                    Err(_) if file.is_relative() => {}
                    Err(why) => tried += &format!(" (there {} does not open: {why})", file.display()),
                }
            }
            searched.push(tried);
        }
        let Wanted { title, variable, cure, .. } = self;
        let or = match set(env, variable) {
            Some(_) => String::new(),
            None => format!(", or set {variable} to its file"),
        };
        Err(format!("no {title} in {}; {cure}{or}", searched.join(", ")))
    }

    /// Everywhere, in order; a place is looked at when those before it had nothing.
    fn places<'a>(&'a self, env: Environment<'a>) -> Box<dyn Iterator<Item = Place> + 'a> {
        if let Some(chosen) = set(env, self.variable) {
            return Box::new(std::iter::once(self.chosen(&chosen)));
        }
        let roots = |variables: &'static [&'static str], folders: fn(&Path) -> Vec<PathBuf>| {
            variables.iter().filter_map(move |variable| {
                let root = set(env, variable)?;
                Some(self.place(format!("{variable}={}", root.display()), folders(&root)))
            })
        };
        let loader = || Place {
            name: "the loader's path".into(),
            files: self.names.iter().map(PathBuf::from).collect(),
        };
        let python = || self.place("the packages of python3".into(), python().iter().flat_map(|p| wheels(p)));
        let system = || {
            self.place("/usr/local/cuda*, /opt/cuda".into(), system().iter().flat_map(|root| toolkit(root)))
        };
        let places = roots(&["CUDA_HOME", "CUDA_PATH"], toolkit)
            .chain(roots(&["VIRTUAL_ENV", "CONDA_PREFIX"], environment))
            .chain(once_with(loader))
            .chain(once_with(python))
            .chain(once_with(system));
        Box::new(places)
    }

    /// The file or folder that the user has named.
    fn chosen(&self, path: &Path) -> Place {
        let name = format!("{}={}", self.variable, path.display());
        if path.is_dir() {
            return self.place(name, [path.to_owned()]);
        }
        // not a bare name, which the loader would look for elsewhere
        Place { name, files: vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())] }
    }

    fn place(&self, name: String, folders: impl IntoIterator<Item = PathBuf>) -> Place {
        let files = folders.into_iter().flat_map(|folder| self.names.iter().map(move |n| folder.join(n)));
        Place { name, files: files.filter(|f| f.is_file()).collect() }
    }
}

/// A variable that is set to something.
pub(crate) fn set(env: Environment<'_>, name: &str) -> Option<PathBuf> {
    env(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The library folders of a CUDA toolkit.
fn toolkit(root: &Path) -> Vec<PathBuf> {
    ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"].map(|f| root.join(f)).into()
}

/// Those of a virtual or conda environment: wheels, then packages that bring a toolkit.
fn environment(root: &Path) -> Vec<PathBuf> {
    let python = entries(&root.join("lib"), "python3");
    python
        .iter()
        .rev()
        .map(|p| p.join("site-packages"))
        .flat_map(|p| wheels(&p))
        .chain(toolkit(root))
        .collect()
}

/// The library folders of NVIDIA's wheels among a Python's packages.
fn wheels(packages: &Path) -> Vec<PathBuf> {
    entries(&packages.join("nvidia"), "").iter().map(|package| package.join("lib")).collect()
}

/// The folders from which the `python3` on the path imports packages.
fn python() -> Vec<PathBuf> {
    let ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')";
    let answer = Command::new("python3").args(["-c", ask]).output();
    let answer = answer.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    answer.lines().map(PathBuf::from).collect()
}

/// Toolkits as they are installed for all users; the administrator's choice, then the newest first.
fn system() -> Vec<PathBuf> {
    let versions = entries(Path::new("/usr/local"), "cuda-");
    let chosen = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from);
    chosen.into_iter().chain(versions.into_iter().rev()).collect()
}

/// What a folder holds under names that begin so. Version 3.9 comes before 3.12, and `cu13` before `cuda_nvrtc`, which has
/// the files of version 12.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = listed.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    let mut found: Vec<PathBuf> = named.map(|e| e.path()).collect();
    found.sort_unstable_by(|a, b| (a.as_os_str().len(), a).cmp(&(b.as_os_str().len(), b)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        title: "weaver",
        names: &["libloom-test.so.2", "libloom-test.so.1"],
        variable: "LOOM",
        cure: "buy one",
    };

    /// Opens any file that has content; its path is the result.
    fn open(file: &Path) -> Result<PathBuf, String> {
        match std::fs::read(file) {
            Ok(content) if !content.is_empty() => Ok(file.to_owned()),
            Ok(_) => Err("empty".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn first(root: &Path, variables: &[(&str, &str)]) -> Result<String, String> {
        let env = |name: &str| {
            let value = variables.iter().find(|(n, _)| *n == name)?.1;
            Some(if value.is_empty() { value.into() } else { root.join(value).into_os_string() })
        };
        let found = WANTED.first(&env, open)?;
        Ok(found.strip_prefix(root).map_err(|e| e.to_string())?.to_string_lossy().into_owned())
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn places_are_tried_in_order() {
        let wheel = "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libloom-test.so.2";
        let root = tree(&[
            ("toolkit/lib64/libloom-test.so.1", "1"),
            ("toolkit/lib/libloom-test.so.2", "2"),
            ("other/targets/x86_64-linux/lib/libloom-test.so.1", "1"),
            (wheel, "2"),
            ("venv/lib/python3.12/site-packages/nvidia/cuda_loom/lib/libloom-test.so.1", "1"),
            ("venv/lib/python3.9/site-packages/nvidia/cu13/lib/libloom-test.so.2", "2"),
            ("conda/lib/libloom-test.so.2", "2"),
            ("hidden/libloom-test.so.1", "1"),
        ]);
        let check = |variables: &[(&str, &str)], want: &str| {
            assert_eq!(first(root.path(), variables).as_deref(), Ok(want), "{variables:?}");
        };
        let venv = ("VIRTUAL_ENV", "venv");
        check(&[("CUDA_HOME", "toolkit"), ("CUDA_PATH", "other"), venv], "toolkit/lib64/libloom-test.so.1");
        check(
            &[("CUDA_HOME", ""), ("CUDA_PATH", "other"), venv],
            "other/targets/x86_64-linux/lib/libloom-test.so.1",
        );
        check(&[("CUDA_HOME", "nowhere"), venv, ("CONDA_PREFIX", "conda")], wheel);
        check(&[("CONDA_PREFIX", "conda")], "conda/lib/libloom-test.so.2");
        check(&[("LOOM", "hidden"), venv], "hidden/libloom-test.so.1");
        check(&[("LOOM", "hidden/libloom-test.so.1"), venv], "hidden/libloom-test.so.1");
    }

    #[test]
    fn what_does_not_open_is_passed_over() {
        let root = tree(&[("toolkit/lib64/libloom-test.so.2", ""), ("toolkit/lib64/libloom-test.so.1", "1")]);
        let found = first(root.path(), &[("CUDA_HOME", "toolkit")]);
        assert_eq!(found.as_deref(), Ok("toolkit/lib64/libloom-test.so.1"));
    }

    #[test]
    fn an_error_says_what_was_searched_and_what_to_do() {
        let root = tree(&[("toolkit/lib64/libloom-test.so.2", "")]);
        let why = first(root.path(), &[("CUDA_HOME", "toolkit")]).unwrap_err();
        for part in
            ["no weaver", "CUDA_HOME=", "does not open: empty", "loader", "python3", "/usr/local/cuda"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(why.ends_with("; buy one, or set LOOM to its file"), "{why}");
    }

    #[test]
    fn a_wrong_choice_is_not_replaced_by_another() {
        let root = tree(&[("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libloom-test.so.2", "2")]);
        let why = first(root.path(), &[("LOOM", "gone.so"), ("VIRTUAL_ENV", "venv")]).unwrap_err();
        assert!(why.contains("LOOM=") && why.contains("gone.so does not open"), "{why}");
        assert!(!why.contains("CUDA_HOME") && why.ends_with("; buy one"), "{why}");
    }
}
