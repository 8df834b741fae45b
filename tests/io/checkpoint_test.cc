#include <tandem/io/checkpoint.h>

#include <sys/stat.h>

#include <barrier>
#include <numeric>

#include <tandem/base/rank_context.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tensor/state_reader.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::State;
using td::io::Checkpointer;
using td::io::CheckpointState;
using td::io::load_checkpoint;
using td::testing::error_text;
using td::testing::read_file;
using td::testing::write_file;

namespace {

/// A state that depends on `value` and `rank`.
CheckpointState state_of(int64_t value, int rank = 0) {
  CheckpointState state;
  state.model.set("fc.weight", td::full({7}, value, {td::kInt64}));
  state.shared.set("lr", static_cast<double>(value) / 8);
  state.shared.set("state.0.momentum_buffer", td::full({7}, value + 1, {td::kInt64}));
  state.rank.set("generator.offset", value);
  state.rank.set("rank", int64_t{rank});
  return state;
}

/// The `value` of state_of. Expects that all parts have it.
int64_t value_of(const CheckpointState& state) {
  const auto value = state.rank.get<int64_t>("generator.offset");
  EXPECT_EQ(state.model.get<td::Tensor>("fc.weight").to_vector<int64_t>(), std::vector<int64_t>(7, value));
  EXPECT_EQ(state.shared.get<double>("lr"), static_cast<double>(value) / 8);
  EXPECT_EQ(state.shared.get<td::Tensor>("state.0.momentum_buffer").to_vector<int64_t>(),
            std::vector<int64_t>(7, value + 1));
  return value;
}

/// Saves, or begins to save and waits.
bool save(Checkpointer& checkpointer, bool async, int64_t step, const CheckpointState& state) {
  if (!async) return checkpointer.save(step, state);
  checkpointer.async_save(step, state);
  return checkpointer.wait();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Flips one bit of a file.
void flip_bit(const std::string& path, size_t byte) {
  std::string bytes = read_file(path);
  bytes.at(byte) = static_cast<char>(bytes.at(byte) ^ 1);
  write_file(path, bytes);
}

class Checkpoint : public ::testing::Test {
 protected:
  /// The output of f to stderr, without times, with the folder replaced by DIR.
  template <class F>
  std::string log_of(F&& f) const {
    ::testing::internal::CaptureStderr();
    f();
    std::string lines;
    std::string line;
    for (const char c : folder_.shortened(::testing::internal::GetCapturedStderr())) {
      line += c;
      if (c != '\n') continue;
      const size_t level = line.find("warning ");
      lines += level == std::string::npos ? line : line.substr(level);
      line.clear();
    }
    return lines;
  }

  const td::testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "run";
};

TEST_F(Checkpoint, SavedStateIsLoadedUnchanged) {
  Checkpointer checkpointer(path_);
  EXPECT_FALSE(checkpointer.load_latest().has_value());
  EXPECT_TRUE(checkpointer.save(120, state_of(5)));
  const auto loaded = checkpointer.load_latest();
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->step, 120);
  EXPECT_EQ(loaded->world_size, 1);
  EXPECT_EQ(value_of(loaded->state), 5);
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"latest", "lock", "step-00000120"}));
  EXPECT_EQ(
      names_in(path_ + "/step-00000120"),
      (std::vector<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors", "rank-0.safetensors"}));
  EXPECT_EQ(read_file(path_ + "/latest"), "step-00000120\n");
}

TEST_F(Checkpoint, EmptyTensorsAreNotReportedAsDamaged) {
  CheckpointState state = state_of(5);
  state.rank.set("nothing", td::zeros({0}));
  state.rank.set("something", td::full({3}, 2.0));
  Checkpointer checkpointer(folder_.path());
  ASSERT_TRUE(checkpointer.save(7, state));
  const auto loaded = checkpointer.load_latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(value_of(loaded->state), 5);
  EXPECT_EQ(loaded->state.rank.get<td::Tensor>("nothing").shape(), td::Shape({0}));
}

TEST_F(Checkpoint, ManifestListsFilesSizesAndChecksums) {
  Checkpointer checkpointer(path_);
  checkpointer.save(3, state_of(5));
  const std::string folder = path_ + "/step-00000003/";
  const auto size = [&](const char* name) { return std::to_string(fs::file_size(folder + name)); };
  const std::string manifest = read_file(folder + "manifest.json");
  EXPECT_TRUE(manifest.starts_with("{\n  \"format\": 1,\n  \"library_version\": \"")) << manifest;
  EXPECT_NE(manifest.find("\",\n  \"step\": 3,\n  \"sequence\": 0,\n  \"world_size\": 1,\n  \"files\": {\n"
                          "    \"model.safetensors\": {\"bytes\": " +
                          size("model.safetensors") + ", \"crc32\": \""),
            std::string::npos)
      << manifest;
  EXPECT_NE(
      manifest.find("\"},\n    \"rank-0.safetensors\": {\"bytes\": " + size("rank-0.safetensors") + ", \"crc32\": \""),
      std::string::npos)
      << manifest;
}

TEST_F(Checkpoint, KeepOptionLimitsStoredCheckpoints) {
  Checkpointer checkpointer(path_, {.keep = 3});
  for (int64_t step = 1; step <= 5; ++step) EXPECT_TRUE(checkpointer.save(10 * step, state_of(step)));
  EXPECT_EQ(names_in(path_),
            (std::vector<std::string>{"latest", "lock", "step-00000030", "step-00000040", "step-00000050"}));
  EXPECT_EQ(value_of(checkpointer.load_latest()->state), 5);
}

TEST_F(Checkpoint, LastSavedCheckpointIsNewestRegardlessOfStep) {
  Checkpointer checkpointer(path_);
  checkpointer.save(100, state_of(1));
  checkpointer.save(200, state_of(2));
  checkpointer.save(50, state_of(3));  // a new run in the same folder
  EXPECT_EQ(checkpointer.load_latest()->step, 50);
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"latest", "lock", "step-00000050", "step-00000200"}));
}

