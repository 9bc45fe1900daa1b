//! The figures as curves over the number of streams, in one SVG.

use super::measure::{Row, median};
use std::collections::BTreeSet;
use std::fmt::Write;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 64.0;
const GAP: f64 = 84.0;
/// Told apart by colour-blind readers, too (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];

/// What a panel shows of a row.
type Value = fn(&Row) -> Option<f64>;

/// One curve: streams and values, in both of which it is positive.
struct Curve {
    name: String,
    context: u32,
    warm: bool,
    points: Vec<(f64, f64)>,
}

/// The three pictures side by side.
pub(super) fn draw(model: &str, rows: &[Row]) -> String {
    let panels: [(&str, Value); 3] = [
        ("tok/s of all streams", |row| median(&row.totals)),
        ("tok/s of a stream", |row| median(&row.rates)),
        ("ms to the first token", |row| median(&row.first).map(|s| s * 1e3)),
    ];
    let (across, legend) = (LEFT + 3.0 * (WIDTH + GAP), 20.0 * curves(rows, |_| None).len() as f64);
    let down = TOP + HEIGHT + 56.0 + legend;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {across} {down}\" width=\"{across}\" height=\"{down}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
        escape(model)
    );
    for (i, (title, value)) in panels.into_iter().enumerate() {
        panel(&mut svg, LEFT + i as f64 * (WIDTH + GAP), title, &curves(rows, value));
    }
    let named = curves(rows, |_| None);
    for (i, curve) in named.iter().enumerate() {
        let y = TOP + HEIGHT + 52.0 + 20.0 * i as f64;
        line(&mut svg, (LEFT, y - 4.0), (LEFT + 24.0, y - 4.0), &style(colour(&named, i), curve));
        text(&mut svg, (LEFT + 32.0, y), "start", &curve.name);
    }
    svg + "</svg>\n"
}

fn curves(rows: &[Row], value: Value) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let (context, warm) = (row.cell.context, row.cell.warm);
        let at = curves.iter().position(|c| (c.context, c.warm) == (context, warm)).unwrap_or_else(|| {
            let prefix = if warm { "warm prefix" } else { "cold" };
            let name = format!("prompt of {context} tokens, {prefix}");
            curves.push(Curve { name, context, warm, points: Vec::new() });
            curves.len() - 1
        });
        let point = value(row).filter(|v| v.is_finite() && *v > 0.0);
        curves[at].points.extend(point.map(|v| (f64::from(row.cell.streams), v)));
    }
    curves.iter_mut().for_each(|c| c.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    curves
}

/// Values on a logarithmic axis between powers of a base.
struct Axis {
    base: f64,
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, base: f64) -> Option<Axis> {
        let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
        // Powers of the base come out of `log` a rounding away from whole.
        let (low, high) = ((least.log(base) + 1e-9).floor(), (most.log(base) - 1e-9).ceil());
        (most > 0.0).then(|| Axis { base, low, high: high.max(low + 1.0) })
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log(self.base) - self.low) / (self.high - self.low)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| self.base.powi(power))
    }
}

fn panel(svg: &mut String, left: f64, title: &str, curves: &[Curve]) {
    text(svg, (left, TOP - 14.0), "start", title);
    let points = || curves.iter().flat_map(|c| &c.points);
    let axes = (Axis::over(points().map(|p| p.0), 2.0), Axis::over(points().map(|p| p.1), 10.0));
    let (Some(across), Some(up)) = axes else {
        return text(svg, (left, TOP + 20.0), "start", "nothing was answered");
    };
    let place = |p: &(f64, f64)| (left + WIDTH * across.place(p.0), TOP + HEIGHT * (1.0 - up.place(p.1)));
    let grid = "stroke=\"#ddd\"";
    for x in across.marks() {
        let at = place(&(x, 1.0)).0;
        text(svg, (at, TOP + HEIGHT + 18.0), "middle", &x.to_string());
        line(svg, (at, TOP), (at, TOP + HEIGHT), grid);
    }
    for y in up.marks() {
        let at = place(&(1.0, y)).1;
        text(svg, (left - 8.0, at + 4.0), "end", &y.to_string());
        line(svg, (left, at), (left + WIDTH, at), grid);
    }
    text(svg, (left + WIDTH, TOP + HEIGHT + 34.0), "end", "streams");
    for (i, curve) in curves.iter().enumerate() {
        let colour = colour(curves, i);
        let at: Vec<(f64, f64)> = curve.points.iter().map(place).collect();
        at.windows(2).for_each(|pair| line(svg, pair[0], pair[1], &style(colour, curve)));
        for (x, y) in at {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

/// One for each length of prompts; cold and warm differ in the dashes.
fn colour(curves: &[Curve], i: usize) -> &'static str {
    let lengths: BTreeSet<u32> = curves.iter().map(|c| c.context).collect();
    COLOURS[lengths.range(..curves[i].context).count() % COLOURS.len()]
}

fn style(colour: &str, curve: &Curve) -> String {
    let dashes = if curve.warm { " stroke-dasharray=\"5 4\"" } else { "" };
    format!("stroke=\"{colour}\" stroke-width=\"2\"{dashes}")
}

// Writing into a string does not fail.
fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, says: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(says));
}

/// A model's name is a server's word.
pub(in super::super) fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_powers() {
        let check = |values: &[f64], base: f64, expected: &[f64]| {
            let axis = Axis::over(values.iter().copied(), base).unwrap();
            assert_eq!(axis.marks().collect::<Vec<_>>(), expected, "{values:?}");
            assert!(values.iter().all(|v| (-1e-9..=1.0 + 1e-9).contains(&axis.place(*v))), "{values:?}");
        };
        check(&[1.0, 8.0], 2.0, &[1.0, 2.0, 4.0, 8.0]);
        check(&[1000.0], 10.0, &[1000.0, 10000.0]);
        check(&[0.5, 30.0], 10.0, &[0.1, 1.0, 10.0, 100.0]);
        assert!(Axis::over([].into_iter(), 2.0).is_none());
    }

    #[test]
    fn names_are_text() {
        assert_eq!(escape("a<script>&\u{1b}"), "a&lt;script&gt;&amp;");
        assert!(draw("x", &[]).contains("nothing was answered"));
    }
}
