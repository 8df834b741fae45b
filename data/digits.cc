// A stroke is a polyline. A glyph is a list of strokes, in a unit square (x to the right, y downwards); a digit has
// several glyphs. The pen is a disc: the value of a pixel depends on the distance of its center to the nearest stroke,
// so edges are anti-aliased over one pixel.

#include <tandem/data/digits.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include <tandem/data/item_random.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int kDigitSide = 28;
constexpr int kDigitPixels = kDigitSide * kDigitSide;
constexpr uint32_t kDigitStream =
    0x64696700;  // last word of the counters; separates them from other random streams of the seed

struct Point {
  double x;
  double y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

/// Points of an ellipse's arc around (x, y); angles in degrees, 0 to the right and 90 downwards.
Stroke arc(double x, double y, double radius_x, double radius_y, double from, double to) {
  const int pieces = std::max(2, static_cast<int>(std::abs(to - from) / 24));
  Stroke points;
  for (int i = 0; i <= pieces; ++i) {
    const double angle = (from + (to - from) * i / pieces) * std::numbers::pi / 180;
    points.push_back({x + radius_x * std::cos(angle), y + radius_y * std::sin(angle)});
  }
  return points;
}

Stroke joined(Stroke first, const Stroke& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// The glyphs of `digit`.
std::vector<Glyph> glyphs_of(int digit) {
  switch (digit) {
    case 0: return {{arc(0.5, 0.5, 0.32, 0.48, -90, 270)}, {arc(0.5, 0.5, 0.24, 0.48, -60, 290)}};
    case 1:
      return {{{{0.5, 0.0}, {0.5, 1.0}}},
              {{{0.3, 0.22}, {0.52, 0.0}, {0.52, 1.0}}},
              {{{0.3, 0.22}, {0.52, 0.0}, {0.52, 1.0}}, {{0.28, 1.0}, {0.76, 1.0}}}};
    case 2:
      return {{joined(arc(0.5, 0.29, 0.31, 0.29, -165, 30), {{0.18, 1.0}, {0.84, 1.0}})},
              {joined(arc(0.48, 0.27, 0.3, 0.27, -150, 60), joined({{0.3, 0.85}}, arc(0.29, 0.9, 0.1, 0.1, 60, 300))),
               {{0.32, 0.84}, {0.6, 0.98}, {0.86, 0.92}}}};
    case 3:
      return {{joined(arc(0.46, 0.26, 0.3, 0.26, -150, 90), arc(0.46, 0.75, 0.34, 0.25, -90, 150))},
              {joined({{0.18, 0.0}, {0.78, 0.0}, {0.42, 0.42}}, arc(0.44, 0.71, 0.36, 0.29, -80, 145))}};
    case 4:
      return {{{{0.62, 0.0}, {0.14, 0.66}, {0.88, 0.66}}, {{0.64, 0.36}, {0.64, 1.0}}},
              {{{0.22, 0.0}, {0.2, 0.52}, {0.8, 0.52}}, {{0.76, 0.0}, {0.74, 1.0}}},
              {{{0.64, 1.0}, {0.64, 0.0}, {0.14, 0.66}, {0.88, 0.66}}}};
    case 5:
      return {{joined({{0.78, 0.0}, {0.28, 0.0}, {0.24, 0.44}}, arc(0.46, 0.69, 0.34, 0.31, -125, 140))},
              {joined({{0.26, 0.04}, {0.24, 0.42}, {0.5, 0.4}}, arc(0.47, 0.7, 0.33, 0.3, -80, 150)),
               {{0.26, 0.03}, {0.8, 0.0}}}};
    case 6:
      return {{joined(arc(0.72, 0.6, 0.52, 0.6, -100, -180), arc(0.5, 0.7, 0.3, 0.3, 180, -180))},
              {joined({{0.66, 0.0}, {0.34, 0.36}}, arc(0.5, 0.7, 0.28, 0.3, 205, -150))}};
    case 7:
      return {{{{0.16, 0.0}, {0.84, 0.0}, {0.4, 1.0}}},
              {{{0.16, 0.02}, {0.84, 0.0}, {0.54, 0.45}, {0.42, 1.0}}, {{0.34, 0.5}, {0.74, 0.46}}},
              {{{0.18, 0.16}, {0.18, 0.02}, {0.82, 0.02}, {0.44, 1.0}}}};
    case 8:
      return {
          {arc(0.5, 0.25, 0.25, 0.25, 0, 360), arc(0.5, 0.75, 0.31, 0.25, 0, 360)},
          {joined(arc(0.5, 0.24, 0.26, 0.24, -30, -270), joined(arc(0.5, 0.74, 0.3, 0.26, -90, 220), {{0.72, 0.12}}))}};
    default:
      return {{arc(0.48, 0.3, 0.3, 0.3, 0, 360), {{0.78, 0.3}, {0.74, 0.66}, {0.62, 1.0}}},
              {arc(0.46, 0.28, 0.28, 0.28, -20, 340), joined({{0.74, 0.16}}, arc(0.4, 0.62, 0.35, 0.38, -10, 110))}};
  }
}

/// All glyphs. Cached, because creating them takes as long as drawing an image.
const Glyph& glyph(int digit, int way) {
  static const std::array<std::vector<Glyph>, 10> kGlyphs = [] {
    std::array<std::vector<Glyph>, 10> all;
    for (int d = 0; d < 10; ++d) all[static_cast<size_t>(d)] = glyphs_of(d);
    return all;
  }();
  const auto& ways = kGlyphs[static_cast<size_t>(digit)];
  return ways[static_cast<size_t>(way) % ways.size()];
}

double squared_distance(Point p, Point a, Point b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length2 = dx * dx + dy * dy;
  const double along = length2 == 0 ? 0 : std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0, 1.0);
  const double ex = p.x - (a.x + along * dx);
  const double ey = p.y - (a.y + along * dy);
  return ex * ex + ey * ey;
}

/// Lowers distance2[pixel] to the squared distance from the segment where that is within `reach`.
void draw_segment(Point a, Point b, double reach, std::span<double, kDigitPixels> distance2) {
  const auto first = [&](double u, double v) {
    return std::clamp(static_cast<int>(std::floor(std::min(u, v) - reach)), 0, kDigitSide);
  };
  const auto last = [&](double u, double v) {
    return std::clamp(static_cast<int>(std::ceil(std::max(u, v) + reach)), 0, kDigitSide);
  };
  for (int row = first(a.y, b.y); row < last(a.y, b.y); ++row) {
    for (int column = first(a.x, b.x); column < last(a.x, b.x); ++column) {
      double& d2 = distance2[static_cast<size_t>(row * kDigitSide + column)];
      d2 = std::min(d2, squared_distance({column + 0.5, row + 0.5}, a, b));
    }
  }
}

/// Draws item `index` into image[kDigitPixels] and returns its digit.
int draw(uint64_t seed, int64_t index, float* image) {
  ItemRandom random(seed, index, kDigitStream);
  const auto digit = static_cast<int>(random.below(10));
  Glyph strokes =
      glyph(digit, static_cast<int>(random.below(6)));  // 6 is a multiple of every number of glyphs (1, 2, 3)

  const double angle = random.uniform(-0.34, 0.34);
  const double shear = random.uniform(-0.34, 0.34);
  const double width = random.uniform(11.0, 18.0);
  const double height = random.uniform(16.0, 21.0);
  const double center_x = kDigitSide / 2.0 + random.uniform(-2.5, 2.5);
  const double center_y = kDigitSide / 2.0 + random.uniform(-2.5, 2.5);
  const double pen = random.uniform(0.7, 1.6);       // radius in pixels
  const double pressure = random.uniform(0.7, 1.0);  // ink at the middle of a stroke
  const double noise = random.uniform(0.0, 0.3);
  const double bend = random.uniform(0.0, 1.6);  // of points, in pixels

  const double c = std::cos(angle);
  const double s = std::sin(angle);
  for (Stroke& stroke : strokes) {
    for (Point& point : stroke) {
      const double y = (point.y - 0.5) * height;
      const double x = (point.x - 0.5) * width - shear * y;
      point.x = center_x + c * x - s * y + bend * random.uniform(-0.5, 0.5);
      point.y = center_y + s * x + c * y + bend * random.uniform(-0.5, 0.5);
    }
  }

  std::array<double, kDigitPixels> distance2;
  distance2.fill(std::numeric_limits<double>::infinity());
  for (const Stroke& stroke : strokes) {
    for (size_t i = 0; i + 1 < stroke.size(); ++i) draw_segment(stroke[i], stroke[i + 1], pen + 1, distance2);
  }
  for (size_t i = 0; i < kDigitPixels; ++i) {
    const double ink = pressure * std::clamp(pen + 0.5 - std::sqrt(distance2[i]), 0.0, 1.0);
    image[i] = static_cast<float>(std::clamp(ink + noise * random.uniform(-1.0, 1.0), 0.0, 1.0));
  }
  return digit;
}

}  // namespace

DigitsDataset::DigitsDataset(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  TANDEM_CHECK(ValueError, size >= 0, "DigitsDataset: size is ", size, ", expected at least 0");
}

Example DigitsDataset::get(int64_t index) const {
  check_item("DigitsDataset", index, size_);
  Example example = {empty({1, kDigitSide, kDigitSide}), empty({}, {kInt64})};
  *example.target.data<int64_t>() = draw(seed_, index, example.input.data<float>());
  return example;
}

Batch DigitsDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "DigitsDataset: empty batch, expected at least one index");
  Batch batch = {empty({count, 1, kDigitSide, kDigitSide}), empty({count}, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    const int64_t index = indices[static_cast<size_t>(row)];
    check_item("DigitsDataset", index, size_);
    batch.target.data<int64_t>()[row] = draw(seed_, index, batch.input.data<float>() + row * kDigitPixels);
  }
  return batch;
}

}}}  // namespace tandem::v0::data
