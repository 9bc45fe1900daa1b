//! The compiler itself, and what is kept of its work.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compiler;

use std::path::Path;
use std::sync::{Arc, Mutex};

use compiler::nvrtc;
use shardwright_cuda::Error;
use shardwright_cuda::jit::{Folders, Jit};
use shardwright_cuda::nvrtc::Nvrtc;
use shardwright_cuda::unit::Unit;

fn unit(width: usize) -> Unit {
    Unit::new("quantize")
        .int("WIDTH", width)
        .int("RUN", width)
        .int("UNIT", width)
        .int("START", 0)
        .int("MAX_ROWS", 8)
}

/// What progress was told.
type Said = Arc<Mutex<Vec<(usize, usize)>>>;

/// A compiler that keeps its work in `folder`, and what its progress says.
fn jit(folder: Option<&Path>) -> Option<(Jit, Said)> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&said);
    let progress = move |done, of| hear.lock().unwrap().push((done, of));
    nvrtc()?;
    let folders = Folders { own: folder.map(Path::to_owned), shipped: vec![] };
    Some((Jit::new(Nvrtc::find, folders, progress), said))
}

/// No compiler, but what lies in a folder.
fn shipped(folder: &Path, own: Option<&Path>) -> Jit {
    let none = || Err(Error::Compiler("no compiler here".into()));
    let folders = Folders { own: own.map(Path::to_owned), shipped: vec![folder.to_owned()] };
    Jit::new(none, folders, |_, _| panic!("nothing can be compiled"))
}

#[test]
fn code_is_that_of_the_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    eprintln!("{nvrtc}, for {:?}", nvrtc.architectures());
    assert!(nvrtc.path().is_absolute() && nvrtc.version().0 >= 12, "{nvrtc}");
    for (capability, own) in [((8, 6), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a")] {
        let architecture = nvrtc.architecture(capability).unwrap();
        assert_eq!(architecture, own);
        let compiled = nvrtc.compile(&unit(96), &architecture).unwrap();
        assert_eq!(&compiled.cubin[..4], b"\x7fELF");
        assert!(compiled.log.contains(&format!("'run' for '{own}'")), "{}", compiled.log);
        assert!(compiled.cubin.windows(4).any(|w| w == b"run\0"), "the entry has another name");
    }
    // runs the code of 9.0 without what only 9.0 has
    assert_eq!(nvrtc.architecture((9, 9)).unwrap(), "sm_90");
    let why = nvrtc.architecture((3, 5)).unwrap_err().to_string();
    assert!(why.contains("NVRTC") && why.contains("3.5"), "{why}");
    for name in ["sm_80", "sm_90", "sm_90a", "sm_120a", "sm_120f"] {
        nvrtc.knows(name).unwrap();
    }
    for name in ["sm_999", "sm_80a", "sm_90b", "sm_9", "90a", ""] {
        let why = nvrtc.knows(name).unwrap_err().to_string();
        assert!(
            why.contains(&format!("`{name}`")) && why.contains("sm_90a, ") && why.contains("NVRTC"),
            "{why}"
        );
    }
}

