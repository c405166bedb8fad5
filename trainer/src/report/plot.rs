//! One plot as an HTML figure: title and legend as text, so that they never cover data, then lines and bands
//! over the steps as an SVG with labelled axes.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordu64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (640, 310);
const INK: RGBColor = RGBColor(55, 60, 70);
const GRID: RGBColor = RGBColor(228, 230, 235);

/// Colours distinguishable under most kinds of colour blindness (Okabe and Ito).
pub(super) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(super) const ORANGE: RGBColor = RGBColor(213, 94, 0);
pub(super) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(super) const PURPLE: RGBColor = RGBColor(165, 90, 150);
/// The colours of lines that are counted.
pub(super) const COLORS: [RGBColor; 6] =
    [BLUE, ORANGE, GREEN, PURPLE, RGBColor(200, 145, 0), RGBColor(70, 160, 215)];

type Points = Vec<(f64, f64)>;

/// What a plot draws, back to front.
pub(super) enum Series<'a> {
    /// A line.
    Line { name: &'a str, color: RGBColor, points: Points, dots: bool },
    /// The area between two lines over the same steps. Without a name it is an interval around a line: not in
    /// the legend, and cut off at the limits.
    Band { name: &'a str, color: RGBColor, low: Points, high: Points },
}

/// A plot's labels and scales.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) y_label: &'a str,
    /// Fixed limits, if no value is beyond them; otherwise they are derived from the values.
    pub(super) y: Option<(f64, f64)>,
    /// Logarithmic y axis.
    pub(super) log: bool,
}

impl Plot<'_> {
    /// Draws the series as an HTML figure.
    pub(super) fn figure(&self, x_label: &str, series: &[Series<'_>]) -> Result<String> {
        // The wide intervals of few seeds must not squeeze their lines.
        let measured = || series.iter().filter(|one| !matches!(one, Series::Band { name: "", .. }));
        let values = || measured().flat_map(Series::values).filter(|(_, y)| y.is_finite());
        let last = values().map(|(x, _)| x).fold(1.0, f64::max);
        let fixed = self.y.filter(|(low, high)| values().all(|(_, y)| (*low..=*high).contains(&y)));
        let (low, high) = fixed.unwrap_or_else(|| {
            let low = values().map(|(_, y)| y).fold(f64::INFINITY, f64::min);
            let high = values().map(|(_, y)| y).fold(f64::NEG_INFINITY, f64::max);
            limits(low, high, self.log)
        });
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area);
        chart.margin(8).margin_right(18).x_label_area_size(40).y_label_area_size(70);
        // Whole numbers, so that its ticks are too.
        let x = 0..last as u64;
        if self.log {
            let y = (low..high).log_scale().with_key_points(log_ticks(low, high));
            let chart = chart.build_cartesian_2d(x, y).map_err(wrong)?;
            draw(chart, x_label, self, series, low, high)?;
        } else {
            let chart = chart.build_cartesian_2d(x, low..high).map_err(wrong)?;
            draw(chart, x_label, self, series, low, high)?;
        }
        area.present().map_err(wrong)?;
        drop(area);
        let legend: String = series.iter().map(Series::legend).collect();
        Ok(format!(
            "<figure><figcaption><b>{}</b>{legend}</figcaption>{svg}</figure>",
            super::escape(self.title)
        ))
    }
}

impl Series<'_> {
    fn legend(&self) -> String {
        let (class, name, RGBColor(r, g, b)) = match self {
            Self::Band { name: "", .. } => return String::new(),
            Self::Line { name, color, .. } => ("line", name, color),
            Self::Band { name, color, .. } => ("band", name, color),
        };
        let name = super::escape(name);
        format!("<span><i class=\"{class}\" style=\"background:rgb({r},{g},{b})\"></i>{name}</span>")
    }

    fn values(&self) -> Box<dyn Iterator<Item = (f64, f64)> + '_> {
        match self {
            Self::Line { points, .. } => Box::new(points.iter().copied()),
            Self::Band { low, high, .. } => Box::new(low.iter().chain(high).copied()),
        }
    }
}

/// Axis limits with some padding around the values; the range is never empty.
fn limits(low: f64, high: f64, log: bool) -> (f64, f64) {
    if low > high {
        return if log { (0.1, 10.0) } else { (0.0, 1.0) };
    }
    if log {
        return (low.max(1e-6) / 1.3, high.max(1e-6) * 1.3);
    }
    let air = (0.06 * (high - low)).max(1e-6 + 1e-3 * high.abs());
    (if low >= 0.0 && low <= air { 0.0 } else { low - air }, high + air)
}

/// Ticks of a logarithmic axis: closer the fewer decades it has.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let (every, factors) = match high / low {
        ..3.0 => (1, &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0][..]),
        ..100.0 => (1, &[1.0, 2.0, 5.0][..]),
        _ => (1 + decades.clone().count() / 8, &[1.0][..]),
    };
    let ticks = decades.step_by(every).flat_map(|e| factors.iter().map(move |f| f * 10_f64.powi(e)));
    ticks.filter(|y| (low..=high).contains(y)).collect()
}

