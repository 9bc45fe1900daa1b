//! NVML, NVIDIA's library for watching cards. It comes with the driver; without it everything but the watching works.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, mpsc};
use std::thread::Builder;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use shardwright_model::card::Card;

use crate::find::Wanted;
use crate::{Error, Result};

const NVML: Wanted = Wanted {
    title: "NVML, by which cards are watched,",
    names: &["libnvidia-ml.so.1"],
    variable: "SHARDWRIGHT_NVML",
    cure: "it comes with NVIDIA's driver",
};

/// A library that has not answered by then hangs.
const PATIENCE: Duration = Duration::from_secs(5);

type Handle = *mut c_void;
type Status = c_int;
type Number = unsafe extern "C" fn(Handle, *mut c_uint) -> Status;
type Wide = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status;
type Kind = unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> Status;
type Two = unsafe extern "C" fn(Handle, Handle, *mut c_int) -> Status;
type TwoBy = unsafe extern "C" fn(Handle, Handle, c_int, *mut c_int) -> Status;

const SUCCESS: Status = 0;
/// It has fallen off the bus, or can do nothing before it is reset.
const LOST: [Status; 2] = [15, 16];

/// By NVLink, of what `nvmlDeviceGetP2PStatus` may be asked; and its answer where cards reach each other so.
const NVLINK: c_int = 2;
const REACHED: c_int = 0;

const CLOCK_SM: c_int = 1;
const CLOCK_MEMORY: c_int = 2;
const XID: c_ulonglong = 8;
/// Reasons for a slower clock: the user's choice; then power cap, hardware, heat (software and hardware), power brake.
const HELD: c_ulonglong = 0x2;
const SLOWED: c_ulonglong = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

/// The functions that are used, as `nvml.h` declares them. Those that are optional are younger, or not for every card.
#[derive(Debug)]
struct Api {
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    by_bus: unsafe extern "C" fn(*const c_char, *mut Handle) -> Status,
    power: Option<Number>,
    power_limit: Option<Number>,
    power_usual: Option<Number>,
    clock: Option<Kind>,
    clock_most: Option<Kind>,
    temperature: Kind,
    replays: Option<Number>,
    errors: Option<unsafe extern "C" fn(Handle, c_int, c_int, *mut c_ulonglong) -> Status>,
    reasons: Option<Wide>,
    rows: Option<unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> Status>,
    set: Option<unsafe extern "C" fn(*mut Handle) -> Status>,
    register: Option<unsafe extern "C" fn(Handle, c_ulonglong, Handle) -> Status>,
    wait: Option<unsafe extern "C" fn(Handle, *mut Event, c_uint) -> Status>,
    ancestor: Option<Two>,
    peer: Option<TwoBy>,
}

/// What has happened to a card.
#[repr(C)]
struct Event {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    instances: [c_uint; 2],
}

impl Api {
    fn open(file: &Path) -> Result<Api, String> {
        // SAFETY: the library is made to be loaded by any process. The functions' types are the header's; `nvmlInit_v2` may be called
        // again and again.
        unsafe {
            let library = Library::open(Some(file), RTLD_NOW | RTLD_LOCAL).map_err(|e| e.to_string())?;
            let need = |e: libloading::Error| e.to_string();
            let init: unsafe extern "C" fn() -> Status = *library.get(b"nvmlInit_v2\0").map_err(need)?;
            macro_rules! maybe {
                ($name:literal) => {
                    library.get($name).ok().map(|f| *f)
                };
            }
            let api = Api {
                error_string: *library.get(b"nvmlErrorString\0").map_err(need)?,
                by_bus: *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").map_err(need)?,
                power: maybe!(b"nvmlDeviceGetPowerUsage\0"),
                power_limit: maybe!(b"nvmlDeviceGetEnforcedPowerLimit\0"),
                power_usual: maybe!(b"nvmlDeviceGetPowerManagementDefaultLimit\0"),
                clock: maybe!(b"nvmlDeviceGetClockInfo\0"),
                clock_most: maybe!(b"nvmlDeviceGetMaxClockInfo\0"),
                temperature: *library.get(b"nvmlDeviceGetTemperature\0").map_err(need)?,
                replays: maybe!(b"nvmlDeviceGetPcieReplayCounter\0"),
                errors: maybe!(b"nvmlDeviceGetTotalEccErrors\0"),
                reasons: maybe!(b"nvmlDeviceGetCurrentClocksThrottleReasons\0"),
                rows: maybe!(b"nvmlDeviceGetRemappedRows\0"),
                set: maybe!(b"nvmlEventSetCreate\0"),
                register: maybe!(b"nvmlDeviceRegisterEvents\0"),
                wait: maybe!(b"nvmlEventSetWait_v2\0"),
                ancestor: maybe!(b"nvmlDeviceGetTopologyCommonAncestor\0"),
                peer: maybe!(b"nvmlDeviceGetP2PStatus\0"),
            };
            api.check(init())?;
            // never closed: the functions stay valid
            library.into_raw();
            Ok(api)
        }
    }

