// A checkpoint is complete when its manifest exists; the rename of the manifest is the commit. Before the commit the
// folder has no manifest, so it is never loaded, and the next start removes it. If a step is saved again, its complete
// checkpoint is first renamed ("set aside"), and removed after the commit of the new one.

#include <tandem/io/checkpoint.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <tandem/base/file.h>
#include <tandem/base/lock_file.h>
#include <tandem/base/log.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/base/version.h>
#include <tandem/io/digest_writers.h>
#include <tandem/io/manifest.h>
#include <tandem/io/state_file.h>
#include <tandem/tensor/state_pieces.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOp = "Checkpointer";
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kModelName = "model.safetensors";
constexpr const char* kOptimizerName = "optimizer.safetensors";
constexpr const char* kLatestName = "latest";
constexpr const char* kFolderPrefix = "step-";
constexpr const char* kSetAsideSuffix = ".old";

/// Whether the path exists; false on system errors.
bool is_visible(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Not the negation of is_visible(): both are false if the system reports an error, such as a missing permission.
bool is_missing(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && !error;
}

/// Throws IoError "Checkpointer: cannot <what> '<path>': <reason>" if there is an error.
void check_system(const std::error_code& error, const char* what, const fs::path& path) {
  TANDEM_CHECK(IoError, !error, kOp, ": cannot ", what, " '", path.string(), "': ", error.message());
}

/// The sorted names of a folder's entries; empty if the folder does not exist.
std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator iterator(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error))
    names.push_back(iterator->path().filename());
  check_system(error, "read the folder", folder);
  std::sort(names.begin(), names.end());
  return names;
}

/// Removes the files of a checkpoint, the manifest first, and then the folder if it is empty.
void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kManifestName, error);
  check_system(error, "remove", folder / kManifestName);
  for (const std::string& name : entries_of(folder)) {
    if (!name.ends_with(".safetensors") && !is_temporary(name)) continue;
    fs::remove(folder / name, error);
    check_system(error, "remove", folder / name);
  }
  fs::remove(folder, error);
  if (error != std::errc::directory_not_empty) check_system(error, "remove", folder);
}

struct CompleteCheckpoint {
  fs::path folder;
  Manifest manifest;
};

/// The complete checkpoints, newest first. Appends an error text to `problems` for each manifest that cannot be read.
std::vector<CompleteCheckpoint> find_checkpoints(const fs::path& folder, std::vector<std::string>& problems) {
  std::vector<CompleteCheckpoint> found;
  for (const std::string& name : entries_of(folder)) {
    const fs::path manifest = folder / name / kManifestName;
    if (!name.starts_with(kFolderPrefix)) continue;
    try {
      if (!path_exists(kOp, manifest)) continue;
      found.push_back({folder / name, parse_manifest(manifest, InputFile(kOp, manifest).text())});
    } catch (const IoError& error) {
      problems.push_back(error.what());
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const CompleteCheckpoint& a, const CompleteCheckpoint& b) {
    return a.manifest.sequence > b.manifest.sequence;
  });
  return found;
}

/// Throws IoError for the first file whose size or checksum differs from the manifest.
void verify(const CompleteCheckpoint& checkpoint) {
  for (const auto& [name, expected] : checkpoint.manifest.files) {
    const InputFile file(kOp, checkpoint.folder / name);
    TANDEM_CHECK(IoError, file.size() == expected.num_bytes, kOp, ": '", file.path(), "' has ", file.size(),
                 " bytes, expected ", expected.num_bytes, " by the manifest");
    TANDEM_CHECK(IoError, digest_of(file) == expected, kOp, ": '", file.path(),
                 "' is damaged: its checksum differs from the manifest's");
  }
}

/// The model and the shared state in one State; a file of pieces has its paths.
State joined(const CheckpointState& state) {
  State result;
  result.set("model", state.model);
  result.set("shared", state.shared);
  return result;
}

/// Adds the pieces of all ranks to the model and the shared state. Throws IoError if they do not fit.
void add_pieces(const fs::path& folder, int64_t world_size, CheckpointState& state) {
  std::vector<State> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) ranks.push_back(map_state(folder / pieces_file_name(rank)));
  try {
    const State merged = merge_pieces(joined(state), ranks);
    state.model = merged.get<State>("model");
    state.shared = merged.get<State>("shared");
  } catch (const Error& error) {
    throw IoError(str(kOp, ": '", folder.string(), "': ", error.what()));
  }
}

