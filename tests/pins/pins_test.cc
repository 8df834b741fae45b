// Hashes of results whose bits must not change: initial values, dropout, collectives and data-parallel training. They
// are in pins.txt; `./bazelw run //tests/pins:pins_test -- --write $PWD/tests/pins/pins.txt` writes that file.
#include <cstdio>

#include <tandem/tandem.h>
#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::DType;
using td::Tensor;
using td::distributed::ProcessGroup;
using td::distributed::ReduceOp;

namespace {

constexpr const char* kFile = "tests/pins/pins.txt";
std::string written;  // path given to --write

/// FNV-1a, 32 bits.
class Hash {
 public:
  void add(const Tensor& tensor) {
    const Tensor dense = tensor.detach().contiguous();
    const auto* bytes = reinterpret_cast<const uint8_t*>(dense.data_ptr());
    for (int64_t i = 0; i < dense.num_bytes(); ++i) add_byte(bytes[i]);
  }
  void add(const std::vector<Hash>& hashes) {
    for (const Hash& hash : hashes) {
      for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<uint8_t>(hash.value_ >> shift));
    }
  }
  std::string text() const {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", value_);
    return text;
  }

 private:
  void add_byte(uint8_t byte) { value_ = (value_ ^ byte) * 16777619u; }
  uint32_t value_ = 2166136261u;
};

/// The lines of the file: hashes by name.
const std::map<std::string, std::string>& pinned() {
  static const auto* const lines = [] {
    auto* const result = new std::map<std::string, std::string>;
    std::istringstream file(td::testing::read_file(kFile));
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(": ");
      if (line[0] != '#' && colon != std::string::npos) (*result)[line.substr(0, colon)] = line.substr(colon + 2);
    }
    return result;
  }();
  return *lines;
}

std::map<std::string, std::string> computed;

void pin(const std::string& name, const std::vector<Hash>& hashes) {
  std::string& line = computed[name];
  for (const Hash& hash : hashes) line += (line.empty() ? "" : " ") + hash.text();
  if (!written.empty()) return;
  const auto found = pinned().find(name);
  EXPECT_EQ(line, found == pinned().end() ? "(no line in pins.txt)" : found->second) << "pin '" << name << "'";
}

Tensor uniform(const td::Shape& shape, uint64_t seed) {
  td::Generator generator(seed);
  return td::rand(shape, {td::kFloat64}, &generator);
}

/// What a rank contributes. Large floating-point values cancel in many sums, whose last bits then depend on the order.
Tensor contribution(const td::Shape& shape, DType dtype, int rank) {
  std::vector<double> all = uniform(shape, static_cast<uint64_t>(rank)).to_vector<double>();
  for (double& x : all) {
    if (dtype == td::kBool) {
      x = x < 0.5;
    } else if (!td::is_floating_point(dtype)) {
      x = std::floor(x * 64);
    } else {
      x = x < 0.25 ? -0x1p15 : x < 0.5 ? 0x1p15 : x - 0.75;
    }
  }
  return td::from_vector(all, shape).to(dtype);
}

struct Layout {
  const char* name;
  const char* backend;
  const char* hosts;  ///< one letter per rank
};
constexpr Layout kLayouts[] = {{"shm", "shm", "aaaaa"}, {"gloo", "gloo", "aaaaa"}, {"two hosts", "auto", "ababb"}};

/// The hash over the hashes that f(rank, group) returns.
Hash run_ranks(int num_ranks, const Layout& layout,
               const std::function<Hash(int, const std::shared_ptr<ProcessGroup>&)>& f) {
  std::vector<Hash> hashes(static_cast<size_t>(num_ranks));
  const auto store = td::distributed::make_memory_store();
  td::distributed::run_threads(num_ranks, [&](td::distributed::Context& context) {
    const int rank = context.rank();
    hashes[static_cast<size_t>(rank)] = f(rank, ProcessGroup::create({.store = store,
                                                                      .rank = rank,
                                                                      .world_size = num_ranks,
                                                                      .name = "pins",
                                                                      .thread_ranks = true,
                                                                      .backend = layout.backend,
                                                                      .host_id = std::string(1, layout.hosts[rank])}));
  });
  Hash hash;
  hash.add(hashes);
  return hash;
}

