// Line charts as SVG files.
#pragma once

#include <string>
#include <vector>

namespace examples {

/// A line through (x[i], y[i]), x ascending; points where y is not finite are left out, and the line is broken there.
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

/// The chart as one SVG document: title, labelled axes with round ticks, grid, lines, legend.  Without a point it says so.
/// Equal plots give equal bytes.
std::string to_svg(const Plot& plot);

/// Round numbers (1, 2 or 5 times a power of ten apart) from below `low` to above `high`, about `count` of them.
std::vector<double> ticks(double low, double high, int count);

/// At most `count` points: the means of x and y over equal runs of neighbours.
Series thinned(const Series& series, size_t count);

}  // namespace examples
