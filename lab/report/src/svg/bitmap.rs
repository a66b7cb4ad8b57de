//! Pixel canvas, written as PNG.

use super::paint::Canvas;
use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use ab_glyph_rasterizer::{Point, Rasterizer};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::f64::consts::TAU;
use std::io::Write;

/// Number of pixels of the bitmap per unit of the chart.
const SCALE: f64 = 2.0;
/// Maximum side length in pixels: 16,384 by 16,384 takes 800 MB.
const SIDE_MAX: usize = 16_384;
const TEXT_PX: f64 = 12.0;
/// DejaVu Sans, with the characters of Latin, Greek and a few signs. Its licence is in the same
/// folder.
const FONT: &[u8] = include_bytes!("font/dejavu-sans-latin.ttf");
/// Number of corners of the polygon that is drawn for a circle.
const CIRCLE_CORNERS: u32 = 32;
/// Length of a dash.
const DASH_PX: f64 = 6.0;
/// Length of the gap between two dashes.
const GAP_PX: f64 = 4.0;

/// Colour as red, green and blue.
type Color = [u8; 3];

/// Colour of the background.
const PAPER: Color = [0xfd, 0xfc, 0xfa];
const TEXT: Color = [0x1d, 0x1c, 0x1a];
const TEXT_FAINT: Color = [0x6a, 0x67, 0x60];
/// Colour of grid lines.
const RULE: Color = [0xe3, 0xe0, 0xd8];

/// Returns the colour of a CSS class in the light theme of the style sheet. Returns `None` if it
/// has none.
fn color_of(class: &str) -> Option<Color> {
    Some(match class {
        "ours" | "nth0" => [0x0b, 0x6a, 0x94],
        "peer" | "nth1" => [0xb5, 0x54, 0x1f],
        "floor" | "nth7" => [0x77, 0x73, 0x6a],
        "faint" => [0xa5, 0xa1, 0x96],
        "nth2" => [0x4c, 0x7a, 0x34],
        "nth3" => [0x7b, 0x4f, 0xa0],
        "nth4" => [0xa8, 0x83, 0x2a],
        "nth5" => [0xb0, 0x3a, 0x5b],
        "nth6" => [0x3b, 0x86, 0x86],
        _ => return None,
    })
}

/// Pixel image that is being drawn.
pub(super) struct Bitmap {
    width: usize,
    height: usize,
    /// Red, green and blue of each pixel, row by row.
    pixels: Vec<u8>,
    /// Colour of each open group; `None` for a group without a colour.
    groups: Vec<Option<Color>>,
    /// `true` within a group of the main series.
    is_in_ours: bool,
    font: Option<FontRef<'static>>,
}

impl Bitmap {
    pub fn new(width_px: f64, height_px: f64) -> Bitmap {
        let side = |px: f64| ((px * SCALE).ceil() as usize).clamp(1, SIDE_MAX);
        let (width, height) = (side(width_px), side(height_px));
        Bitmap {
            width,
            height,
            pixels: PAPER.repeat(width * height),
            groups: Vec::new(),
            is_in_ours: false,
            font: FontRef::try_from_slice(FONT).ok(),
        }
    }

    /// Encodes the picture as a PNG file.
    pub fn finish(self) -> Vec<u8> {
        let mut rows = Vec::with_capacity(self.pixels.len() + self.height);
        for row in self.pixels.chunks_exact(3 * self.width) {
            rows.push(0); // filter type: none
            rows.extend_from_slice(row);
        }
        // Writing to memory cannot fail.
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        let packed = packed.write_all(&rows).and_then(|()| packed.finish()).unwrap_or_default();

        let mut head = Vec::new();
        for side in [self.width, self.height] {
            head.extend(u32::try_from(side).unwrap_or(u32::MAX).to_be_bytes());
        }
        head.extend([8, 2, 0, 0, 0]); // 8-bit RGB; default compression, filter, interlace
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        for (kind, data) in [(b"IHDR", &head[..]), (b"IDAT", &packed), (b"IEND", &[])] {
            file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
            file.extend(kind);
            file.extend(data);
            let mut sum = Crc::new();
            sum.update(kind);
            sum.update(data);
            file.extend(sum.sum().to_be_bytes());
        }
        file
    }