/// Calls f(). If it throws IoError, or there is no memory, and `problem` is empty, sets `problem` to the error text.
template <class F>
void attempt(std::string& problem, F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    if (problem.empty()) problem = error.what();
  } catch (const std::bad_alloc&) {
    if (problem.empty()) problem = str(kOp, ": out of memory");
  }
}

}  // namespace

/// A checkpoint that this rank saves.
struct Checkpointer::Saving {
  int64_t step = 0;
  CheckpointState state;
  std::vector<std::pair<std::string, std::variant<State, std::string>>> files = {};  ///< and their states, or bytes
  Manifest manifest = {};
  /// False if rank 0 could not create the folder: then the folder may be an older checkpoint of this step.
  bool is_new = false;
  std::string problem = {};              ///< of this rank
  std::thread writer = {};               ///< of async_save
  std::atomic<bool> is_written = false;  ///< by the writer

  ~Saving() {
    if (writer.joinable()) writer.join();
  }
};

std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, int rank) {
  TANDEM_CHECK(ValueError, rank >= 0, "load_checkpoint: rank is ", rank, " (expected at least 0)");
  TraceSpan span("load checkpoint", "io");
  std::vector<std::string> problems;
  for (const CompleteCheckpoint& candidate : find_checkpoints(folder, problems)) {
    try {
      verify(candidate);
      const Manifest& manifest = candidate.manifest;
      const std::string rank_file = rank_file_name(rank < manifest.world_size ? rank : 0);
      LoadedCheckpoint loaded = {
          manifest.step,
          static_cast<int>(manifest.world_size),
          {load_state(candidate.folder / kModelName), load_state(candidate.folder / kOptimizerName),
           load_state(candidate.folder / rank_file)},
          candidate.folder};
      if (manifest.has_pieces) add_pieces(candidate.folder, manifest.world_size, loaded.state);
      for (const std::string& problem : problems) log(LogLevel::kWarning, "skipping a checkpoint: ", problem);
      return loaded;
    } catch (const IoError& error) {
      problems.push_back(error.what());
    }
  }
  std::string lines;
  for (const std::string& problem : problems) lines += "\n  " + problem;
  TANDEM_CHECK(IoError, problems.empty(), "load_checkpoint: no checkpoint in '", folder, "' can be loaded", lines);
  return std::nullopt;
}

State load_rank_state(const LoadedCheckpoint& checkpoint, int rank) {
  TANDEM_CHECK(ValueError, rank >= 0 && rank < checkpoint.world_size, "load_rank_state: rank is ", rank,
               ", expected 0 to ", checkpoint.world_size - 1);
  return load_state(fs::path(checkpoint.folder) / rank_file_name(rank));
}

Checkpointer::Checkpointer(std::string folder, CheckpointOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  TANDEM_CHECK(ValueError, options_.rank >= 0 && options_.rank < options_.world_size, kOp, ": rank ", options_.rank,
               " is out of range (expected 0 to ", options_.world_size - 1, ")");
  TANDEM_CHECK(ValueError, options_.world_size == 1 || options_.barrier, kOp, ": world_size ", options_.world_size,
               " requires options.barrier");
  TANDEM_CHECK(ValueError, options_.keep >= 1, kOp, ": keep is ", options_.keep, " (expected at least 1)");
  if (options_.rank != 0) return;
  try {
    lock();
    remove_incomplete();
  } catch (const IoError& error) {
    log(LogLevel::kInfo, error.what());
  }
}

Checkpointer::~Checkpointer() = default;

std::string Checkpointer::path_of(int64_t step) const {
  char name[32];
  std::snprintf(name, sizeof name, "%s%08lld", kFolderPrefix, static_cast<long long>(step));
  return fs::path(folder_) / name;
}

/// Locks the folder unless this object already has the lock.
void Checkpointer::lock() {
  if (lock_ != nullptr) return;
  check_system(create_folder(folder_), "create the folder", folder_);
  lock_ = std::make_unique<LockFile>(kOp, folder_);
}

