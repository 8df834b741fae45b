#include <tandem/distributed/gather_trace.h>

#include <algorithm>
#include <cstring>
#include <string>

#include <tandem/distributed/group/process_group_access.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

void put(std::string& out, int64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }
void put(std::string& out, const std::string& text) {
  put(out, static_cast<int64_t>(text.size()));
  out += text;
}

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool at_end() const { return data_ == end_; }
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, data_, sizeof value);
    data_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = static_cast<size_t>(number());
    std::string result(reinterpret_cast<const char*>(data_), size);
    data_ += size;
    return result;
  }

 private:
  const uint8_t* data_;
  const uint8_t* end_;
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
  const Tensor sizes = empty({group.size(), 1}, {kInt64});
  group.all_gather(sizes, from_vector<int64_t>({static_cast<int64_t>(mine.size())}, {1}),
                   {.name = "sizes of the traces"});
  const std::vector<int64_t> counts = sizes.to_vector<int64_t>();
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  mine.resize(static_cast<size_t>(longest));
  const Tensor all = empty({group.size(), longest}, {kUInt8});
  group.all_gather(all, from_vector(std::vector<uint8_t>(mine.begin(), mine.end()), {longest}), {.name = "traces"});
  std::vector<TraceEvent> events;
  if (group.rank() != 0) return events;
  for (size_t r = 0; r < counts.size(); ++r) {
    Reader reader(all.data<uint8_t>() + static_cast<int64_t>(r) * longest, static_cast<size_t>(counts[r]));
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