TEST_F(Checkpoint, SavingSameStepAgainReplacesCheckpoint) {
  Checkpointer checkpointer(path_);
  checkpointer.save(7, state_of(1));
  checkpointer.save(8, state_of(2));
  EXPECT_TRUE(checkpointer.save(8, state_of(3)));
  EXPECT_EQ(value_of(checkpointer.load_latest()->state), 3);
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"latest", "lock", "step-00000007", "step-00000008"}));
}

TEST_F(Checkpoint, AsyncSaveWritesTheStateOfItsCall) {
  const td::Tensor weight = td::full({7}, 3, {td::kInt64});
  CheckpointState state = state_of(3);
  state.model.set("fc.weight", weight);
  state.model.set("tied.weight", weight);
  Checkpointer checkpointer(path_);
  EXPECT_TRUE(checkpointer.wait());  // for nothing
  EXPECT_TRUE(checkpointer.save(1, state));
  checkpointer.async_save(2, state);
  td::primitives::fill(weight, 4);
  while (!checkpointer.is_written()) std::this_thread::yield();
  EXPECT_EQ(checkpointer.load_latest()->step, 1);
  EXPECT_TRUE(checkpointer.wait());
  EXPECT_TRUE(checkpointer.is_written());
  EXPECT_EQ(checkpointer.load_latest()->step, 2);
  EXPECT_EQ(value_of(checkpointer.load_latest()->state), 3);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "rank-0.safetensors"}) {
    EXPECT_EQ(read_file(path_ + "/step-00000002/" + name), read_file(path_ + "/step-00000001/" + name)) << name;
  }
}

TEST_F(Checkpoint, NextSaveCompletesAsyncSave) {
  Checkpointer checkpointer(path_, {.keep = 4});
  checkpointer.async_save(1, state_of(1));
  checkpointer.async_save(2, state_of(2));
  EXPECT_EQ(value_of(checkpointer.load_latest()->state), 1);
  EXPECT_TRUE(checkpointer.save(3, state_of(3)));
  EXPECT_EQ(names_in(path_),
            (std::vector<std::string>{"latest", "lock", "step-00000001", "step-00000002", "step-00000003"}));
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.is_directory()) {
      EXPECT_TRUE(fs::exists(entry.path() / "manifest.json")) << entry.path();
    }
  }
}

TEST_F(Checkpoint, AsyncSaveThatIsNotAwaitedIsIncomplete) {
  {
    Checkpointer checkpointer(path_);
    EXPECT_TRUE(checkpointer.save(1, state_of(1)));
    checkpointer.async_save(2, state_of(2));
  }
  EXPECT_EQ(names_in(path_ + "/step-00000002"),
            (std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "rank-0.safetensors"}));
  EXPECT_EQ(load_checkpoint(path_)->step, 1);
  const Checkpointer next(path_);
  EXPECT_FALSE(fs::exists(path_ + "/step-00000002"));
}