TEST(Pins, InitialValuesOfLayers) {
  for (const td::testing::LayerCase& layer : td::testing::all_layer_cases()) {
    td::manual_seed(1);
    const auto module = layer.make();
    if (module->parameters().empty()) continue;
    Hash hash;
    for (const Tensor& parameter : module->parameters()) hash.add(parameter);
    pin("initial " + layer.name, {hash});
  }
}

TEST(Pins, InitialValuesOfFunctions) {
  using Init = std::function<void(const Tensor&)>;
  const std::map<std::string, Init> functions = {
      {"uniform_", [](const Tensor& t) { td::nn::init::uniform_(t, -1, 2); }},
      {"normal_", [](const Tensor& t) { td::nn::init::normal_(t, 0.5, 2); }},
      {"trunc_normal_", [](const Tensor& t) { td::nn::init::trunc_normal_(t); }},
      {"xavier_uniform_", [](const Tensor& t) { td::nn::init::xavier_uniform_(t); }},
      {"xavier_normal_", [](const Tensor& t) { td::nn::init::xavier_normal_(t); }},
      {"kaiming_uniform_", [](const Tensor& t) { td::nn::init::kaiming_uniform_(t); }},
      {"kaiming_normal_", [](const Tensor& t) { td::nn::init::kaiming_normal_(t); }},
      {"orthogonal_", [](const Tensor& t) { td::nn::init::orthogonal_(t); }},
      {"sparse_", [](const Tensor& t) { td::nn::init::sparse_(t, 0.3); }}};
  for (const auto& [name, function] : functions) {
    std::vector<Hash> hashes;
    for (const DType dtype : {td::kFloat32, td::kBFloat16}) {
      td::manual_seed(1);
      const Tensor tensor = td::zeros({12, 7}, {dtype});
      function(tensor);
      hashes.emplace_back().add(tensor);
    }
    pin("initial " + name, hashes);
  }
}

TEST(Pins, Dropout) {
  const std::map<std::string, std::function<Tensor(DType)>> masks = {
      {"dropout", [](DType dtype) { return td::dropout(td::ones({999}, {dtype}), 0.3); }},
      {"dropout2d", [](DType dtype) {
         return td::dropout2d(td::ones({9, 37, 2, 1}, {dtype}), 0.3);
       }}};
  for (const auto& [name, mask] : masks) {
    std::vector<Hash> hashes(3);
    td::distributed::run_threads(3, [&, &make = mask](td::distributed::Context& context) {
      td::manual_seed(1);
      for (const DType dtype : {td::kFloat16, td::kBFloat16, td::kFloat32, td::kFloat64}) {
        hashes[static_cast<size_t>(context.rank())].add(make(dtype));
      }
    });
    pin(name, hashes);
  }
}

/// The results of one rank.
Hash collectives(int rank, ProcessGroup& group, DType dtype) {
  constexpr int64_t kCount = 301;
  Hash hash;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                            ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    if (td::is_floating_point(dtype) ? op >= ReduceOp::kBitAnd : op == ReduceOp::kAvg) continue;
    const Tensor own = contribution({group.size(), kCount}, dtype, rank);
    const Tensor part = td::empty({kCount}, {dtype});
    group.reduce_scatter(part, own, op);
    hash.add(part);
    const Tensor at_root = own.clone();
    group.reduce(at_root, group.size() - 1, op);
    hash.add(at_root);
    group.all_reduce(own, op);
    hash.add(own);
  }
  const Tensor own = contribution({group.size(), kCount}, dtype, rank);
  const Tensor exchanged = td::empty_like(own);
  group.all_to_all(exchanged, own);
  hash.add(exchanged);
  group.all_gather(exchanged, own[rank]);
  hash.add(exchanged);
  group.broadcast(own, 0);
  hash.add(own);
  return hash;
}

