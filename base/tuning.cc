#include <tandem/base/tuning.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 {

namespace {

constexpr std::string_view kFirstLine = "tandem tuning 1";
constexpr std::string_view kSeparator = " = ";

}  // namespace

Tuning::Tuning(const std::string& path) {
  const std::string text = InputFile("Tuning", path).text();
  std::string line;
  auto next_line = [&, begin = size_t{0}]() mutable {
    if (begin >= text.size()) return false;
    const size_t end = std::min(text.find('\n', begin), text.size());
    line = text.substr(begin, end - begin);
    begin = end + 1;
    return true;
  };
  next_line();
  TANDEM_CHECK(ValueError, line == kFirstLine, path, " is not a tuning file: its first line is not '", kFirstLine, "'");
  for (int number = 2; next_line(); ++number) {
    if (line.empty() || line[0] == '#' || line == kFirstLine)
      continue;  // two processes may have created the file concurrently
    const size_t at = line.find(kSeparator);
    TANDEM_CHECK(ValueError, at != std::string::npos && at > 0 && at + kSeparator.size() < line.size(), path, ": line ",
                 number, " is not '<key> = <value>'");
    choices_.emplace(line.substr(0, at), line.substr(at + kSeparator.size()));
  }
}

const Tuning& Tuning::from_environment() {
  static const Tuning instance = [] {
    const auto path = env_string("TANDEM_TUNING_FILE");
    return path ? Tuning(*path) : Tuning();
  }();
  return instance;
}

const std::string* Tuning::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

bool Tuning::has_prefix(const std::string& prefix) const {
  const auto next = choices_.lower_bound(prefix);
  return next != choices_.end() && next->first.starts_with(prefix);
}

uint64_t Tuning::hash() const {
  if (choices_.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  };
  for (const auto& [key, value] : choices_) {
    add(key);
    add(kSeparator);
    add(value);
    add("\n");
  }
  return hash;
}

void Tuning::append(const std::string& path, const std::string& key, const std::string& value) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  const std::string choice = str(key, kSeparator, value, '\n');
  write_file("Tuning", path, missing || size == 0 ? str(kFirstLine, '\n', choice) : choice, WriteMode::kAppend);
}

}}  // namespace tandem::v0