fn draw<'a, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordu64, Y>>,
    x_label: &str,
    plot: &Plot<'_>,
    series: &[Series<'_>],
    low: f64,
    high: f64,
) -> Result<()>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64> + 'a,
{
    let text = ("sans-serif", 13).into_font().color(&INK);
    let y_text = |y: &f64| number(*y);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text.clone())
        .x_desc(x_label)
        .y_desc(plot.y_label)
        .x_labels(9)
        .y_labels(6)
        .y_label_formatter(&y_text)
        .draw()
        .map_err(wrong)?;
    let inside = |points: &Points| -> Vec<(u64, f64)> {
        let finite = points.iter().filter(|(_, y)| y.is_finite());
        finite.map(|&(x, y)| (x as u64, y.clamp(low, high))).collect()
    };
    for one in series {
        match one {
            Series::Line { color, points, dots, .. } => {
                let color = *color;
                chart.draw_series(LineSeries::new(inside(points), color.stroke_width(2))).map_err(wrong)?;
                // A line through one point is invisible.
                if *dots || points.len() <= 2 {
                    let dot = |p| Circle::new(p, 3, color.filled());
                    chart.draw_series(inside(points).into_iter().map(dot)).map_err(wrong)?;
                }
            }
            Series::Band { color, low, high, .. } => {
                let fill = color.mix(0.22);
                let outline =
                    inside(low).into_iter().chain(inside(high).into_iter().rev()).collect::<Vec<_>>();
                chart.draw_series(std::iter::once(Polygon::new(outline, fill.filled()))).map_err(wrong)?;
            }
        }
    }
    Ok(())
}

/// Formats a number briefly, for an axis.
fn number(y: f64) -> String {
    let size = y.abs();
    if y == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e5).contains(&size) {
        format!("{y:.1e}")
    } else {
        let text = format!("{y:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn wrong(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 0.25, 1.0, -3.5, 0.00012, 120.0].into_iter().map(number).collect();
        assert_eq!(shown, ["0", "0.25", "1", "-3.5", "1.2e-4", "120"]);
    }

    #[test]
    fn degenerate_data_is_drawn() {
        for log in [false, true] {
            let plot = Plot { title: "t", y_label: "y", y: None, log };
            for points in [vec![], vec![(1.0, 0.0)], vec![(1.0, f64::NAN), (2.0, f64::INFINITY)]] {
                let line = Series::Line { name: "n", color: BLUE, points, dots: true };
                assert!(plot.figure("x", &[line]).unwrap().contains("</svg>"));
            }
        }
    }
    /// The texts of an SVG: title of the axes and labels of the ticks.
    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text").skip(1).map(|text| text.split(['>', '<']).nth(1).unwrap().trim()).collect()
    }

    fn labels(y: Option<(f64, f64)>, log: bool, series: &[Series<'_>]) -> Vec<f64> {
        let svg = Plot { title: "t", y_label: "y", y, log }.figure("x", series).unwrap();
        texts(&svg).into_iter().filter_map(|text| text.parse().ok()).collect()
    }

    #[test]
    fn an_interval_does_not_stretch_the_axis() {
        let line = |name, points| Series::Line { name, color: BLUE, points, dots: false };
        let band = |name| Series::Band {
            name,
            color: BLUE,
            low: vec![(0.0, -7.0), (400.0, -7.0)],
            high: vec![(0.0, 8.0), (400.0, 8.0)],
        };
        let shown =
            |name| labels(Some((0.0, 1.0)), false, &[band(name), line("n", vec![(0.0, 0.2), (400.0, 0.9)])]);
        assert!(shown("").contains(&0.2) && shown("").iter().all(|y| *y >= 0.0), "{:?}", shown(""));
        assert!(shown("its own").iter().any(|y| *y < 0.0), "a band with a name is data");
    }
    #[test]
    fn ticks_are_whole_steps() {
        let line = Series::Line { name: "n", color: BLUE, points: vec![(0.0, 7.5), (3.0, 7.6)], dots: false };
        let shown: Vec<f64> = labels(None, false, &[line]).into_iter().filter(|x| *x < 7.0).collect();
        assert_eq!(shown, [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_decade_has_more_than_one_tick() {
        assert_eq!(log_ticks(0.8, 1.6), [0.8, 1.0, 1.2, 1.5]);
        assert_eq!(log_ticks(0.3, 6.0), [0.5, 1.0, 2.0, 5.0]);
        assert_eq!(log_ticks(0.01, 20.0), [0.01, 0.1, 1.0, 10.0]);
        assert!(log_ticks(1e-6, 1e30).len() < 9);
        let line = Series::Line { name: "n", color: BLUE, points: vec![(0.0, 0.5), (9.0, 2.5)], dots: false };
        assert!(labels(None, true, &[line]).contains(&0.5));
    }
    #[test]
    fn a_single_step_is_seen() {
        let drawn = |points: &[(f64, f64)]| {
            let line = Series::Line { name: "n", color: BLUE, points: points.to_vec(), dots: false };
            Plot { title: "t", y_label: "y", y: None, log: false }.figure("x", &[line]).unwrap()
        };
        let all = [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)];
        assert!(drawn(&all[..1]).contains("<circle") && !drawn(&all).contains("<circle"));
    }
}
