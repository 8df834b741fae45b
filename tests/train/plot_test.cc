#include <tandem/tests/support/test.h>
#include <tandem/train/plot_points.h>

namespace {

using tandem::train::Plot;
using tandem::train::Series;
using tandem::train::to_svg;

int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(Plot, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(tandem::train::ticks(0, 500, 8), (std::vector<double>{0, 100, 200, 300, 400, 500}));
  EXPECT_EQ(tandem::train::ticks(1, 7, 6), (std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(tandem::train::ticks(-30, 170, 6), (std::vector<double>{-50, 0, 50, 100, 150, 200}));
  const std::vector<double> small = tandem::train::ticks(0.00213, 0.00287, 6);
  EXPECT_NEAR(small.front(), 0.002, 1e-12);
  EXPECT_NEAR(small.back(), 0.003, 1e-12);
  for (const double value : {0.0, 3.0, -0.25}) {  // a single value is inside the range
    const std::vector<double> around = tandem::train::ticks(value, value, 6);
    EXPECT_LT(around.front(), value);
    EXPECT_GT(around.back(), value);
  }
}

TEST(Plot, ThinningAveragesNeighboringPoints) {
  Series series = {"loss", {}, {}};
  for (int i = 1; i <= 7; ++i) {
    series.x.push_back(i);
    series.y.push_back(10.0 * i);
  }
  const Series three = tandem::train::downsampled(series, 3);  // runs of 2, 2 and 3
  EXPECT_EQ(three.label, "loss");
  EXPECT_EQ(three.x, (std::vector<double>{1.5, 3.5, 6}));
  EXPECT_EQ(three.y, (std::vector<double>{15, 35, 60}));
  EXPECT_EQ(tandem::train::downsampled(series, 7).y, series.y);
  EXPECT_EQ(tandem::train::downsampled(series, 100).y, series.y);
}

TEST(Plot, SvgContainsAxesLinesMarkersAndLegend) {
  const Plot plot = {"loss of <a & b>",
                     "step",
                     "loss",
                     {{"training", {0, 50, 100}, {4, 2, 1}}, {"validation", {50, 100}, {3, 2}, true}}};
  const std::string svg = to_svg(plot);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find(">loss of &lt;a &amp; b&gt;</text>"), std::string::npos) << svg;
  for (const char* text : {">step</text>", ">loss</text>", ">training</text>", ">validation</text>", ">0</text>",
                           ">100</text>", ">1</text>", ">4</text>"}) {
    EXPECT_EQ(occurrences(svg, text), 1) << text;
  }
  EXPECT_EQ(occurrences(svg, "<circle "), 2);
  // x from 0 to 100 over 74 .. 696 and y from 1 to 4 over 342 .. 48.
  EXPECT_NE(svg.find("<path d=\"M74.00 48.00 L385.00 244.00 L696.00 342.00\""), std::string::npos) << svg;
  EXPECT_EQ(svg, to_svg(plot));
}

TEST(Plot, NonFiniteValuesBreakTheLine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = to_svg({"", "", "", {{"a", {0, 25, 50, 75, 100}, {0, 1, nan, 3, 4}}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<path d=\"M74.00 342.00 L229.50 268.50 M540.50 121.50 L696.00 48.00\""), std::string::npos)
      << svg;
}

TEST(Plot, EmptyPlotShowsNoPointsMessage) {
  EXPECT_NE(to_svg({"t", "x", "y", {}}).find(">no points yet</text>"), std::string::npos);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(to_svg({"t", "x", "y", {{"a", {1}, {nan}}}}).find(">no points yet</text>"), std::string::npos);
  EXPECT_EQ(to_svg({"t", "x", "y", {{"a", {1}, {2}}}}).find("no points yet"), std::string::npos);
}

TEST(Plot, LargeTickLabelsAreAbbreviated) {
  const std::string svg = to_svg({"", "", "", {{"a", {0, 40000}, {0, 3e6}}}, true});
  EXPECT_EQ(occurrences(svg, ">40k</text>"), 1) << svg;
  EXPECT_EQ(occurrences(svg, ">3M</text>"), 1) << svg;
  EXPECT_EQ(occurrences(svg, ">5000</text>"), 1) << svg;
}

}  // namespace
