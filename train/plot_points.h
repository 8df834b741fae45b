// Points and ticks of line charts.
#pragma once

#include <cstddef>
#include <vector>

#include <tandem/train/plot.h>

namespace tandem { inline namespace v0 { namespace train {

/// About `count` round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(double low, double high, int count);

/// Reduces a series to at most `count` points, the means over `count` intervals of neighboring points.
Series downsampled(const Series& series, size_t count);

}}}  // namespace tandem::v0::train
