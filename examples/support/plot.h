// Line charts as SVG files.
#pragma once

#include <string>
#include <vector>

namespace examples {

/// A line through the points (x[i], y[i]) with ascending x. The line is interrupted at points whose y is not finite.
struct Series {
  std::string label;  ///< in the legend
  std::vector<double> x;
  std::vector<double> y;
  bool markers = false;  ///< a dot at each point
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool y_from_zero = false;
};

/// The chart as an SVG document: title, labelled axes with round ticks, grid, lines, legend; "no points yet" without
/// points. Equal plots give equal bytes.
std::string to_svg(const Plot& plot);

/// About `count` round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(double low, double high, int count);

/// Reduces a series to at most `count` points, the means over `count` intervals of neighboring points.
Series downsampled(const Series& series, size_t count);

}  // namespace examples
