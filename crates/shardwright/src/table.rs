//! What people read: tables in columns, and sizes with units.

use std::fmt;
use std::time::Duration;

/// Rows of cells; the first columns are aligned left, the others right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
    headed: bool,
}

impl Table {
    /// A table with a line of column names; the first `left` columns are aligned left.
    pub(crate) fn new<'a>(left: usize, names: impl IntoIterator<Item = &'a str>) -> Table {
        Table { rows: vec![names.into_iter().map(str::to_owned).collect()], left, headed: true }
    }

    /// A table of names and values, both aligned left.
    pub(crate) fn pairs() -> Table {
        Table { rows: vec![], left: 2, headed: false }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|c| printable(&c)).collect());
    }

    /// Adds a name and its value.
    pub(crate) fn pair(&mut self, name: &str, value: impl fmt::Display) {
        self.row([name.to_owned(), value.to_string()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let wide = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| wide(c).unwrap_or(0)).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let cell = |(c, text): (usize, &String)| match c < self.left {
                true => format!("{text:<0$}", widths[c]),
                false => format!("{text:>0$}", widths[c]),
            };
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            writeln!(f, "  {}", cells.join("  ").trim_end())?;
            if i == 0 && self.headed {
                let lines: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
                writeln!(f, "  {}", lines.join("  "))?;
            }
        }
        Ok(())
    }
}

/// The text on one line: control characters, which a file or a template may hold and a terminal would obey, are escaped.
pub(crate) fn printable(text: &str) -> String {
    let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(show).collect()
}

/// Bytes in decimal units, three digits: `33.4 GB`, `6.53 kB`, `0`.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| n as f64 >= *unit) {
        Some((unit, name)) => format!("{} {name}", digits(n as f64 / unit)),
        None if n == 0 => "0".into(),
        None => format!("{n} B"),
    }
}

/// Counts: `743.9 B` weights, `1.5 M`.
pub(crate) fn count(n: u64) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| n as f64 >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", n as f64 / unit),
        None => n.to_string(),
    }
}

fn digits(x: f64) -> String {
    match x {
        x if x < 10.0 => format!("{x:.2}"),
        x if x < 100.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    }
}

/// Bytes from `1500`, `50G`, `50GB` (10^9) or `50Gi`, `50GiB` (2^30); likewise k, M and T.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write 1500, 50G (10^9 bytes) or 50GiB (2^30 bytes)");
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (prefix, base) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, 1024f64),
        None => (unit, 1000f64),
    };
    let power = ["", "k", "m", "g", "t"].iter().position(|p| *p == prefix).ok_or_else(wrong)?;
    let size = number * base.powi(power as i32);
    if size < u64::MAX as f64 { Ok(size as u64) } else { Err(wrong()) }
}

/// A time as the command line has it: microseconds, perhaps with a part of one, up to a second.
pub(crate) fn parse_microseconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e6).contains(&us) => Ok(Duration::from_nanos((us * 1e3).round() as u64)),
        _ => Err(format!("`{text}` is no time of 0 to 1000000 microseconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_that_no_terminal_obeys() {
        let mut table = Table::pairs();
        table.pair("na\tme", "evil\u{1b}[31m\nGrüße");
        assert_eq!(table.to_string(), "  na\\tme  evil\\u{1b}[31m\\nGrüße\n");
    }

    #[test]
    fn sizes_are_read_in_both_bases_and_written_in_one() {
        let check = |text: &str, want: Option<u64>| assert_eq!(parse_bytes(text).ok(), want, "{text}");
        check("1500", Some(1500));
        check("50G", Some(50_000_000_000));
        check("1.5 GB", Some(1_500_000_000));
        check("2GiB", Some(2 << 30));
        check("64Mi", Some(64 << 20));
        check("1T", Some(1_000_000_000_000));
        for bad in ["", "G", "5X", "-1", "1e30T", "99999999999T"] {
            check(bad, None);
        }
        let shown = [0, 999, 6528, 33_399_419_904, 467_279_569_920].map(bytes);
        assert_eq!(shown, ["0", "999 B", "6.53 kB", "33.4 GB", "467 GB"]);
        assert_eq!([12, 1_500_000, 743_911_218_432].map(count), ["12", "1.5 M", "743.9 B"]);
    }

    #[test]
    fn columns_line_up() {
        let mut t = Table::new(1, ["part", "bytes"]);
        t.row(["a".into(), "10".into()]);
        t.row(["longer".into(), "7".into()]);
        assert_eq!(t.to_string(), "  part    bytes\n  ──────  ─────\n  a          10\n  longer      7\n");
    }
}