#[test]
fn errors_are_the_compilers_words() {
    let Some((jit, said)) = jit(None) else { return };
    let broken = Unit::new("quantize").int("MAX_ROWS", 8);
    let units = [unit(96), broken.clone(), unit(128)];
    match jit.cubins(&units, "sm_90a") {
        Err(Error::Kernel { unit, architecture, log }) => {
            assert_eq!((unit, architecture), (broken.label(), "sm_90a".to_owned()));
            assert!(log.contains("identifier \"WIDTH\" is undefined"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    assert!(said.lock().unwrap().iter().all(|(_, of)| *of == 3));
    let why = jit.cubins(&[unit(96)], "sm_1").unwrap_err().to_string();
    assert!(why.contains("sm_1") && why.contains("gpu-architecture"), "{why}");
}

#[test]
fn nothing_is_compiled_twice() {
    let folder = tempfile::tempdir().unwrap();
    let Some((first, said)) = jit(Some(folder.path())) else { return };
    let units = [unit(96), unit(128), unit(96)];
    let made = first.cubins(&units, "sm_90a").unwrap();
    assert_eq!(*said.lock().unwrap(), [(1, 2), (2, 2)]);
    assert!(made[0] == made[2] && made[0] != made[1]);
    assert_eq!(first.cubins(&units, "sm_90a").unwrap(), made);
    assert_eq!(said.lock().unwrap().len(), 2, "known, but compiled");

    let (second, said) = jit(Some(folder.path())).unwrap();
    assert_eq!(second.cubins(&units, "sm_90a").unwrap(), made);
    assert!(said.lock().unwrap().is_empty(), "on disk, but compiled");
    // same numbers, another architecture
    let other = second.cubins(&units[..1], "sm_80").unwrap();
    assert!(other[0] != made[0] && said.lock().unwrap().len() == 1);
}

#[test]
fn damaged_code_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let Some((jit_1, _)) = jit(Some(folder.path())) else { return };
    let made = jit_1.cubins(&[unit(96)], "sm_90a").unwrap();
    let file = std::fs::read_dir(folder.path().join("sm_90a")).unwrap().next().unwrap().unwrap().path();
    let content = std::fs::read(&file).unwrap();
    std::fs::write(&file, &content[..content.len() / 2]).unwrap();
    let (again, said) = jit(Some(folder.path())).unwrap();
    assert_eq!(again.cubins(&[unit(96)], "sm_90a").unwrap(), made);
    assert_eq!(said.lock().unwrap().len(), 1);
    assert_eq!(std::fs::read(&file).unwrap(), content, "not repaired");
}

#[test]
fn what_is_shipped_needs_no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let Some((maker, _)) = jit(Some(folder.path())) else { return };
    let units = [unit(96), unit(128)];
    let made = maker.cubins(&units, "sm_90a").unwrap();
    let own = tempfile::tempdir().unwrap();
    for own in [None, Some(own.path())] {
        let without = shipped(folder.path(), own);
        assert_eq!(without.architecture((9, 0)).unwrap(), "sm_90a");
        assert_eq!(without.cubins(&units, "sm_90a").unwrap(), made);
        let folder = folder.path().display().to_string();
        let why = without.cubins(&[unit(96), unit(32)], "sm_90a").unwrap_err().to_string();
        for part in ["1 of 2 kernels for sm_90a, `quantize`", &folder, "no compiler here"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let why = without.architecture((8, 0)).unwrap_err().to_string();
        assert!(why.contains("no kernels for sm_80: not in") && why.contains("no compiler here"), "{why}");
    }
    // a compiler makes what is not shipped, and only that
    let progress = |done, of| assert_eq!((done, of), (1, 1));
    let folders = Folders { own: None, shipped: vec![folder.path().to_owned()] };
    let with = Jit::new(Nvrtc::find, folders, progress);
    assert_eq!(with.cubins(&[unit(96), unit(128), unit(32)], "sm_90a").unwrap()[..2], made);
}

#[test]
fn damaged_code_that_is_shipped_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some((maker, _)) = jit(Some(folder.path())) else { return };
    maker.cubins(&[unit(96)], "sm_90a").unwrap();
    let file = std::fs::read_dir(folder.path().join("sm_90a")).unwrap().next().unwrap().unwrap().path();
    let content = std::fs::read(&file).unwrap();
    std::fs::write(&file, &content[..content.len() / 2]).unwrap();
    let why = shipped(folder.path(), None).cubins(&[unit(96)], "sm_90a").unwrap_err().to_string();
    assert!(why.contains("1 of 1 kernels"), "{why}");
}

#[test]
fn devices_that_ask_at_once_share_one_compilation() {
    let Some((jit, said)) = jit(None) else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| jit.cubins(&[unit(96), unit(128)], "sm_90a").unwrap());
        }
    });
    assert_eq!(said.lock().unwrap().len(), 2);
}
