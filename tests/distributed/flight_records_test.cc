#include <tandem/distributed/launch/flight_records.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using namespace tandem::distributed;
using tandem::str;

/// A line of a file.
std::string line(const std::string& number, const std::string& call, bool done = true) {
  return str("  ", number, "  04:52:26.120001  0.012  -  ", done ? "1.0" : "-", "  ",
             number[0] == 'p' ? "-" : "8f3a12bc", "  ", call, call == "barrier" ? "" : " sum float32 [4, 3], 'a, b'",
             ", ", call, ".cc:12\n");
}

std::string record(int rank, const std::string& lines, const std::string& group = "default") {
  return str("file /logs/rank-", rank, "\ngroup ", group, "\n", lines);
}

const std::string kFirst = line("1", "all_reduce");

TEST(FlightRecords, RankWithAnotherCallIsNamed) {
  const std::string usual = kFirst + line("2", "all_reduce", false);
  EXPECT_EQ(describe_first_difference(
                {record(0, usual), record(1, usual), record(2, kFirst + line("2", "all_gather", false))}),
            "rank 2 is at all_gather #2 (all_gather.cc:12), the other ranks are at all_reduce #2 (all_reduce.cc:12)\n"
            "  its last operations: /logs/rank-2");
}

TEST(FlightRecords, MatchingCallsFromOtherPlacesAreEqual) {
  std::string elsewhere = line("2", "all_reduce", false);
  elsewhere.replace(elsewhere.find(".cc:12"), 6, ".cc:99");
  EXPECT_EQ(describe_first_difference({record(0, kFirst + line("2", "all_reduce")), record(1, kFirst + elsewhere)}),
            "");
}

TEST(FlightRecords, RankWithoutTheCallIsNamed) {
  const std::string usual = kFirst + line("2", "all_reduce", false) + line("3", "all_reduce", false);
  EXPECT_EQ(describe_first_difference({record(0, usual), record(1, kFirst)}),
            "rank 1 has called nothing after all_reduce #1 (all_reduce.cc:12), rank 0 is at all_reduce #2 "
            "(all_reduce.cc:12)\n  its last operations: /logs/rank-1");
  EXPECT_EQ(describe_first_difference({record(0, line("1", "barrier", false)), record(1, "")}),
            "rank 1 has called no collective, rank 0 is at barrier #1 (barrier.cc:12)\n"
            "  its last operations: /logs/rank-1");
}

TEST(FlightRecords, RankThatWaitsForAMessageIsNamed) {
  EXPECT_EQ(describe_first_difference({record(0, kFirst + line("p1", "recv", false)),
                                       record(1, kFirst + line("2", "barrier", false) + line("p1", "send"))}),
            "rank 0 is at recv (recv.cc:12), rank 1 is at barrier #2 (barrier.cc:12)\n"
            "  its last operations: /logs/rank-0");
}

TEST(FlightRecords, SeveralDifferencesAreOfMostRanks) {
  const std::string usual = line("1", "all_reduce", false);
  EXPECT_EQ(describe_first_difference({record(0, line("1", "barrier", false)), record(1, usual), record(2, usual),
                                       record(3, line("1", "gather", false))}),
            "rank 0 is at barrier #1 (barrier.cc:12), most ranks are at all_reduce #1 (all_reduce.cc:12)\n"
            "  its last operations: /logs/rank-0");
}

TEST(FlightRecords, GroupsAreCompared) {
  const std::string same = record(0, kFirst);
  const std::string first = record(0, line("7", "barrier", false), "evaluation");
  EXPECT_EQ(describe_first_difference({same + first, same, "", record(3, line("7", "reduce", false), "evaluation")}),
            "group 'evaluation': rank 3 is at reduce #7 (reduce.cc:12), rank 0 is at barrier #7 (barrier.cc:12)\n"
            "  its last operations: /logs/rank-3");
}

TEST(FlightRecords, RanksThatAreAheadDoNotDiffer) {
  EXPECT_EQ(describe_first_difference({record(0, line("100", "barrier")), record(1, line("7", "barrier", false))}), "");
  EXPECT_EQ(describe_first_difference({record(0, kFirst + "  2  04:5"), record(1, kFirst)}), "");  // a line cut off
  EXPECT_EQ(describe_first_difference({"", "", record(2, kFirst)}), "");
  EXPECT_EQ(describe_first_difference({}), "");
}

TEST(FlightRecords, OnlyFilesOfTheStartAreRead) {
  const tandem::testing::TemporaryFolder folder;
  const std::string head = "# flight recorder\n# group 'it's', rank 1 (0 of 2 in the group), host h\n";
  std::string lines;
  for (int i = 1; i <= 65; ++i) lines += line(std::to_string(i), "barrier");
  folder.write("rank-1.flight-it_s.txt", head + lines);
  folder.write("rank-1.restart-2.flight-it_s.txt", head);
  folder.write("rank-1.flight-broken.txt", std::string("x"));
  folder.write("rank-11.flight-it_s.txt", head);
  folder.write("rank-1.log", head);
  EXPECT_EQ(folder.shortened(read_flight_records(folder.path(), 1, 0)),
            "file DIR/rank-1.flight-it_s.txt\ngroup it's\n" + lines.substr(lines.find('\n') + 1));
  EXPECT_EQ(folder.shortened(read_flight_records(folder.path(), 1, 2)),
            "file DIR/rank-1.restart-2.flight-it_s.txt\ngroup it's\n");
  remove_flight_records(folder.path(), 1);
  EXPECT_EQ(read_flight_records(folder.path(), 1, 0) + read_flight_records(folder.path(), 1, 2), "");
  EXPECT_NE(read_flight_records(folder.path(), 11, 0), "");
  EXPECT_EQ(tandem::testing::read_file(folder / "rank-1.log"), head);
  EXPECT_EQ(read_flight_records(folder / "missing", 1, 0), "");
}

}  // namespace
