//! Frames on a connection: a mark, the length, a checksum, and so many bytes. Whoever sends something else is told apart
//! before any of it is believed.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

/// Begins every frame.
const MARK: [u8; 4] = *b"SWst";
/// Mark, length and checksum.
const HEAD: usize = 12;

/// Why no frame came.
#[derive(Debug)]
pub(super) enum Fault {
    /// The other end has closed the connection.
    Closed,
    /// Nothing came for longer than the connection's patience.
    Silent,
    /// The system's words.
    Lost(io::Error),
    /// What came makes no sense.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Closed => f.write_str("has gone: the connection was closed"),
            Fault::Silent => f.write_str("gives no sign of life any more"),
            Fault::Lost(e) => write!(f, "has gone: {e}"),
            Fault::Broken(what) => write!(f, "sends what makes no sense: {what}"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Fault {
        match e.kind() {
            ErrorKind::UnexpectedEof => Fault::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::Silent,
            _ => Fault::Lost(e),
        }
    }
}

/// Sends one frame.
pub(super) fn write(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| io::Error::other("a message of more than 4 GiB"))?;
    let mut frame = Vec::with_capacity(HEAD + body.len());
    frame.extend(MARK);
    frame.extend(length.to_le_bytes());
    frame.extend(crc32fast::hash(body).to_le_bytes());
    frame.extend(body);
    to.write_all(&frame)
}

/// Waits for a frame of at most `most` bytes, as of when it comes. Memory grows with what arrives, not with what is
/// announced.
pub(super) fn read(from: &mut impl Read, most: impl FnOnce() -> usize) -> Result<Vec<u8>, Fault> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head)?;
    let (mark, numbers) = head.split_at(MARK.len());
    if mark != MARK {
        return Err(Fault::Broken("no frame of a stage begins like this".into()));
    }
    let [length, sum] = [0, 4].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|i| numbers[at + i])));
    let most = most();
    if length as usize > most {
        return Err(Fault::Broken(format!("a frame of {length} bytes, at most {most} are expected")));
    }
    let mut body = Vec::new();
    from.take(length.into()).read_to_end(&mut body)?;
    match body.len() == length as usize {
        false => Err(Fault::Closed),
        true if crc32fast::hash(&body) != sum => Err(Fault::Broken("a frame with a wrong checksum".into())),
        true => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![];
        write(&mut bytes, body).unwrap();
        bytes
    }

    #[test]
    fn frames_come_back_one_by_one() {
        let bytes = [frame(b"one"), frame(b""), frame(b"three")].concat();
        let mut bytes = &bytes[..];
        for want in [&b"one"[..], b"", b"three"] {
            assert_eq!(read(&mut bytes, || 5).unwrap(), want);
        }
        assert!(matches!(read(&mut bytes, || 5), Err(Fault::Closed)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let good = frame(b"some bytes");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&mut &bad[..], || 1 << 20).is_err(), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(matches!(read(&mut &good[..cut], || 1 << 20), Err(Fault::Closed)), "{cut} bytes");
        }
        let too_long = read(&mut &good[..], || 9).unwrap_err().to_string();
        assert!(too_long.contains("10 bytes, at most 9"), "{too_long}");
        assert!(
            read(&mut &b"GET / HTTP/1.1\r\n\r\n"[..], || 9).unwrap_err().to_string().contains("no frame")
        );
    }
}
