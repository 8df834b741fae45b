// Line charts as SVG files.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace train {

/// A line through the points (x[i], y[i]) with ascending x. The line is interrupted at points whose x or y is not
/// finite, or beyond 1e300.
struct Series {
  std::string label;      ///< in the legend
  std::vector<double> x;  ///< ascending
  std::vector<double> y;  ///< as many as x
  bool markers = false;   ///< a dot at each point
};

/// A line chart.
struct Plot {
  std::string title;           ///< above the chart
  std::string x_label;         ///< below the horizontal axis
  std::string y_label;         ///< left of the vertical axis
  std::vector<Series> series;  ///< the lines
  bool y_from_zero = false;    ///< whether the vertical axis begins at 0
};

/// The chart as an SVG document: title, labelled axes with round ticks, grid, lines, legend; "no points yet" without
/// points. Equal plots give equal bytes. Throws ValueError for a series with other numbers of x than of y.
TANDEM_API std::string to_svg(const Plot& plot);

}}}  // namespace tandem::v0::train
