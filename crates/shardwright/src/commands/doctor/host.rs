//! What the system says of itself and of the places that cards are plugged into, from the files that Linux shows.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) cores: usize,
    /// Bytes.
    pub(super) memory: Option<u64>,
    /// NUMA nodes.
    pub(super) nodes: usize,
    /// How the first core's clock is chosen.
    pub(super) governor: Option<String>,
    /// Seconds since it was started.
    pub(super) uptime: Option<u64>,
    /// Does an IOMMU translate what devices read and write?
    pub(super) iommu: bool,
}

/// Where a card is plugged in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Lanes of the link, and the most that the card could have.
    pub(super) lanes: Option<[u32; 2]>,
    /// Transfers a second of a lane, as the system writes it; cards that rest lower it.
    pub(super) speed: Option<String>,
    /// Bytes of its memory that others can reach at a time.
    pub(super) window: Option<u64>,
    /// The NUMA node that it is nearest to.
    pub(super) node: Option<i32>,
    /// Bridges above it that send what cards write to each other up to the processor first.
    pub(super) redirects: Vec<String>,
}

impl Host {
    /// `root` is `/`, but for tests.
    pub(super) fn read(root: &Path) -> Host {
        // with `iommu=pt` groups are there too, but nothing is translated
        let groups = fs::read_dir(root.join("sys/kernel/iommu_groups")).into_iter().flatten().flatten();
        let kinds = groups.filter_map(|group| line(&group.path().join("type")));
        let nodes = fs::read_dir(root.join("sys/devices/system/node")).map_or(0, |all| {
            let names = all.flatten().filter_map(|e| e.file_name().into_string().ok());
            names.filter(|n| n.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok())).count()
        });
        let meminfo = word(&root.join("proc/meminfo"), "MemTotal:");
        Host {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: meminfo.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib * 1024),
            nodes: nodes.max(1),
            governor: line(&root.join("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            uptime: line(&root.join("proc/uptime")).and_then(|l| l.split('.').next()?.parse().ok()),
            iommu: kinds.into_iter().any(|kind| kind.starts_with("DMA")),
        }
    }
}

impl Place {
    /// Of the card at this place of the PCI bus.
    pub(super) fn read(root: &Path, bus: &str) -> Place {
        let folder = root.join("sys/bus/pci/devices").join(bus.to_lowercase());
        // virtual machines may say 0, or 63
        let lanes = |name: &str| line(&folder.join(name))?.parse().ok().filter(|n| (1..=32).contains(n));
        Place {
            lanes: lanes("current_link_width").zip(lanes("max_link_width")).map(|(now, most)| [now, most]),
            speed: line(&folder.join("current_link_speed")),
            window: fs::read_to_string(folder.join("resource")).ok().and_then(|text| window(&text)),
            node: line(&folder.join("numa_node")).and_then(|n| n.parse().ok()).filter(|n| *n >= 0),
            redirects: fs::canonicalize(&folder).map_or(vec![], |path| redirects(&path)),
        }
    }
}

/// The first line of a file, if it says something.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())
}

/// The word behind another one that a line begins with.
fn word(path: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|l| l.strip_prefix(name))?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// The largest of the six regions that a card's `resource` file begins with is the window into its memory; a line has the first
/// and the last address.
fn window(text: &str) -> Option<u64> {
    let region = |line: &str| {
        let mut ends = line.split_whitespace();
        let mut address = || u64::from_str_radix(ends.next()?.strip_prefix("0x")?, 16).ok();
        let (first, last) = (address()?, address()?);
        last.checked_sub(first).filter(|bytes| *bytes > 0)?.checked_add(1)
    };
    text.lines().take(6).filter_map(region).max()
}

/// The bridges between a device and its root whose access control redirects.
fn redirects(device: &Path) -> Vec<String> {
    let above = device.ancestors().skip(1).take_while(|path| path.join("config").is_file());
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let redirecting = |path: &&Path| fs::read(path.join("config")).is_ok_and(|config| redirecting(&config));
    above.filter(redirecting).filter_map(name).collect()
}