TEST(Pins, Collectives) {
  for (const Layout& layout : kLayouts) {
    std::map<DType, std::vector<Hash>> hashes;
    for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
      for (const DType dtype : {td::kBool, td::kUInt8, td::kInt8, td::kInt16, td::kInt32, td::kInt64, td::kFloat16,
                                td::kBFloat16, td::kFloat32, td::kFloat64}) {
        hashes[dtype].push_back(run_ranks(num_ranks, layout, [&](int rank, const std::shared_ptr<ProcessGroup>& group) {
          return collectives(rank, *group, dtype);
        }));
      }
    }
    for (const auto& [dtype, of_dtype] : hashes) pin(td::str("collectives ", dtype, ", ", layout.name), of_dtype);
  }
}

struct Net : td::nn::Layer {
  td::nn::Conv2d& conv = add<td::nn::Conv2d>("conv", 2, 4, 3);
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 64, 12);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 12, 3);
  Tensor forward(const Tensor& x) override { return fc2(td::relu(fc1(td::relu(conv(x)).flatten(1)))); }
};

/// The weights after 50 steps.
Hash train(int rank, const std::shared_ptr<ProcessGroup>& group, const td::distributed::CommHooks& hooks, DType dtype) {
  td::manual_seed(1);
  Net net;
  net.to(dtype);
  td::DistributedDataParallel ddp(net, group, {.buckets = {512, 1024, 512}, .hooks = hooks});
  td::optim::SGD sgd(net.parameters(), {.lr = 0.02, .momentum = 0.9});
  for (uint64_t step = 0; step < 50; ++step) {
    const Tensor x = uniform({4, 2, 6, 6}, 100 * step + static_cast<uint64_t>(rank)).to(dtype);
    sgd.zero_grad();
    td::mse_loss(ddp(x), x.flatten(1).narrow(1, 0, 3)).backward();
    sgd.step();
  }
  Hash hash;
  for (const Tensor& parameter : net.parameters()) hash.add(parameter);
  return hash;
}

TEST(Pins, DataParallelTraining) {
  using namespace td::distributed;
  const auto low_rank = [] { return power_sgd({.start_step = 5}); };
  const std::vector<std::tuple<std::string, std::function<CommHooks()>, DType>> chains = {
      {"no hook", [] { return CommHooks{}; }, td::kFloat32},
      {"fp16_compress", [] { return CommHooks{fp16_compress()}; }, td::kFloat32},
      {"bf16_compress", [] { return CommHooks{bf16_compress()}; }, td::kFloat32},
      {"fp32_upcast", [] { return CommHooks{fp32_upcast()}; }, td::kBFloat16},
      {"power_sgd", [&] { return CommHooks{low_rank()}; }, td::kFloat32},
      {"power_sgd and bf16_compress",
       [&] {
         return CommHooks{low_rank(), bf16_compress()};
       },
       td::kFloat32}};
  for (const auto& [name, hooks, dtype] : chains) {
    for (const Layout& layout : kLayouts) {
      std::vector<Hash> hashes;
      for (const int num_ranks : {2, 3, 4}) {
        hashes.push_back(run_ranks(num_ranks, layout, [&, &make = hooks, type = dtype](int rank, const auto& group) {
          return train(rank, group, make(), type);
        }));
      }
      pin(td::str("ddp ", name, ", ", layout.name), hashes);
    }
  }
}

TEST(Pins, NoOtherLines) {
  if (!written.empty()) return;
  for (const auto& [name, line] : pinned())
    EXPECT_TRUE(computed.contains(name)) << "pin '" << name << "' is not computed";
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--write") written = argv[2];
  const int status = RUN_ALL_TESTS();
  if (written.empty() || status != 0) return status;
  const std::string before = td::testing::read_file(kFile);
  std::string text =
      before.substr(0, before.rfind("\n#") == std::string::npos ? 0 : before.find('\n', before.rfind("\n#") + 1) + 1);
  for (const auto& [name, line] : computed) text += name + ": " + line + "\n";
  td::testing::write_file(written, text);
  return 0;
}