/// Runs f(rank, barrier) on `world_size` threads, each with the context of its rank.
template <class F>
void run_ranks(int world_size, F&& f) {
  std::barrier<> meeting(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      td::RankContext context;
      context.rank = rank;
      context.world_size = world_size;
      td::RankContext::Use use(context);
      f(rank, [&] { meeting.arrive_and_wait(); });
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Checkpoint, EachRankLoadsItsOwnFile) {
  for (const int world : {1, 2, 3, 4, 7}) {
    run_ranks(world, [&](int rank, const std::function<void()>& barrier) {
      Checkpointer checkpointer(path_, {.rank = rank, .world_size = world, .barrier = barrier});
      EXPECT_TRUE(checkpointer.save(world, state_of(world, rank)));
      const auto loaded = checkpointer.load_latest();
      ASSERT_TRUE(loaded.has_value());
      EXPECT_EQ(loaded->world_size, world);
      EXPECT_EQ(value_of(loaded->state), world);
      EXPECT_EQ(loaded->state.rank.get<int64_t>("rank"), rank);
      barrier();  // the next Checkpointers lock the folder again
    });
  }
  // Seven ranks saved; rank 7 loads the state of rank 0.
  EXPECT_EQ(load_checkpoint(path_, 6)->state.rank.get<int64_t>("rank"), 6);
  const auto loaded = load_checkpoint(path_, 7);
  EXPECT_EQ(loaded->state.rank.get<int64_t>("rank"), 0);
  EXPECT_EQ(td::io::load_rank_state(*loaded, 6).get<int64_t>("rank"), 6);
  EXPECT_ERROR(td::ValueError, td::io::load_rank_state(*loaded, 7), "load_rank_state: rank is 7, expected 0 to 6");
}

/// Elements of a tensor in pieces: element i is value + i.
td::Tensor numbers(int64_t value, int64_t begin, int64_t end) {
  const td::Tensor result = td::empty({end - begin}, {td::kInt64});
  std::iota(result.data<int64_t>(), result.data<int64_t>() + result.numel(), value + begin);
  return result;
}

const td::Shape kShapes[] = {{2}, {7}, {3, 5}, {}, {0, 4}, {40}};

/// state_of with optimizer tensors in pieces; ranks have 0 to all elements of a tensor, as in flat buffers.
CheckpointState state_in_pieces(int64_t value, int rank, int world) {
  CheckpointState state = state_of(value, rank);
  for (int64_t i = 0; i < std::ssize(kShapes); ++i) {
    const int64_t numel = num_elements(kShapes[i]);
    const auto cut = [&](int64_t r) { return std::clamp((value + i) % 3 * (numel / 4) + 5 * r, int64_t{0}, numel); };
    const int64_t begin = rank == 0 ? 0 : cut(rank), end = rank == world - 1 ? numel : cut(rank + 1);
    state.shared.set(td::str("state.", i + 1, ".m"), td::make_pieces(kShapes[i], begin, numbers(value, begin, end)));
  }
  return state;
}

/// Expects the states that all ranks made by state_in_pieces(value), when `world` ranks read them.
void expect_pieces(const CheckpointState& state, int64_t value, int world) {
  EXPECT_EQ(value_of(state), value);
  td::StateReader reader(state.shared);
  reader.read<double>("lr");
  reader.read_tensor("state.0.momentum_buffer", td::empty({7}, {td::kInt64}));
  for (int64_t i = 0; i < std::ssize(kShapes); ++i) {
    const int64_t numel = num_elements(kShapes[i]);
    for (int64_t rank = 0; rank < world; ++rank) {
      const int64_t begin = rank * numel / world, end = (rank + 1) * numel / world;
      const td::Tensor read = td::empty({end - begin}, {td::kInt64});
      copy_elements(reader.read_elements(td::str("state.", i + 1, ".m"), kShapes[i], td::kInt64, begin, end), read);
      EXPECT_EQ(read.to_vector<int64_t>(), numbers(value, begin, end).to_vector<int64_t>());
    }
  }
  reader.finish("all entries were read");
}

TEST_F(Checkpoint, PiecesOfAnyNumberOfRanksAreLoadedByAnyNumberOfRanks) {
  for (const int world : {1, 2, 3, 4, 8}) {
    run_ranks(world, [&](int rank, const std::function<void()>& barrier) {
      Checkpointer checkpointer(path_, {.rank = rank, .world_size = world, .barrier = barrier});
      EXPECT_TRUE(save(checkpointer, world % 2 == 0, world, state_in_pieces(world, rank, world)));
      barrier();  // the next Checkpointers lock the folder again
    });
    for (const int loading : {1, 2, 3, 4, 8}) expect_pieces(load_checkpoint(path_, loading - 1)->state, world, loading);
  }
  EXPECT_TRUE(fs::exists(path_ + "/step-00000008/pieces-7.safetensors"));
  // Without pieces there are no such files.
  EXPECT_TRUE(Checkpointer(path_).save(9, state_of(9)));
  EXPECT_FALSE(fs::exists(path_ + "/step-00000009/pieces-0.safetensors"));
  EXPECT_TRUE(read_file(path_ + "/step-00000009/manifest.json").starts_with("{\n  \"format\": 1,"));
}

TEST_F(Checkpoint, PiecesThatDoNotFitAreNotSaved) {
  const auto error = [&](const std::function<void(State & shared)>& change, int changed) {
    std::vector<std::string> errors(3);
    run_ranks(3, [&](int rank, const std::function<void()>& barrier) {
      Checkpointer checkpointer(path_, {.rank = rank, .world_size = 3, .barrier = barrier, .throw_on_failure = true});
      CheckpointState state = state_in_pieces(2, rank, 3);
      if (rank == changed) change(state.shared);
      errors[static_cast<size_t>(rank)] =
          folder_.shortened(error_text<td::IoError>([&] { checkpointer.save(2, state); }));
      barrier();
    });
    for (const int rank : {1, 2}) EXPECT_TRUE(errors[static_cast<size_t>(rank)].ends_with("manifest.json")) << rank;
    EXPECT_FALSE(load_checkpoint(path_).has_value());
    const std::string prefix = "the checkpoint of step 2 is not saved: Checkpointer: 'DIR/run/step-00000002': ";
    return errors[0].starts_with(prefix) ? errors[0].substr(prefix.size()) : errors[0];
  };
  const td::Tensor two = numbers(2, 0, 2);
  EXPECT_EQ(error([&](State& shared) { shared.set("state.6.m", td::make_pieces({40}, 14, two)); }, 1),
            "merge_pieces: 'shared.state.6.m': pieces [0:15] of rank 0 and [14:16] of rank 1 overlap");
  EXPECT_EQ(error([&](State& shared) { shared.set("state.3.m", two); }, 1),
            "merge_pieces: 'shared.state.3.m': rank 1 does not have this tensor");
  EXPECT_TRUE(error([&](State& shared) { shared = State(); }, 1)
                  .ends_with("cannot open 'DIR/run/step-00000002/pieces-1.safetensors': No such file or directory"));
}

TEST_F(Checkpoint, LeftoversOfDeadRunAreRemovedAtStart) {
  Checkpointer(path_).save(1, state_of(1));
  const std::string incomplete = path_ + "/step-00000002";
  fs::create_directory(incomplete);
  write_file(incomplete + "/model.safetensors", "whole");
  write_file(incomplete + "/optimizer.safetensors.tmp0", "half");
  write_file(path_ + "/latest.tmp0", "step-0000");
  write_file(path_ + "/notes.tmp0.txt", "another file");
  fs::create_directory(path_ + "/step-by-step");
  write_file(path_ + "/step-by-step/notes", "another file");
  const Checkpointer checkpointer(path_);
  EXPECT_EQ(names_in(path_),
            (std::vector<std::string>{"latest", "lock", "notes.tmp0.txt", "step-00000001", "step-by-step"}));
  EXPECT_EQ(checkpointer.load_latest()->step, 1);
}

TEST_F(Checkpoint, SecondRunInOneFolderIsRejected) {
  const Checkpointer first(path_);
  const std::string text = folder_.shortened(error_text<td::StateError>([&] { Checkpointer second(path_); }));
  EXPECT_TRUE(text.starts_with("Checkpointer: 'DIR/run' is in use by another run, process " + std::to_string(getpid()) +
                               " on "))
      << text;
  EXPECT_TRUE(text.ends_with("\n  wait until it ends, or choose another folder")) << text;
  EXPECT_FALSE(load_checkpoint(path_).has_value());  // loading does not lock
}

TEST_F(Checkpoint, DamagedCheckpointIsSkippedWithWarning) {
  Checkpointer checkpointer(path_);
  checkpointer.save(1, state_in_pieces(1, 0, 1));
  checkpointer.save(2, state_in_pieces(2, 0, 1));
  const std::string newest = path_ + "/step-00000002/";
  const td::testing::TemporaryFolder copies;
  fs::copy(newest, copies.path(), fs::copy_options::recursive);

  struct Damage {
    std::function<void()> apply;
    std::string text;
  };
  const std::vector<Damage> damages = {
      {[&] { flip_bit(newest + "model.safetensors", 100); },
       "'DIR/run/step-00000002/model.safetensors' is damaged: its checksum differs from the manifest's"},
      {[&] { fs::resize_file(newest + "optimizer.safetensors", 9); },
       "'DIR/run/step-00000002/optimizer.safetensors' has 9 bytes, expected " +
           std::to_string(fs::file_size(newest + "optimizer.safetensors")) + " by the manifest"},
      {[&] { flip_bit(newest + "pieces-0.safetensors", fs::file_size(newest + "pieces-0.safetensors") - 1); },
       "'DIR/run/step-00000002/pieces-0.safetensors' is damaged: its checksum differs from the manifest's"},
      {[&] { fs::remove(newest + "pieces-0.safetensors"); },
       "cannot open 'DIR/run/step-00000002/pieces-0.safetensors': No such file or directory"},
      {[&] { fs::remove(newest + "rank-0.safetensors"); },
       "cannot open 'DIR/run/step-00000002/rank-0.safetensors': No such file or directory"},
      {[&] { fs::resize_file(newest + "manifest.json", 0); },
       "'DIR/run/step-00000002/manifest.json': byte 0: the JSON ends too early"},
      {[&] { flip_bit(newest + "manifest.json", read_file(newest + "manifest.json").find("step\": 2") + 7); },
       "'DIR/run/step-00000002/manifest.json': byte 390: the manifest's checksum differs from its contents"}};
  for (const Damage& damage : damages) {
    damage.apply();
    std::optional<td::io::LoadedCheckpoint> loaded;
    EXPECT_EQ(log_of([&] { loaded = checkpointer.load_latest(); }),
              "warning skipping a checkpoint: Checkpointer: " + damage.text + "\n");
    ASSERT_TRUE(loaded.has_value());
    expect_pieces(loaded->state, 1, 3);
    fs::copy(copies.path(), newest, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(log_of([&] { EXPECT_EQ(checkpointer.load_latest()->step, 2); }), "");
}

TEST_F(Checkpoint, LoadingFailsWhenAllCheckpointsAreDamaged) {
  Checkpointer checkpointer(path_);
  checkpointer.save(1, state_of(1));
  checkpointer.save(2, state_of(2));
  flip_bit(path_ + "/step-00000001/rank-0.safetensors", 20);
  flip_bit(path_ + "/step-00000002/model.safetensors", 20);
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { checkpointer.load_latest(); })),
            "load_checkpoint: no checkpoint in 'DIR/run' can be loaded\n"
            "  Checkpointer: 'DIR/run/step-00000002/model.safetensors' is damaged: its checksum differs from the "
            "manifest's\n"
            "  Checkpointer: 'DIR/run/step-00000001/rank-0.safetensors' is damaged: its checksum differs from the "
            "manifest's");
}