    fn check(&self, status: Status) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: gives a constant text for every number.
        let words = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(words.to_string_lossy().into_owned())
    }
}

/// How two cards are joined, as far as what they send each other goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// By NVLink, perhaps through its switches.
    NvLink,
    /// By one PCIe switch, which may be on their board.
    Switch,
    /// By PCIe switches of which one hangs on the other.
    Switches,
    /// Where PCIe meets the processor.
    Bridge,
    /// Through the processor, from one of its host bridges to another.
    Node,
    /// Through two processors.
    Sockets,
    /// The library is not there, or does not tell.
    #[default]
    Unknown,
}

impl Link {
    /// By NVML's level of what two cards have in common.
    fn of(level: c_int) -> Link {
        match level {
            // cards of one board have a switch there
            0 | 10 => Link::Switch,
            20 => Link::Switches,
            30 => Link::Bridge,
            40 => Link::Node,
            50 => Link::Sockets,
            _ => Link::Unknown,
        }
    }
}

impl Display for Link {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::NvLink => "NVLink",
            Link::Switch => "one PCIe switch",
            Link::Switches => "several PCIe switches",
            Link::Bridge => "one PCIe host bridge",
            Link::Node => "one NUMA node, across host bridges",
            Link::Sockets => "across sockets",
            Link::Unknown => "an unknown link",
        })
    }
}

/// The library.
#[derive(Clone, Debug)]
pub struct Nvml(Arc<Api>);

/// A card in the library's eyes.
#[derive(Debug)]
pub struct Watched {
    api: Arc<Api>,
    handle: Handle,
    /// Where its critical errors are told, if they are.
    events: Option<Handle>,
    index: usize,
    xids: (u64, Option<u64>),
}

// SAFETY: NVML's functions may be called from any thread; a handle is a name.
unsafe impl Send for Watched {}

impl Nvml {
    /// Looks for it as the loader does, or where `SHARDWRIGHT_NVML` says.
    ///
    /// # Errors
    /// If there is none, or it does not start.
    pub fn find() -> Result<Nvml> {
        let look = || NVML.first(&|name| std::env::var_os(name), Nvml::open).map_err(Error::Driver);
        soon(look)?
    }

    /// This one.
    ///
    /// # Errors
    /// If it is no such library, or does not start.
    pub fn open(file: &Path) -> Result<Nvml, String> {
        Ok(Nvml(Arc::new(Api::open(file)?)))
    }

    /// The card at this place of the PCI bus, which is called GPU `index`.
    ///
    /// # Errors
    /// If it is not there.
    pub fn card(&self, place: &str, index: usize) -> Result<Watched> {
        let failed = |why| Error::Driver(format!("NVML does not show GPU {index} at {place}: {why}"));
        let handle = self.handle(place).map_err(failed)?;
        let events = self.events(handle);
        Ok(Watched { api: self.0.clone(), handle, events, index, xids: (0, None) })
    }

    /// How the two cards of each pair are joined, by their places of the PCI bus. A driver that hangs knows of none.
    #[must_use]
    pub fn links(&self, pairs: &[[String; 2]]) -> Vec<Link> {
        let (nvml, asked) = (self.clone(), pairs.to_vec());
        let look = move || asked.iter().map(|pair| nvml.link(pair).unwrap_or_default()).collect();
        soon(look).unwrap_or_else(|_| vec![Link::Unknown; pairs.len()])
    }

    /// None if one of both questions is not answered: cards that PCIe joins, too, may send by NVLink.
    fn link(&self, [one, other]: &[String; 2]) -> Option<Link> {
        let (peer, ancestor) = (self.0.peer?, self.0.ancestor?);
        let [one, other] = [self.handle(one).ok()?, self.handle(other).ok()?];
        let (mut state, mut level) = (0, 0);
        // SAFETY: the handles are the library's; room for its answer.
        let told = unsafe { peer(one, other, NVLINK, &mut state) } == SUCCESS;
        if told && state == REACHED {
            return Some(Link::NvLink);
        }
        // SAFETY: as above.
        (told && unsafe { ancestor(one, other, &mut level) } == SUCCESS).then(|| Link::of(level))
    }

    /// What the library calls the card at this place.
    fn handle(&self, place: &str) -> Result<Handle, String> {
        let name = CString::new(place).map_err(|e| e.to_string())?;
        let mut handle = ptr::null_mut();
        // SAFETY: the text ends with NUL; room for a handle.
        self.0.check(unsafe { (self.0.by_bus)(name.as_ptr(), &mut handle) })?;
        Ok(handle)
    }

