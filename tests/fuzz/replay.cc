// Runs a fuzz target on the files of the command line and on fixed mutations of each file: truncations, changed bits
// and bytes, binary and decimal numbers replaced by extreme ones, and parts of two files concatenated.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <tandem/tests/fuzz/fuzz.h>

namespace {

constexpr size_t kMaxCuts = 400;
constexpr size_t kJoins = 100;  // per pair of inputs

class Replay {
 public:
  int64_t count() const { return count_; }

  void run(const std::string& input) {
    ++count_;
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }

  void cut(const std::string& input) {
    const size_t step = input.size() / kMaxCuts + 1;
    for (size_t size = 0; size < input.size(); size += step) run(input.substr(0, size));
    run(input + '\0');
    run(input + input);
  }

  void change_bytes(const std::string& input) {
    const size_t step = input.size() / kMaxCuts + 1;
    for (size_t at = 0; at < input.size(); at += step) {
      std::string changed = input;
      for (const char flip : {'\x01', '\x04', '\x10', '\x80'}) {
        changed[at] = static_cast<char>(input[at] ^ flip);
        run(changed);
      }
      for (const char byte : {'\0', '\xff', '"', '{', '[', '9', '\\', ' '}) {
        changed[at] = byte;
        run(changed);
      }
      run(input.substr(0, at) + input.substr(at + 1));
      run(input.substr(0, at) + input[at] + input.substr(at));
    }
  }

  void change_binary_numbers(const std::string& input) {
    const uint64_t size = input.size();
    for (size_t at = 0; at < std::min<size_t>(input.size(), 64); ++at) {
      for (const uint64_t number :
           {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31, uint64_t{0xffffffff}, (uint64_t{1} << 63) - 1,
            uint64_t{1} << 63, ~uint64_t{0}, size, size + 1, size - 8, uint64_t{100'000'000}, uint64_t{100'000'001}}) {
        for (const size_t width : {2, 4, 8}) {
          std::string little = input;
          std::string big = input;
          for (size_t i = 0; i < width && at + i < input.size(); ++i) {
            little[at + i] = static_cast<char>(number >> 8 * i);
            big[at + i] = static_cast<char>(number >> 8 * (width - 1 - i));
          }
          run(little);
          run(big);
        }
      }
    }
  }

  void change_decimal_numbers(const std::string& input) {
    for (size_t begin = 0; begin < input.size(); ++begin) {
      const auto is_digit = [&](size_t at) {
        return at < input.size() && std::isdigit(static_cast<uint8_t>(input[at]));
      };
      if (!is_digit(begin) || (begin > 0 && is_digit(begin - 1))) continue;
      size_t end = begin;
      while (is_digit(end)) ++end;
      for (const char* number : {"0", "-1", "1.5", "00", "1e999", "-0", "4294967296", "4611686018427387904",
                                 "9223372036854775807", "9223372036854775808", "18446744073709551616",
                                 "123456789012345678901234567890", "\"1\"", "null", "[1]", "{}"}) {
        run(input.substr(0, begin) + number + input.substr(end));
      }
    }
  }

  void join(const std::string& first, const std::string& second) {
    for (size_t i = 0; i < kJoins; ++i) {
      run(first.substr(0, random(first.size() + 1)) + second.substr(random(second.size() + 1)));
    }
  }

 private:
  /// A pseudo-random number below `bound` of a linear congruential generator: equal on all platforms.
  size_t random(size_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state_ >> 33) % bound;
  }

  uint64_t state_ = 1;
  int64_t count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "replay: cannot open %s\n", argv[i]);
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "replay: no inputs\n");
    return 1;
  }
  Replay replay;
  replay.run("");
  for (const std::string& input : corpus) {
    replay.run(input);
    replay.cut(input);
    replay.change_bytes(input);
    replay.change_binary_numbers(input);
    replay.change_decimal_numbers(input);
    for (const std::string& other : corpus) replay.join(input, other);
  }
  std::printf("%lld inputs\n", static_cast<long long>(replay.count()));
  return 0;
}
