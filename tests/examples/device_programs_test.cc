// Runs the multi-device examples with small tensors: checks their output, complete error texts, and all results.

#include <nlohmann/json.hpp>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

/// Parameter: number of devices.
class DeviceExamples : public ::testing::TestWithParam<int> {
 protected:
  bool on_four() const { return GetParam() == 4; }
  /// Runs the program, expects `num_results` results, all correct, and returns the output.
  std::string run(const std::string& name, Arguments arguments, int num_results) {
    arguments.insert(arguments.end(), {"--num-devices", std::to_string(GetParam())});
    const auto result = run_example(name, arguments);
    EXPECT_EQ(result.status, 0) << result.err << result.out;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(count(result.out, "WRONG"), 0) << result.out;
    EXPECT_TRUE(result.out.ends_with("\n\nall " + std::to_string(num_results) + " results are correct\n"))
        << result.out;
    return result.out;
  }
  static void expect_in(const std::string& out, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) EXPECT_EQ(count(out, text), 1) << text << "\nin\n" << out;
  }
};

INSTANTIATE_TEST_SUITE_P(On, DeviceExamples, ::testing::Values(2, 4),
                         [](const auto& test) { return std::to_string(test.param) + "Devices"; });

TEST_P(DeviceExamples, DeviceSumsPrintsResultsAndErrors) {
  const std::string out = run("device_sums", {"--mib", "1"}, 19);
  EXPECT_TRUE(
      out.starts_with("\na = [1 2 3] is on cpu, b = [4 5 6] is on cpu:1; tensors are never moved implicitly\n"
                      "    a + b  // throws DeviceError\n"
                      "        add: operands are on different devices\n"
                      "          a  cpu    int64 [3]\n"
                      "          b  cpu:1  int64 [3]  <- differs\n"
                      "          move it with b.to(cpu), or move the module with model.to(cpu)\n"
                      "\nmove one tensor to the other's device\n"
                      "    a + b.to(a.device())\n"
                      "        [5 7 9] on cpu  ok\n"
                      "    a.to(b.device()) + b\n"
                      "        [5 7 9] on cpu:1  ok\n"
                      "    a.cpu() + b.cpu()\n"
                      "        [5 7 9] on cpu  ok\n"
                      "\nchoose the device of the sum\n"
                      "    comm::sum_to(cpu:1, {a, b})\n"
                      "        [5 7 9] on cpu:1  ok\n"
                      "    comm::all_reduce({a, b})\n"
                      "        [5 7 9] on cpu, [5 7 9] on cpu:1  ok\n"
                      "\none thread rank per device, as in data-parallel training: run_threads({a.device(), "
                      "b.device()}, f)\n"
                      "    f: group.all_gather(parts, x);  parts[0] + parts[1]\n"
                      "        [5 7 9] on cpu, [5 7 9] on cpu:1  ok\n"
                      "    f: group.all_reduce(x)\n"
                      "        [5 7 9] on cpu, [5 7 9] on cpu:1  ok\n\n"))
      << out;
  EXPECT_EQ(count(out, "off by"), 0) << "all methods add float32 in the same order";
  expect_in(out, {on_four() ? "    gather_to(target, tensors), then add  // throws OutOfMemory\n"
                              "        gather_to: too little memory, nothing was moved\n"
                              "          3.0 MiB (3145728 bytes) in 3 chunks\n"
                              "          cpu: 3145728 bytes for results, 0 for chunks in flight; free 1048576  <- too "
                              "little\n"
                            : "    gather_to(target, tensors), then add  // throws OutOfMemory\n"
                              "        allocate: cpu is out of memory\n"
                              "          requested  1048576 bytes (1048576 rounded up)\n"
                              "          allocated  2097152 bytes\n"
                              "          limit      2097152 bytes\n",
                  "        peak memory on cpu 1.0 MiB  ok\n        the sum is correct  ok\n",
                  std::string("    comm::sum_to(target, tensors)  // throws OutOfMemory\n"
                              "        sum_to: too little memory, nothing was moved\n          ") +
                      (on_four() ? "3.0 MiB (3145728" : "1.0 MiB (1048576") +
                      " bytes) in 1 chunk\n"
                      "          cpu: 1048576 bytes for results, 0 for chunks in flight; free 524288  <- too little\n"
                      "        no device allocated memory  ok\n"});
}

TEST_P(DeviceExamples, DeviceSumsSupportsHalfTypes) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    const std::string out = run("device_sums", {"--mib", "1", "--dtype", dtype}, 19);
    expect_in(out, {std::to_string(GetParam()) + " tensors " + dtype + " of 1.0 MiB, one on each device",
                    std::string("adding one by one rounds to ") + dtype +
                        " after every addition; the other methods round "
                        "once"});
    // Two tensors need only one addition.
    EXPECT_EQ(count(out, "  ok, off by "), on_four() ? 3 : 0) << out;
  }
}

