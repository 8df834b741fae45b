#include <tandem/base/tuning.h>

#include <stdlib.h>

#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::TemporaryFolder;

TEST(Tuning, AppendedChoicesAreFoundByKey) {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  Tuning::append(path, "product 3x4", "a1");
  Tuning::append(path, "product 5x6", "b = 2");
  Tuning::append(path, "product 3x4", "a later one");
  const Tuning tuning(path);
  ASSERT_NE(tuning.find("product 3x4"), nullptr);
  EXPECT_EQ(*tuning.find("product 3x4"), "a1");  // the first line of a key counts
  EXPECT_EQ(*tuning.find("product 5x6"), "b = 2");
  EXPECT_EQ(tuning.find("product 7x8"), nullptr);
  EXPECT_TRUE(tuning.has_prefix("product 5"));
  EXPECT_FALSE(tuning.has_prefix("product 9"));
  EXPECT_FALSE(tuning.has_prefix("z"));
}

TEST(Tuning, HashDependsOnlyOnTheChoices) {
  const TemporaryFolder folder;
  const auto hash = [&](const std::string& text) { return Tuning(folder.write("choices", text)).hash(); };
  const uint64_t one = hash("tandem tuning 1\na = 1\nb = 2\n");
  EXPECT_EQ(hash("tandem tuning 1\n# by hand\n\nb = 2\na = 1\n"), one);
  EXPECT_NE(hash("tandem tuning 1\na = 1\nb = 3\n"), one);
  EXPECT_NE(hash("tandem tuning 1\na = 1\n"), one);
  EXPECT_EQ(hash("tandem tuning 1\n"), 0u);
  EXPECT_EQ(Tuning().hash(), 0u);
}

TEST(Tuning, RepeatedHeaderLineIsAccepted) {
  const TemporaryFolder folder;
  const Tuning tuning(folder.write("choices", std::string("tandem tuning 1\ntandem tuning 1\na = 1\n")));
  EXPECT_EQ(*tuning.find("a"), "1");
}

TEST(Tuning, MalformedFileErrorsNameTheLine) {
  const TemporaryFolder folder;
  const std::string path = folder / "choices";
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      Tuning tuning(folder.write("choices", text));
    } catch (const ValueError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(error_of(""), path + " is not a tuning file: its first line is not 'tandem tuning 1'");
  EXPECT_EQ(error_of("tandem tuning 2\n"), path + " is not a tuning file: its first line is not 'tandem tuning 1'");
  EXPECT_EQ(error_of("tandem tuning 1\na = 1\nb 2\n"), path + ": line 3 is not '<key> = <value>'");
  EXPECT_EQ(error_of("tandem tuning 1\na = \n"), path + ": line 2 is not '<key> = <value>'");
  EXPECT_EQ(error_of("tandem tuning 1\n = 1\n"), path + ": line 2 is not '<key> = <value>'");
  EXPECT_THROW(Tuning(folder / "none"), IoError);
  EXPECT_THROW(Tuning::append(folder / "none/choices", "a", "1"), IoError);
}

TEST(Tuning, NamedFileIsReadOnlyOnce) {
  const TemporaryFolder folder;
  setenv("TANDEM_TUNING_FILE", folder.write("choices", std::string("tandem tuning 1\na = 1\n")).c_str(), 1);
  EXPECT_EQ(*Tuning::from_environment().find("a"), "1");
  unsetenv("TANDEM_TUNING_FILE");
  EXPECT_EQ(*Tuning::from_environment().find("a"), "1");
}

}}  // namespace tandem
