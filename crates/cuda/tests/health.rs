//! Cards are watched: what they tell, and what becomes of an executor whose card is lost or whose driver hangs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod nvml;

use nvml::{Fake, PLACE};
use shardwright_cuda::health::Guarded;
use shardwright_cuda::nvml::Link;
use shardwright_model::card::Card;
use shardwright_model::exec::{Executor, Limits, StepBatch, Want};
use shardwright_model::null::Null;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn a_card_tells_how_it_is() {
    let Some(fake) = Fake::new() else { return };
    let mut card = fake.open().card(PLACE, 4).unwrap();
    let well = Card {
        index: 4,
        power: [Some(412.5), Some(600.0)],
        power_usual: Some(700.0),
        clock: [Some(1.755e9), Some(1.98e9)],
        memory_clock: [Some(3.201e9); 2],
        temperature: Some(61.0),
        replays: Some(3),
        errors: [Some(5), Some(0)],
        slowed: Some(false),
        held: Some(false),
        // this library is older than that question
        worn: None,
        xids: (0, None),
    };
    assert_eq!(card.read().unwrap(), well);
    fake.is("hot");
    assert_eq!(card.read().unwrap(), Card { slowed: Some(true), ..well.clone() });
    fake.is("xid");
    let ill = Card { xids: (1, Some(63)), ..well };
    assert_eq!(card.read().unwrap(), ill);
    assert_eq!(card.read().unwrap(), ill, "told once, counted once");
    fake.is("lost");
    assert!(card.read().unwrap_err().to_string().contains("GPU 4 is lost: GPU is lost"));
    let why = fake.open().card("0000:99:00.0", 5).unwrap_err().to_string();
    assert!(why.contains("GPU 5 at 0000:99:00.0: Not Found"), "{why}");
}

/// Where others are: the first one is joined to `PLACE` by NVLink, the second one is not, the third one is not there.
const OTHERS: [&str; 3] = ["0000:65:00.0", "0000:ca:00.0", "0000:99:00.0"];

#[test]
fn how_two_cards_are_joined_is_told() {
    let Some(fake) = Fake::new() else { return };
    let nvml = fake.open();
    let pairs = OTHERS.map(|other| [PLACE, other].map(str::to_owned));
    let check = |state: &str, expected: [Link; 3]| {
        fake.is(state);
        assert_eq!(nvml.links(&pairs), expected, "{state}");
    };
    for (level, link) in [
        (0, Link::Switch),
        (10, Link::Switch),
        (20, Link::Switches),
        (30, Link::Bridge),
        (40, Link::Node),
        (50, Link::Sockets),
        (60, Link::Unknown),
    ] {
        check(&format!("level {level}"), [Link::NvLink, link, Link::Unknown]);
    }
    check("no topology", [Link::NvLink, Link::Unknown, Link::Unknown]);
    check("no peers", [Link::Unknown; 3]);
    check("lost", [Link::Unknown; 3]);
    // who waits for the start to end does not wait for a driver that hangs
    let begun = Instant::now();
    check("silent", [Link::Unknown; 3]);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    fake.is("");
    assert_eq!(nvml.links(&[]), []);
}

#[test]
fn a_library_that_is_too_old_knows_no_link() {
    let Some(fake) = Fake::compiled(&["-DOLD"]) else { return };
    let pair = [PLACE, OTHERS[0]].map(str::to_owned);
    assert_eq!(fake.open().links(&[pair]), [Link::Unknown]);
}

const LIMITS: Limits =
    Limits { vocab: 4, rows: 4, blocks: 4, context: 64, width: 1, drafts: false, takes: 0 };

fn guarded(fake: &Fake) -> Guarded {
    let card = fake.open().card(PLACE, 0).unwrap();
    let hung = |why: &str| panic!("nothing hangs here: {why}");
    Guarded::new(Box::new(Null::new(LIMITS, |_, _| 1)), vec![card], hung).unwrap()
}

/// What the executor says when asked again and again, as the engine does.
fn ends(exec: &mut Guarded, within: Duration) -> String {
    let begun = Instant::now();
    loop {
        if let Err(why) = exec.check() {
            return why.to_string();
        }
        assert!(begun.elapsed() < within, "nothing was noticed");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_lost_card_ends_the_executor() {
    let Some(fake) = Fake::new() else { return };
    let mut exec = guarded(&fake);
    let begun = Instant::now();
    while exec.cards().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(5), "nothing was seen");
        exec.check().unwrap();
    }
    assert_eq!(exec.cards()[0].temperature, Some(61.0));
    fake.is("lost");
    assert!(ends(&mut exec, Duration::from_secs(5)).contains("GPU 0 is lost"));
}

#[test]
fn a_step_that_does_not_end_on_a_lost_card_is_told() {
    let Some(fake) = Fake::new() else { return };
    let card = fake.open().card(PLACE, 0).unwrap();
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let stuck = Null::new(LIMITS, move |_, _| {
        // until the test has seen what it wants to see
        let _ = ended.lock().unwrap().recv();
        1
    });
    let hung = move |why: &str| tell.send(why.to_owned()).unwrap();
    let mut exec = Guarded::new(Box::new(stuck), vec![card], hung).unwrap();
    let batch = StepBatch {
        tokens: vec![0],
        positions: vec![0],
        sequences: vec![0],
        tables: vec![vec![0]],
        wants: vec![Want::Candidates],
        want_hidden: false,
        hidden: None,
    };
    let step = std::thread::spawn(move || exec.step(&batch).is_ok());
    fake.is("lost");
    let why = told.recv_timeout(Duration::from_secs(8)).unwrap();
    assert!(why.contains("GPU 0 is lost"), "{why}");
    drop(end);
    assert!(step.join().unwrap());
}

#[test]
fn a_driver_that_hangs_ends_the_executor() {
    let Some(fake) = Fake::new() else { return };
    let mut exec = guarded(&fake);
    exec.check().unwrap();
    fake.is("silent");
    // a process that was stopped for a while finds no fault in that
    std::thread::sleep(Duration::from_secs(5));
    exec.check().unwrap();
    let why = ends(&mut exec, Duration::from_secs(6));
    assert!(why.contains("the driver has not told for 4 s"), "{why}");
    fake.is("");
}
