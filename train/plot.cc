#include <tandem/train/plot.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/train/plot_points.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 74;
constexpr double kRight = 24;
constexpr double kTop = 48;
constexpr double kBottom = 58;
constexpr const char* kColors[] = {"#2e6da4", "#d9730d", "#3f8f4f", "#8e4fa8"};

std::string number(double value) { return format_fixed(value, 2); }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

/// Anchors: "start", "middle", "end".
std::string label(double x, double y, const char* anchor, std::string_view text, const char* more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
         escaped(text) + "</text>\n";
}

/// 1500000 -> "1.5M", 20000 -> "20k", 0.25 -> "0.25".
std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return format_general(value / 1e6, 4) + "M";
  if (size >= 1e4) return format_general(value / 1e3, 4) + "k";
  return format_general(value, 6);
}

/// Axes are computed in double: points that are not finite or almost not are not drawn, and a shorter axis is extended.
constexpr double kLargest = 1e300;
constexpr double kSmallest = 1e-300;

bool is_drawn(const Series& series, size_t i) {
  return std::abs(series.x[i]) <= kLargest && std::abs(series.y[i]) <= kLargest;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// An axis: its ticks, the first and last of which are its ends, and the mapping of values to page coordinates.
struct Axis {
  Axis(Range range, int count, double page_low, double page_high)
      : ticks(train::ticks(range.low, range.high, count)), page_begin(page_low), page_end(page_high) {}
  double operator()(double value) const {
    return page_begin + (page_end - page_begin) * (value - ticks.front()) / (ticks.back() - ticks.front());
  }
  std::vector<double> ticks;
  double page_begin;
  double page_end;
};

std::string curve(const Series& series, const Axis& x, const Axis& y, const char* color) {
  std::string path;
  std::string dots;
  bool pen_down = false;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!is_drawn(series, i)) {
      pen_down = false;
      continue;
    }
    const std::string at_x = number(x(series.x[i]));
    const std::string at_y = number(y(series.y[i]));
    path += path.empty() ? "" : " ";
    path += pen_down ? "L" : "M";
    path += at_x + " " + at_y;
    pen_down = true;
    if (series.markers) {
      dots += "<circle cx=\"" + at_x + "\" cy=\"" + at_y + "\" r=\"3\" fill=\"" + color + "\"/>\n";
    }
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + color +
         "\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n" + dots;
}

std::string frame(const Plot& plot, const Axis& x, const Axis& y) {
  std::string grid;
  std::string axes;
  std::string labels;
  for (const double tick : y.ticks) {
    grid += str("M", number(x.page_begin), " ", number(y(tick)), "H", number(x.page_end));
    labels += label(x.page_begin - 8, y(tick) + 4, "end", tick_text(tick));
  }
  for (const double tick : x.ticks) {
    axes += str("M", number(x(tick)), " ", number(y.page_begin), "v5");
    labels += label(x(tick), y.page_begin + 20, "middle", tick_text(tick));
  }
  axes += str("M", number(x.page_end), " ", number(y.page_begin), "H", number(x.page_begin), "V", number(y.page_end));
  labels += label((x.page_begin + x.page_end) / 2, kHeight - 16, "middle", plot.x_label);
  const double middle = (y.page_begin + y.page_end) / 2;
  const std::string turned = " transform=\"rotate(-90 18 " + number(middle) + ")\"";
  return "<path d=\"" + grid + "\" stroke=\"#e4e4e4\"/>\n<path d=\"" + axes +
         "\" fill=\"none\" stroke=\"#555555\"/>\n" + labels + label(18, middle, "middle", plot.y_label, turned.c_str());
}

/// The legend in the upper right corner, with a background that hides the lines below.
std::string legend(const Plot& plot) {
  size_t longest = 0;
  for (const Series& series : plot.series) longest = std::max(longest, series.label.size());
  const double width = 44 + 7.0 * static_cast<double>(longest);
  const double height = 10 + 18.0 * static_cast<double>(plot.series.size());
  const double left = kWidth - kRight - width;
  std::string svg = "<rect x=\"" + number(left) + "\" y=\"" + number(kTop) + "\" width=\"" + number(width) +
                    "\" height=\"" + number(height) + "\" fill=\"#ffffff\" fill-opacity=\"0.85\"/>\n";
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const double y = kTop + 14 + 18.0 * static_cast<double>(i);
    svg += "<path d=\"M" + number(left + 8) + " " + number(y) + "h22\" stroke=\"" + kColors[i % std::size(kColors)] +
           "\" stroke-width=\"2.5\"/>\n";
    svg += label(left + 38, y + 4, "start", plot.series[i].label);
  }
  return svg;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  if (!(high - low > kSmallest)) {  // a single value: add a margin
    const double margin = std::abs(low) < kSmallest ? 1 : 0.1 * std::abs(low);
    low -= margin;
    high += margin;
  }
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= 0.999 * rough) step = factor * power;
  }
  const auto first = static_cast<int64_t>(std::floor(low / step + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(high / step - 1e-9));
  std::vector<double> result;
  for (int64_t i = first; i <= last; ++i) result.push_back(static_cast<double>(i) * step);
  return result;
}

Series downsampled(const Series& series, size_t count) {
  const size_t size = series.x.size();
  if (size <= count) return series;
  Series result = {series.label, {}, {}, series.markers};
  for (size_t bin = 0; bin < count; ++bin) {
    const size_t begin = bin * size / count;
    const size_t end = (bin + 1) * size / count;
    double x = 0;
    double y = 0;
    for (size_t i = begin; i < end; ++i) {
      x += series.x[i];
      y += series.y[i];
    }
    result.x.push_back(x / static_cast<double>(end - begin));
    result.y.push_back(y / static_cast<double>(end - begin));
  }
  return result;
}

std::string to_svg(const Plot& plot) {
  Range x_range;
  Range y_range;
  for (const Series& series : plot.series) {
    TANDEM_CHECK(ValueError, series.x.size() == series.y.size(), "to_svg: series '", series.label, "' has ",
                 series.x.size(), " values x and ", series.y.size(), " values y, expected as many");
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawn(series, i)) continue;
      x_range.add(series.x[i]);
      y_range.add(series.y[i]);
    }
  }
  const std::string size = format_fixed(kWidth, 0) + "\" height=\"" + format_fixed(kHeight, 0);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " +
                    format_fixed(kWidth, 0) + " " + format_fixed(kHeight, 0) +
                    "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333333\">\n";
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += label(kLeft, 28, "start", plot.title, " font-size=\"15\" font-weight=\"600\"");
  if (x_range.low > x_range.high) {
    return svg + label(kWidth / 2, kHeight / 2, "middle", "no points yet") + "</svg>\n";
  }
  if (plot.y_from_zero) y_range.add(0);
  const Axis x(x_range, 8, kLeft, kWidth - kRight);
  const Axis y(y_range, 6, kHeight - kBottom, kTop);
  svg += frame(plot, x, y);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    svg += curve(plot.series[i], x, y, kColors[i % std::size(kColors)]);
  }
  return svg + legend(plot) + "</svg>\n";
}

}}}  // namespace tandem::v0::train
