//! Plots as SVG: lines with points over logarithmic or linear axes.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// What it shows.
    pub(crate) name: String,
    /// Its points, with what stands beside each.
    pub(crate) points: Vec<(f64, f64, String)>,
    /// Whether it is the paper's: drawn as crosses, not measured here.
    pub(crate) cited: bool,
}

/// A picture with one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Its title: says what is scaled down or sampled.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) x: String,
    /// The vertical axis.
    pub(crate) y: String,
    /// Whether the horizontal axis is logarithmic.
    pub(crate) log_x: bool,
    /// Whether the vertical axis is logarithmic.
    pub(crate) log_y: bool,
    /// How much wider than its data the picture is, to the right: room for the legend.
    pub(crate) room: f64,
    /// What is drawn.
    pub(crate) lines: Vec<Line>,
}

const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0x2c, 0x8c, 0x4b),
    RGBColor(0x8e, 0x44, 0xad),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0xc0, 0x39, 0x2b),
    RGBColor(0x16, 0xa0, 0x85),
    RGBColor(0x7f, 0x8c, 0x8d),
];

const SIZE: (u32, u32) = (960, 600);

impl Plot {
    /// Writes it.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        let drawn = self.draw(&root);
        drawn.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
    }

    fn range(&self, log: bool, of: fn(&(f64, f64, String)) -> f64) -> (f64, f64) {
        let values = self.lines.iter().flat_map(|line| &line.points).map(of);
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!log || *value > 0.0)).collect();
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let low = values.iter().copied().fold(high, f64::min);
        if log { (low / 1.4, high * 1.6) } else { (low.min(0.0), high * 1.1) }
    }

    fn draw(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let (mut x, y) = (self.range(self.log_x, |p| p.0), self.range(self.log_y, |p| p.1));
        x.1 *= self.room;
        let mut builder = ChartBuilder::on(root);
        builder.caption(&self.title, ("sans-serif", 17)).margin(12);
        builder.x_label_area_size(42).y_label_area_size(64);
        match (self.log_x, self.log_y) {
            (true, true) => self
                .lines(builder.build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?),
            (true, false) => {
                self.lines(builder.build_cartesian_2d((x.0..x.1).log_scale(), y.0..y.1)?)
            }
            (false, true) => {
                self.lines(builder.build_cartesian_2d(x.0..x.1, (y.0..y.1).log_scale())?)
            }
            (false, false) => self.lines(builder.build_cartesian_2d(x.0..x.1, y.0..y.1)?),
        }?;
        root.present()?;
        Ok(())
    }

    fn lines<'a, 'b: 'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).light_line_style(RGBColor(0xf0, 0xf0, 0xf0));
        mesh.x_label_formatter(&short)
            .y_label_formatter(&short)
            .label_style(("sans-serif", 13))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = line.points.iter().map(|point| (point.0, point.1));
            let at = |name: &str| {
                Text::new(name.to_owned(), (7, -14), ("sans-serif", 12).into_font().color(colour))
            };
            if line.cited {
                let crosses = points.map(|at| Cross::new(at, 6, colour.stroke_width(2)));
                let drawn = chart.draw_series(crosses)?.label(&line.name);
                drawn.legend(|(x, y)| Cross::new((x + 10, y), 5, colour.stroke_width(2)));
            } else {
                let drawn =
                    chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                drawn.label(&line.name).legend(|(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
                });
                // Many points are a curve.
                let few = line.points.len() <= 30;
                let points = points.filter(|_| few);
                chart.draw_series(points.map(|at| Circle::new(at, 3, colour.filled())))?;
            }
            let labels = line.points.iter().filter(|point| !point.2.is_empty());
            chart.draw_series(
                labels.map(|point| EmptyElement::at((point.0, point.1)) + at(&point.2)),
            )?;
        }
        let mut legend = chart.configure_series_labels();
        legend.background_style(WHITE.mix(0.85)).border_style(RGBColor(0xcc, 0xcc, 0xcc));
        legend.label_font(("sans-serif", 13)).position(SeriesLabelPosition::UpperRight).draw()?;
        Ok(())
    }
}

fn short(value: &f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        10.0.. => format!("{value:.0}"),
        1.0..10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