/// Removes incomplete checkpoints and temporary files of a run that crashed.
void Checkpointer::remove_incomplete() const {
  for (const std::string& name : entries_of(folder_)) {
    const fs::path path = fs::path(folder_) / name;
    std::error_code error;
    if (name.starts_with(kFolderPrefix) && fs::is_directory(path, error) && !path_exists(kOp, path / kManifestName)) {
      remove_checkpoint(path);
    } else if (name.starts_with(kLatestName) && is_temporary(name)) {
      fs::remove(path, error);
      check_system(error, "remove", path);
    }
  }
}

void Checkpointer::create_step_folder(int64_t step) {
  lock();
  const fs::path path = path_of(step);
  const fs::path set_aside = path.string() + kSetAsideSuffix;
  std::error_code error;
  if (path_exists(kOp, path / kManifestName)) {
    if (path_exists(kOp, set_aside)) remove_checkpoint(set_aside);
    fs::rename(path, set_aside, error);
    check_system(error, "rename", path);
  } else if (path_exists(kOp, path)) {
    remove_checkpoint(path);
  }
  fs::create_directory(path, error);
  check_system(error, "create the folder", path);
}

void Checkpointer::barrier() const {
  if (options_.barrier) options_.barrier();
}

std::unique_ptr<Checkpointer::Saving> Checkpointer::saving_of(int64_t step, const CheckpointState& state) const {
  TANDEM_CHECK(ValueError, step >= 0, kOp, ": step is ", step, " (expected at least 0)");
  auto saving = std::make_unique<Saving>();
  saving->step = step;
  if (options_.rank == 0) saving->state = state;
  const auto add = [&](const std::string& name, State part) { saving->files.emplace_back(name, std::move(part)); };
  if (options_.rank == 0) {
    add(kModelName, without_pieces(state.model));
    add(kOptimizerName, without_pieces(state.shared));
  }
  if (State pieces = pieces_of(joined(state)); !pieces.empty()) add(pieces_file_name(options_.rank), std::move(pieces));
  add(rank_file_name(options_.rank), state.rank);  // last: rank 0 must not commit if another file is missing
  return saving;
}

void Checkpointer::begin(Saving& saving) {
  if (options_.rank == 0) attempt(saving.problem, [&] { create_step_folder(saving.step); });
  barrier();
  const fs::path path = path_of(saving.step);
  saving.is_new = is_visible(path) && is_missing(path / kManifestName);
}

void Checkpointer::write_files(Saving& saving) const {
  if (!saving.is_new || !saving.problem.empty()) return;
  for (auto& [name, contents] : saving.files) {
    const fs::path path = fs::path(path_of(saving.step)) / name;
    try {
      const auto* bytes = std::get_if<std::string>(&contents);
      saving.manifest.files[name] =
          bytes != nullptr ? write_safetensors_bytes(path, *bytes) : write_state(path, std::get<State>(contents));
    } catch (const IoError&) {
      // The rename may have succeeded before the error: rank 0 must not use this file.
      std::error_code ignored;
      fs::remove(path, ignored);
      throw;
    }
    contents = State();  // frees the bytes
  }
}

void Checkpointer::write_manifest(Saving& saving) const {
  const fs::path path = path_of(saving.step);
  Manifest& manifest = saving.manifest;
  manifest.library_version = kVersion;
  manifest.step = saving.step;
  manifest.world_size = options_.world_size;
  for (int rank = 0; rank < options_.world_size; ++rank)
    manifest.has_pieces = manifest.has_pieces || path_exists(kOp, path / pieces_file_name(rank));
  for (const std::string& name : file_names(manifest)) {
    if (!manifest.files.contains(name)) manifest.files[name] = digest_of(InputFile(kOp, path / name));
  }
  if (manifest.has_pieces) add_pieces(path, manifest.world_size, saving.state);  // a complete checkpoint can be loaded
  std::vector<std::string> ignored;
  for (const CompleteCheckpoint& other : find_checkpoints(folder_, ignored))
    manifest.sequence = std::max(manifest.sequence, other.manifest.sequence + 1);
  // The entry of the new folder must be on disk before the manifest.
  check_system(flush_folder(folder_), "flush to disk the folder", folder_);
  const std::string text = manifest_text(manifest);
  AtomicFile file(kOp, path / kManifestName);
  file.write(text.data(), text.size());
  file.commit();
}