    /// Returns the colour of the innermost open group with a colour, or else the colour of text.
    fn color(&self) -> Color {
        self.groups.iter().rev().find_map(|color| *color).unwrap_or(TEXT)
    }

    /// Mixes `color` into a pixel, with the weight `share`.
    fn blend(&mut self, x: i64, y: i64, color: Color, share: f32) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x >= self.width || y >= self.height {
            return;
        }
        let share = share.clamp(0.0, 1.0);
        let at = 3 * (y * self.width + x);
        for (old, new) in self.pixels[at..at + 3].iter_mut().zip(color) {
            let mixed = f32::from(*old) + (f32::from(new) - f32::from(*old)) * share;
            *old = mixed.round() as u8;
        }
    }

    /// Fills a polygon, clipped to the picture.
    fn fill(&mut self, points: &[(f64, f64)], color: Color) {
        let points: Vec<_> = points.iter().map(|(x, y)| (x * SCALE, y * SCALE)).collect();
        let points = clipped(points, self.width as f64, self.height as f64);
        let ends = |pick: fn(&(f64, f64)) -> f64| {
            let all = points.iter().map(pick);
            all.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)))
        };
        if points.len() < 3 {
            return;
        }
        let ((left, right), (top, bottom)) = (ends(|it| it.0), ends(|it| it.1));
        let (x0, y0) = (left.floor(), top.floor());
        let cells = |from: f64, to: f64| (to - from).ceil() as usize + 2;
        let mut rasterizer = Rasterizer::new(cells(x0, right), cells(y0, bottom));
        let place = |(x, y): (f64, f64)| Point { x: (x - x0) as f32, y: (y - y0) as f32 };
        for (index, from) in points.iter().enumerate() {
            let to = points[(index + 1) % points.len()];
            rasterizer.draw_line(place(*from), place(to));
        }
        let (x0, y0) = (x0 as i64, y0 as i64);
        rasterizer.for_each_pixel_2d(|x, y, share| {
            if share > 0.0 {
                self.blend(x0 + i64::from(x), y0 + i64::from(y), color, share);
            }
        });
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), width: f64, color: Color) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        if length == 0.0 {
            return;
        }
        let (ox, oy) = (-dy / length * width / 2.0, dx / length * width / 2.0);
        let corners = [
            (from.0 + ox, from.1 + oy),
            (to.0 + ox, to.1 + oy),
            (to.0 - ox, to.1 - oy),
            (from.0 - ox, from.1 - oy),
        ];
        self.fill(&corners, color);
    }

    fn disc(&mut self, (x, y): (f64, f64), radius: f64, color: Color) {
        let corner = |place: u32| {
            let angle = f64::from(place) / f64::from(CIRCLE_CORNERS) * TAU;
            (x + radius * angle.cos(), y + radius * angle.sin())
        };
        let corners: Vec<_> = (0..CIRCLE_CORNERS).map(corner).collect();
        self.fill(&corners, color);
    }

    /// Draws one dashed line of a path. `walked` is the length of the path before it, so that the
    /// dashes continue evenly.
    fn dashes(&mut self, from: (f64, f64), to: (f64, f64), walked: f64, width: f64, color: Color) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let period = DASH_PX + GAP_PX;
        let at = |way: f64| (from.0 + dx * way / length, from.1 + dy * way / length);
        let mut begin = -(walked % period);
        while begin < length && length > 0.0 {
            let (start, end) = (begin.max(0.0), (begin + DASH_PX).min(length));
            if start < end {
                self.stroke(at(start), at(end), width, color);
            }
            begin += period;
        }
    }
}

