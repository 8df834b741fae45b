#include <tandem/distributed/object_collectives.h>

#include <algorithm>
#include <utility>

#include <tandem/distributed/init.h>
#include <tandem/io/state_file.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

ProcessGroup& group_or_default(const std::shared_ptr<ProcessGroup>& group) { return group ? *group : *default_group(); }

/// `options` with a name that says what the collective transfers.
CollectiveOptions named(const char* what, CollectiveOptions options) {
  options.name = options.name.empty() ? what : str(what, " ", options.name);
  return options;
}

Tensor to_tensor(std::string_view bytes) {
  Tensor tensor = empty({static_cast<int64_t>(bytes.size())}, {kUInt8});
  std::copy(bytes.begin(), bytes.end(), tensor.data<uint8_t>());
  return tensor;
}

std::string text_of(const Tensor& bytes) {
  const uint8_t* data = bytes.data<uint8_t>();
  return {data, data + bytes.numel()};
}

void check_size(const char* op, const ProcessGroup& group, int rank, int64_t size) {
  TANDEM_CHECK(ValueError, size <= kMaxObjectBytes, op, ": the object of rank ",
               group.ranks()[static_cast<size_t>(rank)], " has ", size, " bytes, expected at most ", kMaxObjectBytes,
               "; send its tensors by their own collectives, or write it to a file");
}

constexpr const char* kString = "string";
constexpr const char* kState = "state";

void broadcast_bytes(const char* what, std::string& bytes, int root, ProcessGroup& group,
                     const CollectiveOptions& options) {
  const Tensor size = from_vector<int64_t>({static_cast<int64_t>(bytes.size())}, {1});
  group.broadcast(size, root, named(what, options));
  check_size("broadcast_object", group, root, size.item<int64_t>());
  const Tensor tensor = group.rank() == root ? to_tensor(bytes) : empty({size.item<int64_t>()}, {kUInt8});
  group.broadcast(tensor, root, named(what, options));
  if (group.rank() != root) bytes = text_of(tensor);
}

/// Gathers to all ranks, or to `root` if it is not negative.
std::vector<std::string> gather_bytes(const char* op, const char* what, std::string_view bytes, int root,
                                      ProcessGroup& group, const CollectiveOptions& options) {
  const Tensor sizes = empty({group.size(), 1}, {kInt64});
  group.all_gather(sizes, from_vector<int64_t>({static_cast<int64_t>(bytes.size())}, {1}), named(what, options));
  std::vector<Tensor> outputs;
  for (const int64_t size : sizes.to_vector<int64_t>()) {
    check_size(op, group, static_cast<int>(outputs.size()), size);
    outputs.push_back(empty({root < 0 || group.rank() == root ? size : 0}, {kUInt8}));
  }
  if (root < 0) {
    group.all_gather(outputs, to_tensor(bytes), named(what, options));
  } else {
    // An all_to_all in which only root receives, because `gather` would need tensors of equal sizes.
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < group.size(); ++rank) inputs.push_back(rank == root ? to_tensor(bytes) : to_tensor(""));
    group.all_to_all(outputs, inputs, named(what, options));
    if (group.rank() != root) return {};
  }
  std::vector<std::string> objects;
  for (const Tensor& output : outputs) objects.push_back(text_of(output));
  return objects;
}

void check_root(const ProcessGroup& group, int root) {
  TANDEM_CHECK(ValueError, 0 <= root && root < group.size(), "gather_object: root ", root, " is not in [0, ",
               group.size(), ")");
}

std::vector<State> to_states(const ProcessGroup& group, const std::vector<std::string>& objects) {
  std::vector<State> states;
  for (const std::string& bytes : objects)
    states.push_back(io::state_from_bytes(bytes, str("state of rank ", group.ranks()[states.size()])));
  return states;
}

}  // namespace

void broadcast_object(std::string& object, int root, const std::shared_ptr<ProcessGroup>& group,
                      CollectiveOptions options) {
  broadcast_bytes(kString, object, root, group_or_default(group), options);
}

void broadcast_object(State& object, int root, const std::shared_ptr<ProcessGroup>& group, CollectiveOptions options) {
  ProcessGroup& members = group_or_default(group);
  std::string bytes = members.rank() == root ? io::state_to_bytes(object) : std::string();
  broadcast_bytes(kState, bytes, root, members, options);
  if (members.rank() != root)
    object = io::state_from_bytes(bytes, str("state of rank ", members.ranks()[static_cast<size_t>(root)]));
}

std::vector<std::string> all_gather_object(std::string_view object, const std::shared_ptr<ProcessGroup>& group,
                                           CollectiveOptions options) {
  return gather_bytes("all_gather_object", kString, object, -1, group_or_default(group), options);
}

std::vector<State> all_gather_object(const State& object, const std::shared_ptr<ProcessGroup>& group,
                                     CollectiveOptions options) {
  ProcessGroup& members = group_or_default(group);
  return to_states(members,
                   gather_bytes("all_gather_object", kState, io::state_to_bytes(object), -1, members, options));
}

std::vector<std::string> gather_object(std::string_view object, int root, const std::shared_ptr<ProcessGroup>& group,
                                       CollectiveOptions options) {
  ProcessGroup& members = group_or_default(group);
  check_root(members, root);
  return gather_bytes("gather_object", kString, object, root, members, options);
}

std::vector<State> gather_object(const State& object, int root, const std::shared_ptr<ProcessGroup>& group,
                                 CollectiveOptions options) {
  ProcessGroup& members = group_or_default(group);
  check_root(members, root);
  return to_states(members, gather_bytes("gather_object", kState, io::state_to_bytes(object), root, members, options));
}

}}}  // namespace tandem::v0::distributed