    /// Where a card's critical errors will be told.
    fn events(&self, card: Handle) -> Option<Handle> {
        let (create, register) = (self.0.set?, self.0.register?);
        let mut set = ptr::null_mut();
        // SAFETY: room for a handle. The set lives as long as the process.
        let made = unsafe { create(&mut set) } == SUCCESS;
        // SAFETY: both handles are the library's.
        (made && unsafe { register(card, XID, set) } == SUCCESS).then_some(set)
    }
}

/// What the library says, or that it is silent; then the thread that has asked stays behind.
fn soon<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (tell, told) = mpsc::channel();
    let ask = move || {
        // nobody may be waiting any more
        let _ = tell.send(ask());
    };
    let thread = Builder::new().name("nvml".into()).spawn(ask);
    thread.map_err(|e| Error::Driver(format!("NVML can't be asked: {e}")))?;
    let silent = |_| Error::Driver(format!("NVML has not answered within {} s", PATIENCE.as_secs()));
    told.recv_timeout(PATIENCE).map_err(silent)
}

impl Watched {
    /// How it is now.
    ///
    /// # Errors
    /// If it is lost, or nothing but a reset helps it.
    pub fn read(&mut self) -> Result<Card> {
        let mut degrees = 0;
        // SAFETY: the handle is the library's; room for a number.
        let status = unsafe { (self.api.temperature)(self.handle, 0, &mut degrees) };
        if LOST.contains(&status) {
            let why = self.api.check(status).err().unwrap_or_default();
            return Err(Error::Driver(format!("GPU {} is lost: {why}", self.index)));
        }
        let thousandth = |watts: Option<u32>| watts.map(|mw| f64::from(mw) / 1e3);
        let hertz =
            |kind| [self.api.clock, self.api.clock_most].map(|f| Some(f64::from(self.kind(f, kind)?) * 1e6));
        let reasons = self.reasons();
        let card = Card {
            index: self.index,
            power: [self.api.power, self.api.power_limit].map(|f| thousandth(self.number(f))),
            power_usual: thousandth(self.number(self.api.power_usual)),
            clock: hertz(CLOCK_SM),
            memory_clock: hertz(CLOCK_MEMORY),
            temperature: (status == SUCCESS).then_some(f64::from(degrees)),
            replays: self.number(self.api.replays).map(u64::from),
            errors: [0, 1].map(|kind| self.errors(kind)),
            slowed: reasons.map(|reasons| reasons & SLOWED != 0),
            held: reasons.map(|reasons| reasons & HELD != 0),
            worn: self.worn(),
            xids: self.hear(),
        };
        Ok(card)
    }

    fn number(&self, ask: Option<Number>) -> Option<u32> {
        let mut number = 0;
        // SAFETY: the handle is the library's; room for a number.
        (unsafe { ask?(self.handle, &mut number) } == SUCCESS).then_some(number)
    }

    fn kind(&self, ask: Option<Kind>, kind: c_int) -> Option<u32> {
        let mut number = 0;
        // SAFETY: as above.
        (unsafe { ask?(self.handle, kind, &mut number) } == SUCCESS).then_some(number)
    }

    /// Errors of memory since the driver was loaded.
    fn errors(&self, kind: c_int) -> Option<u64> {
        let mut count = 0;
        // SAFETY: as above.
        (unsafe { self.api.errors?(self.handle, kind, 0, &mut count) } == SUCCESS).then_some(count)
    }

    fn reasons(&self) -> Option<u64> {
        let mut bits = 0;
        // SAFETY: as above.
        (unsafe { self.api.reasons?(self.handle, &mut bits) } == SUCCESS).then_some(bits)
    }

    fn worn(&self) -> Option<bool> {
        let [mut corrected, mut not, mut pending, mut failed] = [0; 4];
        let ask = self.api.rows?;
        // SAFETY: as above, for four numbers.
        let status = unsafe { ask(self.handle, &mut corrected, &mut not, &mut pending, &mut failed) };
        (status == SUCCESS).then_some(pending != 0 || failed != 0)
    }

    /// Critical errors, with those that have come since.
    fn hear(&mut self) -> (u64, Option<u64>) {
        if let (Some(set), Some(wait)) = (self.events, self.api.wait) {
            let mut event = Event { device: ptr::null_mut(), kind: 0, data: 0, instances: [0; 2] };
            // SAFETY: the set is the library's; room for an event.
            while unsafe { wait(set, &mut event, 0) } == SUCCESS {
                if event.kind & XID != 0 {
                    self.xids = (self.xids.0 + 1, Some(event.data));
                }
            }
        }
        self.xids
    }
}
