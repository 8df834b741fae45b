#include <tandem/tests/benchmarks/step_counts.h>

#include <sys/resource.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tests/support/allocations.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing {

namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// The innermost other span around the event; null if there is none.
const TraceEvent* enclosing(const TraceEvent& event, const std::vector<TraceEvent>& events) {
  const TraceEvent* found = nullptr;
  for (const TraceEvent& e : events) {
    if (&e == &event || e.category == "algorithm" || e.rank != event.rank || e.thread != event.thread) continue;
    if (e.begin_ns > event.begin_ns || e.end_ns < event.end_ns) continue;
    if (found == nullptr || e.end_ns - e.begin_ns < found->end_ns - found->begin_ns) found = &e;
  }
  return found;
}

std::map<std::string, int64_t> parse(const std::string& table) {
  std::map<std::string, int64_t> counts;
  std::istringstream entries(table);
  for (std::string entry; std::getline(entries >> std::ws, entry, ';');) {
    const size_t end = entry.rfind(' ');
    counts[entry.substr(0, end)] = std::stoll(entry.substr(end));
  }
  return counts;
}

/// The table, in lines of at most 120 columns.
std::string table_of(const std::vector<Count>& counts) {
  std::string table;
  size_t line = 0;
  for (const auto& [name, value] : counts) {
    const std::string entry = name + ' ' + std::to_string(value) + ';';
    const bool fits = line + 1 + entry.size() <= 120;
    table += line == 0 ? "" : fits ? " " : "\n";
    line = line == 0 || !fits ? entry.size() : line + 1 + entry.size();
    table += entry;
  }
  return table + '\n';
}

}  // namespace

void limit_data(benchmarks::TrainingCase& training, int64_t batch, int64_t length) {
  training.input = training.input.slice(0, 0, batch);
  int64_t num_rows = batch;
  if (training.input.dim() == 2) {
    training.input = training.input.slice(1, 0, length);
    num_rows *= length;
  }
  training.input = training.input.contiguous();
  training.target = training.target.slice(0, 0, num_rows).contiguous();
}

std::vector<Count> count_step(const std::function<void()>& step, Device device) {
  constexpr int kWarmup = 3;  // optimizer state, gradients, caches
  for (int i = 0; i < kWarmup; ++i) step();
  reset_peak_memory(device);
  const MemoryStats before = memory_stats(device);
  const int64_t blocks = block_allocations(), system = system_allocations(), heap = heap_allocations();
  step();
  const int64_t heap_after = heap_allocations() - heap;
  const MemoryStats after = memory_stats(device);
  std::vector<Count> counts;
  counts.push_back({"heap allocations", heap_after});
  counts.push_back({"blocks", block_allocations() - blocks});
  counts.push_back({"system allocations", system_allocations() - system});
  counts.push_back({"peak bytes", after.peak_allocated - before.allocated});
  EXPECT_EQ(after.allocated, before.allocated) << "a step keeps memory";
  start_trace();
  step();
  for (Count& count : trace_counts(stop_trace())) counts.push_back(std::move(count));
  return counts;
}

int64_t count_page_faults(const std::function<void()>& step) {
  constexpr int kMaxSteps = 20;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kMaxSteps && least > 0; ++i) {
    const int64_t before = page_faults();
    step();
    least = std::min(least, page_faults() - before);
  }
  return least;
}

std::vector<Count> trace_counts(const std::vector<TraceEvent>& events) {
  std::map<std::string, int64_t> spans, algorithms;
  for (const TraceEvent& event : events) {
    const std::string name = event.category + " " + event.name;
    if (event.category == "op" || event.category == "backward" || event.category == "copy") ++spans[name];
    if (event.category == "copy") spans[name + ", bytes"] += event.num_bytes;
    if (event.category != "algorithm") continue;
    const TraceEvent* const around = event.begin_ns == event.end_ns ? nullptr : enclosing(event, events);
    ++algorithms[around == nullptr ? name : name + " in " + around->category + " " + around->name];
  }
  std::vector<Count> counts;
  for (const auto& table : {spans, algorithms}) {
    for (const auto& [name, value] : table) counts.push_back({name, value});
  }
  return counts;
}

void expect_counts(const std::string& title, const std::string& table, const std::vector<Count>& counts) {
  const std::map<std::string, int64_t> expected = parse(table);
  std::map<std::string, int64_t> actual;
  for (const auto& [name, value] : counts) actual[name] = value;
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (const auto& [name, value] : expected) rows[name] = {std::to_string(value), "none"};
  for (const auto& [name, value] : actual) {
    auto& row = rows.try_emplace(name, "none", "none").first->second;
    row.second = std::to_string(value);
  }
  std::erase_if(rows, [](const auto& row) { return row.second.first == row.second.second; });
  if (rows.empty()) return;

  std::ostringstream text;
  const auto line = [&](const std::string& name, const std::string& a, const std::string& b) {
    text << "  " << name << std::string(std::max<size_t>(56, name.size()) - name.size(), ' ');
    text << std::string(std::max<size_t>(12, a.size()) - a.size(), ' ') << a;
    text << std::string(std::max<size_t>(12, b.size()) - b.size(), ' ') << b << '\n';
  };
  text << title << ": the counts of a step have changed\n";
  line("count", "expected", "actual");
  for (const auto& [name, values] : rows) line(name, values.first, values.second);
  text << "If this is intended, the table of " << title << " in the test is now\n\n" << table_of(counts);
  ADD_FAILURE() << text.str();
}

}  // namespace tandem::testing