TEST_F(Checkpoint, InaccessibleManifestIsAnErrorAndKept) {
  ASSERT_TRUE(Checkpointer(path_).save(1, state_of(1)));
  const std::string manifest = path_ + "/step-00000001/manifest.json";
  fs::rename(manifest, folder_ / "kept");
  fs::create_symlink("manifest.json", manifest);  // a loop
  const std::string reason =
      "Checkpointer: cannot access 'DIR/run/step-00000001/manifest.json': Too many levels of symbolic links";
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { load_checkpoint(path_); })),
            "load_checkpoint: no checkpoint in 'DIR/run' can be loaded\n  " + reason);
  bool saved = true;
  EXPECT_EQ(log_of([&] { saved = Checkpointer(path_).save(1, state_of(2)); }),
            "warning the checkpoint of step 1 is not saved: " + reason + "\n");
  EXPECT_FALSE(saved);
  fs::rename(folder_ / "kept", manifest);
  EXPECT_EQ(value_of(load_checkpoint(path_)->state), 1);
}

TEST_F(Checkpoint, UncreatableFolderWarnsOrThrows) {
  write_file(path_, "a file in the way");
  bool saved = true;
  EXPECT_EQ(log_of([&] { saved = Checkpointer(path_).save(3, state_of(1)); }),
            "warning the checkpoint of step 3 is not saved: Checkpointer: cannot create the folder 'DIR/run': Not a "
            "directory\n");
  EXPECT_FALSE(saved);
  EXPECT_EQ(folder_.shortened(
                error_text<td::IoError>([&] { Checkpointer(path_, {.throw_on_failure = true}).save(3, state_of(1)); })),
            "the checkpoint of step 3 is not saved: Checkpointer: cannot create the folder 'DIR/run': Not a directory");
  EXPECT_EQ(read_file(path_), "a file in the way");
}