void Checkpointer::remove_older(int64_t step) const {
  const fs::path path = path_of(step);
  const std::string name = path.filename().string() + "\n";
  AtomicFile latest(kOp, fs::path(folder_) / kLatestName);
  latest.write(name.data(), name.size());
  latest.commit();
  const fs::path set_aside = path.string() + kSetAsideSuffix;
  if (is_visible(set_aside)) remove_checkpoint(set_aside);
  std::vector<std::string> ignored;
  const std::vector<CompleteCheckpoint> found = find_checkpoints(folder_, ignored);
  for (size_t i = static_cast<size_t>(options_.keep); i < found.size(); ++i) remove_checkpoint(found[i].folder);
}

std::string Checkpointer::missing_files(int64_t step) const {
  std::string missing;
  const auto check = [&](const std::string& name) {
    if (!is_visible(fs::path(path_of(step)) / name)) missing += (missing.empty() ? "" : ", ") + name;
  };
  Manifest manifest;
  manifest.world_size = options_.world_size;
  manifest.has_pieces = is_visible(fs::path(path_of(step)) / pieces_file_name(options_.rank));
  for (const std::string& name : file_names(manifest)) check(name);
  check(kManifestName);
  return missing;
}

bool Checkpointer::finish(Saving& saving) const {
  const fs::path path = path_of(saving.step);
  std::string& problem = saving.problem;
  barrier();
  if (options_.rank == 0 && problem.empty()) attempt(problem, [&] { write_manifest(saving); });
  barrier();
  // All ranks check the same file, so they return the same value.
  const bool saved = saving.is_new && is_visible(path / kManifestName);
  if (!saved && problem.empty()) {
    problem = saving.is_new ? str(kOp, ": another rank could not write ", missing_files(saving.step))
                            : str(kOp, ": rank 0 could not create the folder '", path.string(), "'");
  }
  barrier();  // all ranks have checked the manifest, so rank 0 may remove files
  if (saved) {
    if (options_.rank == 0) attempt(problem, [&] { remove_older(saving.step); });
    if (!problem.empty()) log(LogLevel::kWarning, "the checkpoint of step ", saving.step, " is saved, but: ", problem);
    return true;
  }
  if (options_.rank == 0 && saving.is_new) {
    std::string ignored;
    attempt(ignored, [&] { remove_checkpoint(path); });
  }
  const std::string text = str("the checkpoint of step ", saving.step, " is not saved: ", problem);
  if (options_.throw_on_failure) throw IoError(text);
  log(LogLevel::kWarning, text);
  return false;
}

bool Checkpointer::save(int64_t step, const CheckpointState& state) {
  const auto saving = saving_of(step, state);
  wait();
  TraceSpan span("save checkpoint", "io");
  begin(*saving);
  attempt(saving->problem, [&] { write_files(*saving); });
  return finish(*saving);
}

void Checkpointer::async_save(int64_t step, const CheckpointState& state) {
  auto next = saving_of(step, state);
  wait();
  TraceSpan span("begin checkpoint", "io");
  attempt(next->problem, [&] {
    for (auto& [name, contents] : next->files) contents = state_bytes(std::get<State>(contents));
  });
  begin(*next);
  saving_ = std::move(next);
  const auto write = [this, &saving = *saving_] {
    attempt(saving.problem, [&] { write_files(saving); });
    saving.is_written = true;
  };
  try {
    saving_->writer = start_thread([write] {
      use_all_cores();
      write();
    });
  } catch (const ResourceError& error) {
    warn_fewer_threads("Checkpointer", error);
    write();
  }
}

bool Checkpointer::is_written() const { return saving_ == nullptr || saving_->is_written; }

bool Checkpointer::wait() {
  if (saving_ == nullptr) return true;
  TraceSpan span("complete checkpoint", "io");
  const std::unique_ptr<Saving> saving = std::move(saving_);
  if (saving->writer.joinable()) saving->writer.join();
  return finish(*saving);
}

}}}  // namespace tandem::v0::io
