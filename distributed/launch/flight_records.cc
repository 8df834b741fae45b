#include <tandem/distributed/launch/flight_records.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/format.h>
#include <tandem/distributed/group/flight_recorder.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Per file. Ranks that wait for each other differ in one of their last operations; earlier ones need not be sent to
/// node 0.
constexpr size_t kNumLines = 64;
constexpr size_t kMaxBytes = 1u << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// One operation.
struct Line {
  bool is_done = false;
  std::string call;    // what ranks must have in common: the check, or "send" and "recv"
  std::string number;  // "#7"
  std::string text;    // "all_reduce #7 (train.cc:41)"
};

/// One group on one rank.
struct Record {
  int rank = 0;
  std::string path;
  std::map<int64_t, Line> collectives;
  std::string waiting;  // for a message: "recv (train.cc:41)"

  int64_t first_unfinished() const {
    for (const auto& [number, line] : collectives) {
      if (!line.is_done) return number;
    }
    return collectives.empty() ? 1 : collectives.rbegin()->first + 1;
  }

  /// What the rank does instead of collective `number`.
  std::string without(int64_t number) const {
    if (!waiting.empty()) return "is at " + waiting;
    const auto next = collectives.lower_bound(number);
    if (next == collectives.begin()) return "has called no collective";
    return "has called nothing after " + std::prev(next)->second.text;
  }
};

/// Adds a line of a file: number, queued, started, agreed, done, check, call. Ignores lines that are cut off.
void add_line(std::string_view text, Record& record) {
  auto words = split(text, ' ');
  const size_t comma = text.rfind(", ");
  if (words.size() < 8 || comma == std::string_view::npos) return;
  if (words[6].ends_with(',')) words[6].remove_suffix(1);  // of a barrier without a name
  const bool is_message = words[0].starts_with('p');
  const bool is_done = words[4] != "-";
  const std::string where = str(" (", text.substr(comma + 2), ")");
  if (is_message) {
    if (!is_done && record.waiting.empty()) record.waiting = str(words[6], where);
  } else if (const auto number = parse_integer(words[0])) {
    record.collectives[*number] = {is_done, str(words[5], words[6]), str("#", *number),
                                   str(words[6], " #", *number, where)};
  }
}

/// The records by group, the default group first.
std::vector<std::pair<std::string, std::vector<Record>>> parse(const std::vector<std::string>& records) {
  std::map<std::string, std::vector<Record>> groups;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    Record* record = nullptr;
    std::string_view path;
    for (const std::string_view line : split(records[rank], '\n')) {
      if (line.starts_with("file ")) {
        path = line.substr(5);
      } else if (line.starts_with("group ")) {
        record = &groups[std::string(line.substr(6))].emplace_back();
        record->rank = static_cast<int>(rank);
        record->path = path;
      } else if (record != nullptr) {
        add_line(line, *record);
      }
    }
  }
  std::vector<std::pair<std::string, std::vector<Record>>> sorted(groups.begin(), groups.end());
  std::stable_partition(sorted.begin(), sorted.end(), [](const auto& group) { return group.first == "default"; });
  return sorted;
}

std::string describe_difference(const std::string& group, std::vector<Record> records) {
  int64_t number = records.front().first_unfinished();
  for (const Record& record : records) number = std::min(number, record.first_unfinished());
  // A rank whose lines begin later has completed this collective.
  std::erase_if(records, [&](const Record& record) {
    return !record.collectives.empty() && record.collectives.begin()->first > number && number > 1;
  });
  // By rank: the call, empty if the rank has not called it.
  std::vector<std::string> calls;
  std::map<std::string, int> counts;
  for (const Record& record : records) {
    const auto found = record.collectives.find(number);
    calls.push_back(found == record.collectives.end() ? "" : found->second.call);
    ++counts[calls.back()];
  }
  if (counts.size() < 2) return "";
  // A call is the usual one rather than none, and the one of the lowest rank among equally many.
  const auto is_rarer = [&](const std::string& a, const std::string& b) {
    return std::pair(counts[a], !a.empty()) < std::pair(counts[b], !b.empty());
  };
  const std::string usual = *std::max_element(calls.begin(), calls.end(), is_rarer);
  const auto at = static_cast<size_t>(
      std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call != usual; }) - calls.begin());
  const auto other = static_cast<size_t>(std::find(calls.begin(), calls.end(), usual) - calls.begin());
  const auto what = [&](size_t i, bool is_one) {
    if (calls[i].empty()) return records[i].without(number);
    return (is_one ? "is at " : "are at ") + records[i].collectives.at(number).text;
  };
  const int others = counts[usual];
  const std::string subject = others == 1                                      ? str("rank ", records[other].rank)
                              : others + 1 == static_cast<int>(records.size()) ? "the other ranks"
                                                                               : "most ranks";
  return str(group == "default" ? "" : str("group '", group, "': "), "rank ", records[at].rank, " ", what(at, true),
             ", ", subject, " ", what(other, others == 1), "\n  its last operations: ", records[at].path);
}

}  // namespace

void set_record_dir(JobOptions* options) {
  options->record_dir = env_string("TANDEM_FLIGHT_RECORDER_DIR").value_or(options->log_dir);
  if (!options->record_dir.empty()) return;
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return;
  // Not predictable, so that no other user can create the folder first. Ranks create it when they write.
  options->record_dir = temporary / ("tandem-" + wire::token_to_hex(wire::random_token()).substr(0, 16));
  options->is_record_dir_temporary = true;
}

void remove_flight_records(const std::string& folder, int rank) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const bool is_restart = name.starts_with(str("rank-", rank, ".restart-")) && name.find(".flight-") != name.npos;
    if (name.starts_with(flight_record_prefix(rank, 0)) || is_restart) std::filesystem::remove(entry.path(), ignored);
  }
}

std::string read_flight_records(const std::string& folder, int rank, int restart) {
  std::string text;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with(flight_record_prefix(rank, restart))) continue;
    try {
      const std::string file = InputFile("launch", entry.path()).text();
      const std::string_view start = "# group '";
      const size_t found = file.find(start);
      // Of a rank that threw an error of its own, that error says more than its last operation.
      if (found == file.npos || file.find(kRankThrew) != file.npos) continue;
      const size_t name = found + start.size();
      std::vector<std::string_view> lines;
      for (const std::string_view line : split(file, '\n')) {
        if (!line.starts_with('#')) lines.push_back(line);
      }
      text +=
          str("file ", entry.path().string(), "\ngroup ", file.substr(name, file.find("', rank ", name) - name), "\n");
      for (size_t i = lines.size() - std::min(lines.size(), kNumLines); i < lines.size(); ++i) {
        text += str(lines[i], "\n");
      }
    } catch (const IoError&) {  // removed or replaced
    }
    if (text.size() > kMaxBytes) break;
  }
  return text;
}

std::string describe_first_difference(const std::vector<std::string>& records) {
  for (const auto& [group, members] : parse(records)) {
    const std::string difference = describe_difference(group, members);
    if (!difference.empty()) return difference;
  }
  return "";
}

}}}  // namespace tandem::v0::distributed