TEST_F(Checkpoint, WriteFailureOnOneRankFailsAllRanks) {
  for (const auto& [fail, in_pieces, async] : {std::tuple(false, false, false),
                                               {true, false, false},
                                               {true, true, false},
                                               {false, false, true},
                                               {true, true, true}}) {
    const std::string obstructed =
        path_ + "/step-00000002/" + (in_pieces ? "pieces-1.safetensors" : "rank-1.safetensors");
    const auto saved = [&](int64_t step, int rank) {
      return in_pieces ? state_in_pieces(step, rank, 3) : state_of(step, rank);
    };
    std::vector<std::string> errors(3);
    const std::string log = log_of([&] {
      run_ranks(3, [&, is_async = async](int rank, const std::function<void()>& barrier) {
        int num_barriers = 0;
        const auto obstruct = [&] {
          barrier();
          // The fifth barrier: rank 0 has created the folder of the second checkpoint.
          if (rank == 1 && ++num_barriers == 5) fs::create_directory(obstructed);
        };
        Checkpointer checkpointer(path_,
                                  {.rank = rank, .world_size = 3, .barrier = obstruct, .throw_on_failure = fail});
        EXPECT_TRUE(checkpointer.save(1, saved(1, rank)));
        try {
          EXPECT_FALSE(save(checkpointer, is_async, 2, saved(2, rank)));
        } catch (const td::IoError& error) {
          errors[static_cast<size_t>(rank)] = folder_.shortened(error.what());
        }
        EXPECT_EQ(value_of(checkpointer.load_latest()->state), 1);
        barrier();
      });
    });
    const std::string own = "the checkpoint of step 2 is not saved: save_safetensors: cannot replace '" +
                            folder_.shortened(obstructed) + "': Is a directory";
    const std::string other =
        "the checkpoint of step 2 is not saved: Checkpointer: cannot open 'DIR/run/step-00000002/rank-1.safetensors': "
        "No such file or directory";
    const std::string missing =
        std::string("the checkpoint of step 2 is not saved: Checkpointer: another rank could not write ") +
        (in_pieces ? "rank-1.safetensors, pieces-1.safetensors" : "rank-1.safetensors") + ", manifest.json";
    if (fail) {
      EXPECT_EQ(errors, (std::vector<std::string>{other, own, missing}));
      EXPECT_EQ(log, "");
    } else {
      for (const std::string& line : {"[rank 0/3] " + other, "[rank 1/3] " + own, "[rank 2/3] " + missing})
        EXPECT_NE(log.find("warning " + line + "\n"), std::string::npos) << line << "\n" << log;
    }
    EXPECT_FALSE(fs::exists(path_ + "/step-00000002"));
    fs::remove_all(path_);
  }
}

