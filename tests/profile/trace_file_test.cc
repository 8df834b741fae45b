#include <tandem/profile/trace_file.h>
#include <tandem/tests/support/test.h>

namespace tandem::profile { namespace {

TEST(TraceFile, JsonMatchesChromeTraceFormat) {
  const std::vector<TraceEvent> events = {
      {"step", "step", 1, 0, 5'000, 25'500, 0},
      {"all \"reduce\"\n", "comm", 0, 1, 6'250, 7'250, 4096},
      {"launch bucket 0", "comm", 0, 0, 6'000, 6'000, 0},
      {"linear", "op", 1, 0, 7'000, 8'000, 96, 384, "Linear 'fc1'"},
  };
  EXPECT_EQ(to_chrome_json(events), R"({"displayTimeUnit": "ms", "traceEvents": [
{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1"}},
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"compute"}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"communication"}},
{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"compute"}},
{"name":"step","cat":"step","ph":"X","ts":0.0,"dur":20.5,"pid":1,"tid":0},
{"name":"all \"reduce\"\n","cat":"comm","ph":"X","ts":1.25,"dur":1.0,"pid":0,"tid":1,"args":{"bytes":4096}},
{"name":"launch bucket 0","cat":"comm","ph":"i","ts":1.0,"s":"t","pid":0,"tid":0},
{"name":"linear","cat":"op","ph":"X","ts":2.0,"dur":1.0,"pid":1,"tid":0,"args":{"bytes":96,"flops":384,"module":"Linear 'fc1'"}}
]}
)");
}

TEST(TraceFile, ThreadsAreNamed) {
  const std::vector<std::pair<int, std::string>> threads = {{0, "compute"},
                                                            {1, "communication"},
                                                            {2, "loader 1"},
                                                            {63, "loader 62"},
                                                            {64, "copy worker 1"},
                                                            {127, "copy worker 64"},
                                                            {128, "device 1"},
                                                            {253, "device 126"},
                                                            {254, "steps on the GPU"},
                                                            {255, "collectives on the GPU"}};
  for (const auto& [thread, name] : threads) {
    const std::string text = to_chrome_json({{"x", "op", 0, thread, 0, 1000, 0}});
    EXPECT_NE(text.find("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(thread) +
                        ",\"args\":{\"name\":\"" + name + "\"}}"),
              std::string::npos)
        << text;
  }
}

TEST(TraceFile, InvalidUtf8IsReplaced) {
  EXPECT_NE(to_chrome_json({{"a\xff", "op", 0, 0, 0, 1000, 0}}).find("{\"name\":\"a\\ufffd\",\"cat\":\"op\""),
            std::string::npos);
}

TEST(TraceFile, EmptyTraceGivesEmptyEventList) {
  EXPECT_EQ(to_chrome_json({}), "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n]}\n");
}

TEST(TraceFile, WrittenFileMatchesJsonText) {
  const std::string path = ::testing::TempDir() + "/trace.json";
  write_chrome_trace(path, {{"x", "step", 0, 0, 0, 1000, 0}});
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, to_chrome_json({{"x", "step", 0, 0, 0, 1000, 0}}));
}

TEST(TraceFile, MissingFolderIsAnIoError) {
  EXPECT_ERROR(IoError, write_chrome_trace("/nonexistent/trace.json", {}),
               "write_chrome_trace: cannot write '/nonexistent/trace.json': No such file or directory");
}

}}  // namespace tandem::profile