/// Does a bridge of this configuration space redirect requests or completions between what is below it? Only root can read as
/// far as that is written (PCI Express, access control services).
fn redirecting(config: &[u8]) -> bool {
    const CONTROL: usize = 13;
    let word = |at: usize| Some(u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?));
    let mut at = 256;
    // the list ends, and can't be longer than there is room for
    for _ in 0..config.len() / 8 {
        let Some(header) = word(at).filter(|h| *h != 0 && *h != u32::MAX) else { return false };
        if header as u16 as usize == CONTROL {
            return word(at + 4).is_some_and(|both| both >> 16 & 0b1100 != 0);
        }
        at = (header >> 20) as usize;
    }
    false
}

/// Where Linux begins.
pub(super) fn root() -> PathBuf {
    PathBuf::from("/")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A configuration space with two capabilities, of which the second is access control.
    fn config(control: u16) -> Vec<u8> {
        let mut config = vec![0; 4096];
        config[256..260].copy_from_slice(&(0x140u32 << 20 | 1 << 16 | 1).to_le_bytes());
        config[0x140..0x144].copy_from_slice(&(1u32 << 16 | 13).to_le_bytes());
        config[0x146..0x148].copy_from_slice(&control.to_le_bytes());
        config
    }

    #[test]
    fn a_host_is_read() {
        let root = tempfile::tempdir().unwrap();
        let empty = Host::read(root.path());
        assert_eq!((empty.memory, empty.nodes, empty.governor, empty.iommu), (None, 1, None, false));
        write(root.path(), "proc/uptime", "7265.31 28012.10\n");
        write(root.path(), "proc/meminfo", "MemFree: 1 kB\nMemTotal:       16384 kB\n");
        write(root.path(), "sys/devices/system/node/node0/cpulist", "0-3");
        write(root.path(), "sys/devices/system/node/node1/cpulist", "4-7");
        write(root.path(), "sys/devices/system/node/possible", "0-1");
        write(root.path(), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write(root.path(), "sys/kernel/iommu_groups/0/type", "identity\n");
        assert!(!Host::read(root.path()).iommu);
        write(root.path(), "sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
        let host = Host::read(root.path());
        assert_eq!((host.memory, host.nodes, host.iommu), (Some(16 << 20), 2, true));
        assert_eq!(host.uptime, Some(7265));
        assert_eq!(host.governor.as_deref(), Some("powersave"));
    }

    #[test]
    fn a_place_is_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Place::read(root.path(), "0000:17:00.0"), Place::default());
        let bridge = "sys/devices/pci0000:16/0000:16:01.0";
        let card = format!("{bridge}/0000:17:00.0");
        write(root.path(), &format!("{bridge}/config"), config(0b1101));
        write(root.path(), &format!("{card}/config"), config(0));
        write(root.path(), &format!("{card}/current_link_width"), "8\n");
        write(root.path(), &format!("{card}/max_link_width"), "16\n");
        write(root.path(), &format!("{card}/current_link_speed"), "32.0 GT/s PCIe\n");
        write(root.path(), &format!("{card}/numa_node"), "1\n");
        // as a Hopper card has them: each region of 64 bits takes two lines
        let regions =
            "0x1000 0x1fff 0x0\n0x0 0x0 0x0\n0x0000000800000000 0x000000080fffffff 0x14220c\n0x0 0x0 0x0\n";
        write(root.path(), &format!("{card}/resource"), regions);
        let links = root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink(root.path().join(&card), links.join("0000:17:00.0")).unwrap();
        let place = Place::read(root.path(), "0000:17:00.0");
        assert_eq!(place.lanes, Some([8, 16]));
        assert_eq!(place.speed.as_deref(), Some("32.0 GT/s PCIe"));
        assert_eq!((place.window, place.node), (Some(256 << 20), Some(1)));
        assert_eq!(place.redirects, ["0000:16:01.0"]);
        write(root.path(), &format!("{bridge}/config"), config(0b0001));
        assert!(Place::read(root.path(), "0000:17:00.0").redirects.is_empty());
    }

    #[test]
    fn broken_files_say_nothing() {
        assert!(!redirecting(&[]));
        assert!(!redirecting(&[0xff; 4096]));
        // a list that goes round
        let mut config = vec![0; 4096];
        config[256..260].copy_from_slice(&(0x100u32 << 20 | 1).to_le_bytes());
        assert!(!redirecting(&config));
        for text in ["", "0x0 0x0 0x0\n", "0x5 0x4 0x0\n", "a\nb c\n", "x\n0x1", "0x0 0xffffffffffffffff 0x0"]
        {
            assert_eq!(window(text), None, "{text:?}");
        }
    }
}
