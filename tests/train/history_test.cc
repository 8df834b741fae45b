#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/history.h>

namespace {

using tandem::train::Evaluation;
using tandem::train::History;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

History three_steps() {
  History history;
  history.add_step({3}, kNan);
  history.add_step({2}, 0.5);
  history.add_evaluation(2, {{"loss", 2.5}, {"accuracy", 0.25}});
  history.add_step({1}, 0.25);
  history.add_evaluation(3, {{"perplexity", 4}});
  return history;
}

TEST(History, EvaluationIsFoundByItsStep) {
  const History history = three_steps();
  EXPECT_EQ(history.evaluation(3), (Evaluation{{"perplexity", 4}}));
  EXPECT_EQ(history.evaluation(1), Evaluation());
  EXPECT_EQ(History().evaluation(0), Evaluation());
}

TEST(History, LossPlotHasTrainingAndEvaluatedLosses) {
  const auto plot = three_steps().loss_plot("title", "test");
  ASSERT_EQ(plot.series.size(), 2u);
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{3, 2, 1}));
  EXPECT_EQ(plot.series[1].label, "test");
  EXPECT_EQ(plot.series[1].x, (std::vector<double>{2}));
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{2.5}));
  History without_evaluation;
  without_evaluation.add_step({1}, kNan);
  EXPECT_EQ(without_evaluation.loss_plot("title", "test").series.size(), 1u);
}

TEST(History, ThroughputPlotOmitsStepsWithoutTime) {
  const auto plot = three_steps().throughput_plot("title", "images", 10);
  ASSERT_EQ(plot.series.size(), 1u);
  EXPECT_EQ(plot.series[0].x, (std::vector<double>{2, 3}));
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{20, 40}));
}

TEST(History, LoadedStateContinuesTheHistory) {
  History history;
  history.add_step({9}, kNan);
  history.load_state_dict(three_steps().state_dict());
  EXPECT_EQ(history.losses(0), (std::vector<double>{3, 2, 1}));
  EXPECT_TRUE(std::isnan(history.seconds()[0]));
  EXPECT_EQ(history.seconds()[2], 0.25);
  EXPECT_EQ(history.evaluation(3), (Evaluation{{"perplexity", 4}}));
  EXPECT_EQ(history.loss_plot("title", "test").series[1].y, (std::vector<double>{2.5}));
}

TEST(History, EachOfSeveralLossesHasItsLine) {
  History history({"critic", "generator"});
  history.add_step({1, 10}, kNan);
  history.add_step({2, 20}, 0.5);
  History loaded({"critic", "generator"});
  loaded.load_state_dict(history.state_dict());
  EXPECT_EQ(loaded.losses(0), (std::vector<double>{1, 2}));
  EXPECT_EQ(loaded.losses(1), (std::vector<double>{10, 20}));
  EXPECT_EQ(tandem::testing::error_text<tandem::StateError>([&] { History().load_state_dict(history.state_dict()); }),
            "History: the state has 4 losses of 2 steps, expected 1 of each step");
  const auto plot = loaded.loss_plot("title", "test");
  ASSERT_EQ(plot.series.size(), 2u);
  EXPECT_EQ(plot.series[0].label, "critic");
  EXPECT_EQ(plot.series[1].label, "generator");
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{10, 20}));
}

TEST(History, MergeAveragesNewLossesOverRanks) {
  tandem::distributed::run_threads(2, [](tandem::distributed::Context& ctx) {
    History history;
    history.add_step({1.0 * ctx.rank()}, kNan);
    history.merge(*ctx.group());
    history.add_step({3.0 * ctx.rank()}, kNan);
    history.merge(*ctx.group());
    history.merge(*ctx.group());
    EXPECT_EQ(history.losses(0), (std::vector<double>{0.5, 1.5}));
    History loaded;
    loaded.load_state_dict(history.state_dict());
    EXPECT_EQ(loaded.state_dict().get<int64_t>("merged"), 2);  // averages are not averaged again
  });
}

}  // namespace
