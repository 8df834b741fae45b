#include <tandem/distributed/gather_trace.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/object_collectives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

void put(std::string& out, int64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }
void put(std::string& out, const std::string& text) {
  put(out, static_cast<int64_t>(text.size()));
  out += text;
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : data_(bytes.data()), end_(data_ + bytes.size()) {}
  bool at_end() const { return data_ == end_; }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, data_, sizeof value);
    data_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = static_cast<size_t>(number());
    std::string result(data_, size);
    data_ += size;
    return result;
  }

 private:
  const char* data_;
  const char* end_;
};

}  // namespace

std::vector<TraceEvent> gather_trace(ProcessGroup& group) {
  ProcessGroupAccess::finish_gpu(group);
  group.barrier({.name = "end of trace"});
  std::string mine;
  for (const TraceEvent& event : stop_trace()) {
    put(mine, event.name);
    put(mine, event.category);
    for (const int64_t value :
         {int64_t{event.rank}, int64_t{event.thread}, event.begin_ns, event.end_ns, event.num_bytes, event.num_flops}) {
      put(mine, value);
    }
    put(mine, event.module);
  }
  const std::shared_ptr<ProcessGroup> not_owned(std::shared_ptr<void>(), &group);
  std::vector<TraceEvent> events;
  for (const std::string& trace : gather_object(mine, 0, not_owned, {.name = "of trace events"})) {
    Reader reader(trace);
    while (!reader.at_end()) {
      TraceEvent event;
      event.name = reader.text();
      event.category = reader.text();
      event.rank = static_cast<int>(reader.number());
      event.thread = static_cast<int>(reader.number());
      event.begin_ns = reader.number();
      event.end_ns = reader.number();
      event.num_bytes = reader.number();
      event.num_flops = reader.number();
      event.module = reader.text();
      events.push_back(std::move(event));
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

}}}  // namespace tandem::v0::distributed
