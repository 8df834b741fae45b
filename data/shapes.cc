// A figure is a signed distance function in the figure's own coordinates, in which its size is about 1: positive
// inside, negative outside. The coverage of a pixel is computed from the distance in pixels, so edges are anti-aliased
// over one pixel.

#include <tandem/data/shapes.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <tandem/data/item_random.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int kFieldSide = 32;  // figures are described on a field of this size
constexpr int64_t kMaxSide = 4096;
constexpr int kRgb = 3;
constexpr int kFigures = 10;
constexpr uint32_t kShapesStream = 0x73687000;  // separates these numbers from other random streams of the seed

using Color = std::array<double, kRgb>;

struct FieldPoint {
  double x;
  double y;
};

/// Signed distance to the nearest of equally spaced lines, of period 2: from -0.5 to 0.5, positive over half of it.
double wave(double x) { return 0.5 - std::abs(x - 2 * std::floor(x / 2) - 1); }

double square(FieldPoint p, double half) { return half - std::max(std::abs(p.x), std::abs(p.y)); }

/// A star of `points` points with its outer corners at radius `corner` and the inner ones at `notch`.
double star(FieldPoint p, int points, double corner, double notch) {
  // By symmetry the point is mirrored into the angles 0 to pi / points, where the star has a single edge.
  const double sector = std::numbers::pi / points;
  double angle = std::fmod(std::abs(std::atan2(p.y, p.x)), 2 * sector);
  angle = std::min(angle, 2 * sector - angle);
  const double radius = std::hypot(p.x, p.y);
  const FieldPoint from_corner = {radius * std::cos(angle) - corner, radius * std::sin(angle)};
  const FieldPoint edge = {notch * std::cos(sector) - corner, notch * std::sin(sector)};
  return (edge.x * from_corner.y - edge.y * from_corner.x) / std::hypot(edge.x, edge.y);
}

double figure(int label, FieldPoint p) {
  const double radius = std::hypot(p.x, p.y);
  switch (label) {
    case 0: return 0.9 - radius;
    case 1: return square(p, 0.8);
    case 2: return star(p, 3, 1.1, 0.55);
    case 3: return 0.28 - std::abs(radius - 0.72);
    case 4:
      return std::max(std::min(0.95 - std::abs(p.x), 0.28 - std::abs(p.y)),
                      std::min(0.95 - std::abs(p.y), 0.28 - std::abs(p.x)));
    case 5: return std::min(1.0 - std::hypot(p.x, p.y + 0.4), p.y + 0.4);
    case 6: return wave(2.2 * p.x) / 2.2;
    case 7: return wave(2.2 * p.x) * wave(2.2 * p.y) * 2;
    case 8: {
      const double x = 2.4 * p.x;
      const double y = 2.4 * p.y;
      return (0.55 - std::hypot(x - 2 * std::floor(x / 2) - 1, y - 2 * std::floor(y / 2) - 1)) / 2.4;
    }
    default: return star(p, 5, 1.1, 0.45);
  }
}

bool is_pattern(int label) { return label >= 6 && label <= 8; }

