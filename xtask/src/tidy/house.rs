//! The plan of the house: which crate may import what, where `unsafe` is allowed, how long things may be.
// tidy: table

/// Lines of a function, from its signature to its closing brace.
pub(super) const FUNCTION_LINES: usize = 70;
/// Lines of a file.
pub(super) const FILE_LINES: usize = 600;
/// Lines of a file that describes an architecture.
pub(super) const ARCHITECTURE_LINES: usize = 60;
/// Where those are.
pub(super) const ARCHITECTURES: &str = "crates/model/src/arch/";
/// The largest file that is no reference data or demo model.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// Folders whose files may be larger, and are not searched for words.
pub(super) const DATA: [&str; 2] = ["tests/data/", "demo/"];

/// A crate: what it may build on.
pub(super) struct Room {
    /// Its folder.
    pub(super) path: &'static str,
    /// Its package name.
    pub(super) package: &'static str,
    /// Crates of this house that it may import.
    pub(super) imports: &'static [&'static str],
    /// Crates of this house that its tests may import besides.
    pub(super) tests: &'static [&'static str],
    /// Crates from outside that it may import.
    pub(super) outside: &'static [&'static str],
    /// Files that may contain `unsafe`; Empty: the crate forbids it.
    pub(super) unsafe_in: &'static [&'static str],
}

/// Every crate. One that is not here does not exist.
pub(super) const ROOMS: &[Room] = &[
    Room {
        path: "crates/gguf",
        package: "shardwright-gguf",
        imports: &[],
        tests: &[],
        outside: &["bytemuck", "half", "libc", "memmap2", "thiserror"],
        unsafe_in: &["src/map.rs", "src/sigbus.rs"],
    },
    Room {
        path: "crates/text",
        package: "shardwright-text",
        imports: &["shardwright-gguf"],
        tests: &[],
        outside: &[
            "aho-corasick",
            "hashbrown",
            "jiff",
            "minijinja",
            "minijinja-contrib",
            "regex",
            "serde_json",
            "thiserror",
        ],
        unsafe_in: &[],
    },
    Room {
        path: "crates/model",
        package: "shardwright-model",
        imports: &["shardwright-gguf"],
        tests: &[],
        outside: &["thiserror"],
        unsafe_in: &[],
    },
    Room {
        path: "crates/cpu",
        package: "shardwright-cpu",
        imports: &["shardwright-gguf", "shardwright-model"],
        tests: &[],
        outside: &["bytemuck", "half", "thiserror"],
        unsafe_in: &[
            "src/dot.rs",
            "src/simd/mod.rs",
            "src/simd/avx2.rs",
            "src/simd/avx512.rs",
            "src/team.rs",
        ],
    },
    Room {
        path: "crates/cuda",
        package: "shardwright-cuda",
        imports: &["shardwright-gguf", "shardwright-model"],
        tests: &["shardwright-cpu"],
        outside: &[
            "bytemuck",
            "cudarc",
            "half",
            "libc",
            "libloading",
            "log",
            "ring",
            "rustix",
            "tempfile",
            "thiserror",
        ],
        unsafe_in: &[
            "src/driver/mod.rs",
            "src/driver/gpu.rs",
            "src/driver/handle.rs",
            "src/driver/inbox.rs",
            "src/driver/nccl.rs",
            "src/driver/staging.rs",
            "src/nvml.rs",
            "src/nvrtc.rs",
            "tests/emulator/mod.rs",
            "tests/emulator/world.rs",
            "tests/memory.rs",
        ],
    },
    Room {
        path: "crates/engine",
        package: "shardwright-engine",
        imports: &["shardwright-model", "shardwright-text"],
        tests: &["shardwright-gguf"],
        outside: &["llguidance", "regex-syntax", "serde_json", "thiserror"],
        unsafe_in: &[],
    },
    Room {
        path: "crates/hub",
        package: "shardwright-hub",
        imports: &["shardwright-gguf"],
        tests: &[],
        outside: &[
            "percent-encoding",
            "ring",
            "rustix",
            "rustls",
            "rustls-native-certs",
            "serde",
            "serde_json",
            "thiserror",
            "ureq",
        ],
        unsafe_in: &[],
    },
    Room {
        path: "crates/server",
        package: "shardwright-server",
        imports: &["shardwright-engine", "shardwright-text"],
        tests: &["shardwright-gguf", "shardwright-model"],
        outside: &[
            "axum",
            "base64",
            "futures-util",
            "hyper",
            "hyper-util",
            "prometheus-client",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "socket2",
            "subtle",
            "thiserror",
            "tokio",
            "tokio-util",
            "tower-http",
            "tracing",
            "utoipa",
            "utoipa-axum",
            "uuid",
        ],
        unsafe_in: &[],
    },
    Room {
        path: "crates/shardwright",
        package: "shardwright",
        imports: &[
            "shardwright-cpu",
            "shardwright-cuda",
            "shardwright-engine",
            "shardwright-gguf",
            "shardwright-hub",
            "shardwright-model",
            "shardwright-server",
            "shardwright-text",
        ],
        tests: &[],
        outside: &[
            "anyhow",
            "clap",
            "clap_complete",
            "crc32fast",
            "ctrlc",
            "env_logger",
            "indicatif",
            "log",
            "ring",
            "rustyline",
            "serde_json",
            "tempfile",
            "tracing-subscriber",
            "ureq",
        ],
        unsafe_in: &[],
    },
    Room {
        path: "xtask",
        package: "xtask",
        imports: &[],
        tests: &[],
        outside: &["anyhow", "ignore", "proc-macro2", "serde_json", "spdx", "syn", "toml"],
        unsafe_in: &[],
    },
];

/// The enum of op kinds, and the folders that hold one file for each.
pub(super) const KINDS: &str = "crates/model/src/op.rs";
/// Folders with a file for each kind, named after it.
pub(super) const KIND_FOLDERS: &[&str] = &["crates/cpu/src/ops/", "crates/cuda/src/ops/"];
/// Kinds that share a file because they share their idea: (kind, stem). No stem: no op of one rank.
pub(super) const KIND_STEMS: &[(&str, &str)] = &[
    ("Hidden", "embed"),
    ("Concat", "shape"),
    ("Part", "shape"),
    ("RmsNorm", "norm"),
    ("LayerNorm", "norm"),
    ("PerHead", "linear"),
    ("Logits", "linear"),
    ("SwiGlu", "pointwise"),
    ("Add", "pointwise"),
    ("Sum", ""),
];
/// Files in those folders that several kinds use.
pub(super) const KIND_SHARED: &[&str] = &["mod", "softmax", "sum"];

/// Where the crates' modules are explained.
pub(super) const ROOMS_DOC: &str = "docs/architecture.md";

/// Text that belongs to a machine or to how the work is done, not to the product. In two pieces, so that this
/// table does not find itself.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/ho", "me/"),
    ("/ro", "ot/"),
    ("/Us", "ers/"),
    ("../sh", "ared"),
    ("CE", "O"),
    ("orches", "trator"),
    ("sub", "agent"),
    ("brief", ".md"),
    ("language model wr", "ote"),
];
/// The one place that may name the folder of reference data beside a checkout.
pub(super) const FOREIGN_EXEMPT: &str = ".ci/";