/// Clips a polygon to a picture of this size (Sutherland and Hodgman, 1974). The picture's corner
/// is the origin.
fn clipped(mut points: Vec<(f64, f64)>, width: f64, height: f64) -> Vec<(f64, f64)> {
    // Distance of a point inside each edge.
    let edges: [&dyn Fn((f64, f64)) -> f64; 4] =
        [&|it| it.0, &|it| width - it.0, &|it| it.1, &|it| height - it.1];
    for depth in edges {
        let mut kept = Vec::with_capacity(points.len() + 4);
        for (index, to) in points.iter().enumerate() {
            let from = points[(index + points.len() - 1) % points.len()];
            let (before, after) = (depth(from), depth(*to));
            if (before < 0.0) != (after < 0.0) {
                let share = before / (before - after);
                kept.push((from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share));
            }
            if after >= 0.0 {
                kept.push(*to);
            }
        }
        points = kept;
    }
    points
}

impl Canvas for Bitmap {
    fn open_group(&mut self, class: &str, _title: &str) {
        self.groups.push(color_of(class));
        self.is_in_ours |= class == "ours";
    }

    fn close_group(&mut self) {
        self.groups.pop();
        self.is_in_ours &= self.groups.iter().any(Option::is_some);
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let (color, width) = match class {
            "rule" | "row" => (RULE, 1.0),
            "tick" => (self.color(), 2.0),
            _ => (self.color(), if self.is_in_ours { 3.0 } else { 1.5 }),
        };
        if class == "row" {
            self.dashes((x1, y1), (x2, y2), 0.0, width, color);
        } else {
            self.stroke((x1, y1), (x2, y2), width, color);
        }
    }

    fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        if class == "ring" {
            self.disc((x, y), radius + 0.75, self.color());
            self.disc((x, y), radius - 0.75, PAPER);
        } else {
            self.disc((x, y), radius, self.color());
        }
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64) {
        let corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)];
        self.fill(&corners, self.color());
    }

    fn polygon(&mut self, points: &[(f64, f64)], _class: &str) {
        self.fill(points, self.color());
    }

    fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let (color, width) = (self.color(), 1.75);
        let is_dashed = class.contains("dashed");
        let mut walked = 0.0;
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if is_dashed {
                self.dashes(from, to, walked, width, color);
                walked += (to.0 - from.0).hypot(to.1 - from.1);
            } else {
                self.stroke(from, to, width, color);
                self.disc(to, width / 2.0, color);
            }
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let Some(font) = self.font.clone() else { return };
        let color = if class == "label" { TEXT_FAINT } else { TEXT };
        // ab_glyph scales by ascent plus descent, the style sheet by em.
        let em = font.units_per_em().unwrap_or(1000.0);
        let scale = PxScale::from((TEXT_PX * SCALE) as f32 * font.height_unscaled() / em);
        let scaled = font.as_scaled(scale);
        let mut pen = 0.0;
        let mut glyphs: Vec<Glyph> = Vec::new();
        for char in text.chars() {
            let id = font.glyph_id(char);
            glyphs.push(id.with_scale_and_position(scale, point(pen, 0.0)));
            pen += scaled.h_advance(id);
        }
        let start = match anchor {
            "middle" => (x * SCALE) as f32 - pen / 2.0,
            "end" => (x * SCALE) as f32 - pen,
            _ => (x * SCALE) as f32,
        };
        for mut glyph in glyphs {
            glyph.position.x += start;
            glyph.position.y = (y * SCALE) as f32;
            let Some(outlined) = font.outline_glyph(glyph) else { continue };
            let bounds = outlined.px_bounds();
            let (left, top) = (bounds.min.x as i64, bounds.min.y as i64);
            outlined.draw(|x, y, share| {
                self.blend(left + i64::from(x), top + i64::from(y), color, share);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    /// Returns width, height and pixels of a PNG file.
    fn read(file: &[u8]) -> (usize, usize, Vec<u8>) {
        assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four"));
        let (width, height) = (number(16) as usize, number(20) as usize);
        let packed = &file[41..41 + number(33) as usize];
        let mut rows = Vec::new();
        ZlibDecoder::new(packed).read_to_end(&mut rows).expect("rows");
        assert_eq!(rows.len(), height * (1 + 3 * width));
        let pixels = rows.chunks_exact(1 + 3 * width).flat_map(|row| row[1..].to_vec()).collect();
        (width, height, pixels)
    }

    fn at((width, _, pixels): &(usize, usize, Vec<u8>), x: usize, y: usize) -> Color {
        let at = 3 * (y * width + x);
        [pixels[at], pixels[at + 1], pixels[at + 2]]
    }

    #[test]
    fn filled_pixels_have_the_colour_of_their_group() {
        let mut bitmap = Bitmap::new(40.0, 20.0);
        bitmap.open_group("peer", "");
        bitmap.rect(10.0, 5.0, 10.0, 10.0);
        bitmap.close_group();
        bitmap.open_group("ours", "");
        bitmap.circle(30.0, 10.0, 4.0, "dot");
        bitmap.line(0.0, 1.0, 40.0, 1.0, "span");
        bitmap.close_group();
        let picture = read(&bitmap.finish());
        assert_eq!((picture.0, picture.1), (80, 40));
        assert_eq!(Some(at(&picture, 30, 20)), color_of("peer"));
        assert_eq!(Some(at(&picture, 60, 20)), color_of("ours"));
        assert_eq!(Some(at(&picture, 40, 2)), color_of("ours"));
        assert_eq!(at(&picture, 18, 20), PAPER);
        assert_eq!(at(&picture, 41, 20), PAPER);
    }

    #[test]
    fn text_is_drawn_on_the_side_of_its_anchor() {
        for (anchor, is_left, is_right) in
            [("start", false, true), ("end", true, false), ("middle", true, true)]
        {
            let mut bitmap = Bitmap::new(100.0, 20.0);
            bitmap.text(50.0, 15.0, anchor, "name", "HHH µs σ κ");
            let picture = read(&bitmap.finish());
            let has_ink = |from: usize, to: usize| {
                (from..to).any(|x| (0..40).any(|y| at(&picture, x, y) != PAPER))
            };
            assert_eq!((has_ink(0, 99), has_ink(102, 200)), (is_left, is_right), "{anchor}");
        }
    }

    #[test]
    fn font_has_every_character_of_charts() {
        let font = FontRef::try_from_slice(FONT).expect("a font");
        for char in (' '..='~').chain("µσκλγ±×≤≥–…²·°".chars()) {
            assert_ne!(font.glyph_id(char).0, 0, "{char:?}");
        }
    }

    #[test]
    fn shapes_are_clipped_to_the_picture() {
        let mut bitmap = Bitmap::new(10.0, 10.0);
        bitmap.line(-1e9, -1e9, 1e9, 1e9, "rule");
        bitmap.rect(-5.0, -5.0, 100.0, 100.0);
        bitmap.text(-30.0, 500.0, "start", "name", "nowhere");
        let picture = read(&bitmap.finish());
        assert_eq!(at(&picture, 10, 10), TEXT);
    }

    #[test]
    fn colours_equal_those_of_the_style_sheet() {
        let light = super::super::CHART_STYLE_SHEET.split('}').next().expect("a block");
        let hex = |[r, g, b]: Color| format!("#{r:02x}{g:02x}{b:02x};");
        for (name, color) in [("text", TEXT), ("text-faint", TEXT_FAINT), ("rule", RULE)] {
            assert!(light.contains(&format!("--{name}: {}", hex(color))), "{name}");
        }
        for group in ["ours", "peer", "floor", "faint"] {
            let color = color_of(group).expect("find the colour");
            assert!(light.contains(&format!("--{group}: {}", hex(color))), "{group}");
        }
        for place in 0..8 {
            let color = color_of(&format!("nth{place}")).expect("find the colour");
            assert!(light.contains(&format!("--n{place}: {}", hex(color))), "nth{place}");
        }
        assert!(light.contains(&format!("--paper: {}", hex(PAPER))));
    }
}