TEST_P(DeviceExamples, DeviceTransfersPrintsResultsAndTracesCopies) {
  const std::string trace = fresh_folder("transfers") + ".json";
  const std::string out =
      run("device_transfers", {"--mib", "2", "--chunk-mib", "1", "--in-flight", "1", "--trace", trace}, 24);
  const std::string source = on_four() ? "cpu:3" : "cpu:1";
  expect_in(out, {"\nmove 8 tensors of other devices, 2.0 MiB, to cpu\n",
                  "    future = td::to_async(tensor, cpu) of each;  a.matmul(a) on " + source +
                      ", several times;  future.get()\n",
                  "        the moved tensors are equal  ok\n", "        f ran for 8 tensors, which are equal  ok\n",
                  "\nmove x, 2.0 MiB on " + source + ", in chunks of 1.0 MiB, 1 in flight\n",
                  "        50 %\n        100 %\n"
                  "        peak memory on cpu 2.0 MiB, only the result: chunks are copied directly into it  ok\n",
                  "        peak memory on " + source + " 1.0 MiB for chunks in flight, planned 1.0 MiB  ok\n",
                  "    future.get()  // throws CancelledError\n"
                  "        to_async: cancelled after 1 of 2 chunks\n"
                  "        its memory on cpu is freed  ok\n",
                  "\ncpu has memory for half of x\n",
                  "    x.to(target)  // throws OutOfMemory\n"
                  "        to: too little memory, nothing was moved\n"
                  "          2.0 MiB (2097152 bytes) in 1 chunk\n"
                  "          cpu: 2097152 bytes for results, 0 for chunks in flight; free 1048576  <- too little\n",
                  "    td::gather_to(target, {x})  // throws OutOfMemory\n"
                  "        gather_to: too little memory, nothing was moved\n"
                  "          2.0 MiB (2097152 bytes) in 1 chunk\n"
                  "          cpu: 2097152 bytes for results, 0 for chunks in flight; free 1048576  <- too little\n"
                  "        no device allocated memory  ok\n",
                  "        another device is suggested  ok\n"});
  EXPECT_EQ(count(out, "  <- suggested\n"), 2) << out;
  EXPECT_EQ(count(out, "  does not fit\n"), 1) << out;

  // The trace contains the products, on the rank's thread, and the copies.
  std::map<std::string, std::set<int>> threads;
  const auto document = nlohmann::json::parse(read_file(trace));
  for (const auto& event : document.at("traceEvents")) {
    if (event.contains("ts")) threads[event.at("name").get<std::string>()].insert(event.at("tid").get<int>());
  }
  EXPECT_EQ(threads["matmul"], std::set<int>{0});
  EXPECT_FALSE(threads["copy"].empty()) << ::testing::PrintToString(threads);
}

TEST_P(DeviceExamples, AddmmDevicesPrintsSplitsAndErrors) {
  const std::string out = run("addmm_devices", {"--size", "65"}, on_four() ? 16 : 10);
  expect_in(out,
            {"\ninput and mat1 are on cpu, mat2 is on cpu:1; tensors are never moved implicitly\n"
             "    td::addmm(input, mat1, mat2)  // throws DeviceError\n"
             "        addmm: operands are on different devices\n"
             "          input  cpu    float32 [65, 65]\n"
             "          mat1   cpu    float32 [65, 65]\n"
             "          mat2   cpu:1  float32 [65, 65]  <- differs\n"
             "          move it with mat2.to(cpu), or move the module with model.to(cpu)\n",
             "    td::addmm(input, mat1, mat2.to(cpu))  ", "    td::addmm(input.to(cpu:1), mat1.to(cpu:1), mat2)  "});
  for (const char* split : {"kRows", "kColumns", "kInner"}) {
    expect_in(out, {std::string("    ") + split + " over 2 devices  ",
                    std::string("        ") + split + ": gradients of input, mat1 and mat2 equal addmm's  ok\n"});
    EXPECT_EQ(count(out, std::string("    ") + split + " over 4 devices  "), on_four() ? 1 : 0);
  }
  EXPECT_EQ(count(out, "    td::addmm(input, mat1, mat2.to(cpu:1))  "), on_four() ? 1 : 0) << out;
}

TEST(DeviceExampleFlags, InvalidValuesAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"device_sums", "--device", "gpu"}, "device_sums: --device: gpu not in {cpu,cuda,auto}\n"},
      {{"device_sums", "--dtype", "int64"}, "device_sums: --dtype: int64 not in {float32,float16,bfloat16}\n"},
      {{"device_sums", "--mib", "0"}, "device_sums: --mib: expected a whole number from 1 to 65536, got '0'\n"},
      {{"device_transfers", "--num-devices", "1"},
       "device_transfers: --num-devices: expected a whole number from 2 to 16, got '1'\n"},
      {{"device_transfers", "--in-flight", "2.5"},
       "device_transfers: --in-flight: expected a whole number from 1 to 64, got '2.5'\n"},
      {{"device_transfers", "--trace", ""}, "device_transfers: --trace: the path is empty\n"},
      {{"addmm_devices", "--size", "x"}, "addmm_devices: --size: expected a whole number from 1 to 65536, got 'x'\n"},
      {{"addmm_devices", "--nproc"}, "addmm_devices: The following argument was not expected: --nproc\n"},
  };
  for (const auto& [command, text] : cases) {
    const auto result = run_example(command[0], Arguments(command.begin() + 1, command.end()));
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_EQ(result.err, text + "usage: " + command[0] + " [FLAG VALUE]...; --help lists all flags\n");
    EXPECT_EQ(result.out, "");
  }
}

TEST(DeviceExampleFlags, HelpListsEveryFlag) {
  const auto result = run_example("device_transfers", {"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char* flag : {"--mib", "--chunk-mib", "--in-flight", "--trace", "--device", "--num-devices"}) {
    EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
  }
}

TEST(DeviceExampleFlags, UnwritableTracePathIsAnError) {
  const std::string trace = fresh_folder("missing") + "/transfers.json";
  const auto result = run_example("device_transfers", {"--mib", "1", "--num-devices", "2", "--trace", trace});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find(trace), std::string::npos) << result.err;
}

}  // namespace