double squared_distance(const Color& a, const Color& b) {
  double sum = 0;
  for (size_t c = 0; c < kRgb; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

Color random_color(ItemRandom& random) {
  Color color;
  for (double& value : color) value = random.uniform(0, 1);
  return color;
}

/// The color or, if it is too similar to `other`, a color that differs from it by half the range in each channel.
Color unlike(const Color& color, const Color& other) {
  if (squared_distance(color, other) > 0.15) return color;
  Color result;
  for (size_t c = 0; c < kRgb; ++c) result[c] = other[c] > 0.5 ? other[c] - 0.5 : other[c] + 0.5;
  return result;
}

/// Placement of a figure: its center, size and rotation.
struct Pose {
  FieldPoint middle;
  double radius;
  double cosine;
  double sine;

  /// How much of the pixel at (x, y) a figure covers, from 0 to 1; `scale`: pixels per unit of length.
  double cover(int label, double x, double y, double scale) const {
    const double dx = (x - middle.x) / radius;
    const double dy = (y - middle.y) / radius;
    const double distance = figure(label, {cosine * dx + sine * dy, cosine * dy - sine * dx}) * radius * scale;
    return std::clamp(distance + 0.5, 0.0, 1.0);
  }
};

Pose random_pose(ItemRandom& random, double low, double high, double reach) {
  const double x = kFieldSide / 2.0 + random.uniform(-reach, reach);
  const double y = kFieldSide / 2.0 + random.uniform(-reach, reach);
  const double radius = random.uniform(low, high);
  const double angle = random.uniform(0, 2 * std::numbers::pi);
  return {{x, y}, radius, std::cos(angle), std::sin(angle)};
}

/// Draws item `index` into image [kRgb, side, side] and returns its label.
int draw(uint64_t seed, int64_t index, const ShapesOptions& options, float* image) {
  const int64_t side = options.side;
  ItemRandom random(seed, index, kShapesStream);
  const auto label = static_cast<int>(random.below(kFigures));
  const Color random_ground = random_color(random);
  const Color ground = options.plain ? Color{} : random_ground;
  const Color ink = unlike(random_color(random), ground);
  const Color speck_ink = random_color(random);
  const Color slope_x = random_color(random);
  const Color slope_y = random_color(random);
  const Pose pose = is_pattern(label) ? random_pose(random, 4, 8, 6) : random_pose(random, 8, 13, 4);
  const Pose speck = random_pose(random, 2, 5, 13);
  const int speck_label = static_cast<int>(random.below(2));  // a disc or a square
  const double noise = random.uniform(0.02, 0.25);

  const double scale = static_cast<double>(side) / kFieldSide;
  for (int64_t row = 0; row < side; ++row) {
    for (int64_t column = 0; column < side; ++column) {
      const double x = (static_cast<double>(column) + 0.5) / scale;
      const double y = (static_cast<double>(row) + 0.5) / scale;
      const double covered = pose.cover(label, x, y, scale);
      const double speck_covered = speck.cover(speck_label, x, y, scale);
      for (size_t c = 0; c < kRgb; ++c) {
        double value = ground[c];
        if (!options.plain)
          value += 0.4 * ((slope_x[c] - 0.5) * (x / kFieldSide - 0.5) + (slope_y[c] - 0.5) * (y / kFieldSide - 0.5));
        value += covered * (ink[c] - value);
        if (!options.plain) {
          value += speck_covered * (speck_ink[c] - value);
          value += noise * random.uniform(-1, 1);
        }
        image[(static_cast<int64_t>(c) * side + row) * side + column] = static_cast<float>(std::clamp(value, 0.0, 1.0));
      }
    }
  }
  return label;
}

}  // namespace

ShapesDataset::ShapesDataset(int64_t size, uint64_t seed, ShapesOptions options)
    : size_(size), seed_(seed), options_(options) {
  TANDEM_CHECK(ValueError, size >= 0, "ShapesDataset: size is ", size, ", expected at least 0");
  TANDEM_CHECK(ValueError, options.side >= 1 && options.side <= kMaxSide, "ShapesDataset: side is ", options.side,
               ", expected 1 to ", kMaxSide);
}

const std::vector<std::string>& ShapesDataset::class_names() {
  static const std::vector<std::string> names = {"disc",      "square",  "triangle",   "ring", "cross",
                                                 "half_disc", "stripes", "chessboard", "dots", "star"};
  return names;
}

Example ShapesDataset::get(int64_t index) const {
  check_item("ShapesDataset", index, size_);
  Example example = {empty({kRgb, options_.side, options_.side}), empty({}, {kInt64})};
  *example.target.data<int64_t>() = draw(seed_, index, options_, example.input.data<float>());
  return example;
}

Batch ShapesDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "ShapesDataset: empty batch, expected at least one index");
  const int64_t side = options_.side;
  Batch batch = {empty({count, kRgb, side, side}), empty({count}, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    const int64_t index = indices[static_cast<size_t>(row)];
    check_item("ShapesDataset", index, size_);
    batch.target.data<int64_t>()[row] =
        draw(seed_, index, options_, batch.input.data<float>() + row * kRgb * side * side);
  }
  return batch;
}

}}}  // namespace tandem::v0::data
