#include <tandem/profile/trace_file.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace profile {

namespace {

using Json = nlohmann::ordered_json;

std::string thread_name(int thread) {
  if (thread == 0) return "compute";
  if (thread == 255) return "collectives on the GPU";
  if (thread == 254) return "steps on the GPU";
  if (thread >= 128) return str("device ", thread - 127);  // of run_concurrently
  if (thread >= 64) return str("copy worker ", thread - 63);
  return thread == 1 ? "communication" : str("loader ", thread - 1);
}

Json metadata(const char* kind, int rank, int thread, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string to_chrome_json(const std::vector<TraceEvent>& events) {
  int64_t start = events.empty() ? 0 : events.front().begin_ns;
  std::set<std::pair<int, int>> tracks;
  std::set<int> ranks;
  for (const TraceEvent& event : events) {
    start = std::min(start, event.begin_ns);
    tracks.emplace(event.rank, event.thread);
    ranks.insert(event.rank);
  }
  Json list = Json::array();
  for (const int rank : ranks) list.push_back(metadata("process_name", rank, 0, str("rank ", rank)));
  for (const auto& [rank, thread] : tracks) list.push_back(metadata("thread_name", rank, thread, thread_name(thread)));
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  for (const TraceEvent& event : events) {
    const bool instant = event.end_ns == event.begin_ns;
    Json entry = {
        {"name", event.name}, {"cat", event.category}, {"ph", instant ? "i" : "X"}, {"ts", us(event.begin_ns - start)}};
    if (instant) {
      entry["s"] = "t";
    } else {
      entry["dur"] = us(event.end_ns - event.begin_ns);
    }
    entry["pid"] = event.rank;
    entry["tid"] = event.thread;
    if (event.num_bytes != 0) entry["args"]["bytes"] = event.num_bytes;
    if (event.num_flops != 0) entry["args"]["flops"] = event.num_flops;
    if (!event.module.empty()) entry["args"]["module"] = event.module;
    list.push_back(std::move(entry));
  }
  // One event per line, for people and for text tools.
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t i = 0; i < list.size(); ++i) {
    text += list[i].dump(-1, ' ', true, Json::error_handler_t::replace) + (i + 1 < list.size() ? ",\n" : "\n");
  }
  return text + "]}\n";
}

void write_chrome_trace(const std::string& path, const std::vector<TraceEvent>& events) {
  write_file("write_chrome_trace", path, to_chrome_json(events));
}

}}}  // namespace tandem::v0::profile