TEST_F(Checkpoint, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, Checkpointer(path_, {.rank = 2, .world_size = 2}),
               "Checkpointer: rank 2 is out of range (expected 0 to 1)");
  EXPECT_ERROR(td::ValueError, Checkpointer(path_, {.rank = 1, .world_size = 2}),
               "Checkpointer: world_size 2 requires options.barrier");
  EXPECT_ERROR(td::ValueError, Checkpointer(path_, {.keep = 0}), "Checkpointer: keep is 0 (expected at least 1)");
  EXPECT_ERROR(td::ValueError, load_checkpoint(path_, -1), "load_checkpoint: rank is -1 (expected at least 0)");
  Checkpointer checkpointer(path_);
  EXPECT_ERROR(td::ValueError, checkpointer.save(-1, {}), "Checkpointer: step is -1 (expected at least 0)");
  EXPECT_ERROR(td::ValueError, checkpointer.async_save(-1, {}), "Checkpointer: step is -1 (expected at least 0)");
  CheckpointState state;
  state.model.set("weight", td::Tensor());
  EXPECT_ERROR(td::StateError, checkpointer.async_save(1, state), "save_state: the tensor 'weight' is undefined");
  EXPECT_TRUE(checkpointer.wait());
  EXPECT_EQ(names_in(path_), std::vector<std::string>{"lock"});
}

}  // namespace
