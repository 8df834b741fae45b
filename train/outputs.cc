#include <tandem/train/outputs.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTrialPrefix = ".trial";  // files by which folders are checked

std::string in_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).lexically_normal().string();
}

void create_folder(const fs::path& folder) {
  if (const std::error_code error = tandem::create_folder(folder))
    throw IoError(str("cannot create the folder '", folder.string(), "': ", error.message()));
}

/// Opens an existing file for writing without changing it, or creates and removes a new file. O_NONBLOCK makes a FIFO
/// without a reader an error.
void check_file(const std::string& path) {
  int descriptor = above_standard(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  const bool is_new = descriptor >= 0;
  if (!is_new && errno == EEXIST) {
    descriptor = above_standard(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  }
  if (descriptor < 0) throw IoError(str("cannot write '", path, "': ", std::strerror(errno)));
  ::close(descriptor);
  if (is_new) ::unlink(path.c_str());
}

/// Creates and removes the folder, or a file in it if it exists. Removes files of checks that were killed.
void check_folder(const std::string& path) {
  std::error_code error;
  const bool is_new = fs::create_directory(path, error);
  if (error) throw IoError(str("cannot create the folder '", path, "': ", error.message()));
  for (fs::directory_iterator file(path, error), end; !error && file != end; file.increment(error)) {
    if (std::error_code ignored; file->path().filename().string().starts_with(kTrialPrefix))
      fs::remove(file->path(), ignored);
  }
  is_new ? static_cast<void>(fs::remove(path, error)) : check_file(in_folder(path, kTrialPrefix));
}

/// The metadata is what Hugging Face's transformers requires.
void write_weights(const std::string& path, const io::NamedTensors& weights) {
  io::save_safetensors(path, weights, {{"format", "pt"}});
}

void check_weights(const std::string& path, const io::NamedTensors& weights) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw IoError(str("cannot write '", path, "': Is a directory"));
  const std::string trial = path + ".trial";
  write_weights(trial, weights);
  fs::remove(trial, ignored);
}

/// The first path "FOLDER/NAME-model-K.safetensors" that does not exist.
std::string new_path(const std::string& name, const std::string& folder) {
  for (int k = 0;; ++k) {
    const std::string path = in_folder(folder, str(name, "-model-", k, ".safetensors"));
    if (!path_exists(name.c_str(), path)) return path;
  }
}

}  // namespace

OutputPaths::OutputPaths(const TrainerOptions& options)
    : model(in_folder(options.out, "model.safetensors")),
      loss_chart(in_folder(options.out, "loss.svg")),
      throughput_chart(in_folder(options.out, "throughput.svg")),
      events(in_folder(options.out, "events")),
      checkpoints(in_folder(options.out, "checkpoints")),
      trace(options.trace) {
  for (const std::string& folder : options.folders) folders.push_back(in_folder(options.out, folder));
}

std::unique_ptr<LockFile> lock_outputs(const TrainerOptions& options, const io::NamedTensors& weights) {
  const OutputPaths paths(options);
  std::unique_ptr<LockFile> lock;
  try {
    create_folder(options.out);
    lock = std::make_unique<LockFile>(options.name.c_str(), options.out);
    create_folder(fs::path(paths.trace).parent_path());
    check_weights(paths.model, weights);
    check_file(paths.loss_chart);
    check_file(paths.throughput_chart);
    check_folder(paths.events);
    check_folder(paths.checkpoints);
    for (const std::string& folder : paths.folders) check_folder(folder);
    if (!paths.trace.empty()) check_file(paths.trace);
  } catch (const IoError& error) {
    std::error_code ignored;
    if (lock != nullptr) fs::remove(fs::path(options.out) / "lock", ignored);
    throw IoError(str(options.name, ": an output cannot be written; training is not started\n  ", error.what()));
  }
  return lock;
}

std::string unshared_folder(const std::string& folder, distributed::ProcessGroup& group) {
  constexpr int64_t kHostBytes = 64;
  constexpr std::chrono::seconds kPatience{2};  // for network file systems
  const int rank = group.rank();
  if (group.size() == 1) return "";
  // No host has looked up this name before, so none has cached that it is missing.
  const Tensor token = tensor({static_cast<int64_t>(std::random_device()())});
  group.broadcast(token, 0);
  const std::string path = in_folder(folder, str(kTrialPrefix, "-", token.item<int64_t>()));
  std::error_code ignored;
  const bool is_new = rank == 0 && fs::create_directory(folder, ignored);
  if (rank == 0) write_file("Trainer", path, "");
  group.barrier();
  bool is_shared = rank == 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!is_shared) {
    const std::string own = str(path, "-", rank);
    try {
      is_shared = path_exists("Trainer", path);
      if (is_shared) write_file("Trainer", own, "");
    } catch (const IoError&) {
      is_shared = false;
    }
    fs::remove(own, ignored);
    if (std::chrono::steady_clock::now() > end) break;
    if (!is_shared) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const Tensor mine = zeros({1 + kHostBytes}, {kUInt8});
  const Tensor all = empty({group.size(), 1 + kHostBytes}, {kUInt8});
  mine.data<uint8_t>()[0] = is_shared ? 1 : 0;
  ::gethostname(reinterpret_cast<char*>(mine.data<uint8_t>() + 1), kHostBytes - 1);
  group.all_gather(all, mine);
  if (rank == 0) fs::remove(path, ignored);
  if (is_new) fs::remove(folder, ignored);
  const auto host_of = [&](int r) {
    return reinterpret_cast<const char*>(all.data<uint8_t>() + r * (1 + kHostBytes) + 1);
  };
  std::string others;
  for (int r = 0; r < group.size(); ++r) {
    if (all.data<uint8_t>()[r * (1 + kHostBytes)] == 0)
      others += str(others.empty() ? "" : ", ", "rank ", r, " on ", host_of(r));
  }
  return others.empty() ? ""
                        : str("the ranks do not share the checkpoint folder '", folder, "': what rank 0 on ",
                              host_of(0), " writes is not visible to, or the folder not writable for, ", others);
}

void save_weights(const std::string& name, const std::string& path, const io::NamedTensors& weights) {
  std::string problems;
  try {
    write_weights(path, weights);
    return;
  } catch (const IoError& error) {
    problems = str("\n  ", error.what());
  }
  std::error_code ignored;
  for (const std::string& folder : {std::string("."), fs::temp_directory_path(ignored).string()}) {
    std::string kept;
    try {
      kept = new_path(name, folder);
      write_weights(kept, weights);
    } catch (const IoError& error) {
      problems += str("\n  ", error.what());
      continue;
    }
    const std::string absolute = fs::absolute(kept, ignored).lexically_normal().string();
    throw IoError(str(name, ": the trained weights are saved to '", absolute, "', because '", path,
                      "' cannot be written", problems));
  }
  throw IoError(str(name, ": the trained weights are LOST: all locations are unwritable", problems));
}

}}}  // namespace tandem::v0::train
