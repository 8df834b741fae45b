#include <tandem/io/pretrained.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/io/atomic_file.h>
#include <tandem/io/distinct_tensors.h>
#include <tandem/io/json.h>
#include <tandem/io/safetensors_index.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSave = "save_pretrained";
constexpr const char* kLoad = "load_pretrained";
constexpr const char* kSuffix = ".safetensors";
constexpr const char* kIndexSuffix = ".safetensors.index.json";

void check_file_name(const char* op, const std::string& name) {
  TANDEM_CHECK(ValueError, !name.empty() && name.find_first_of({"/\0", 2}) == std::string::npos && is_valid_utf8(name),
               op, ": name is '", name, "' (expected the beginning of file names: UTF-8, without '/')");
}

void check_saved(const std::error_code& error, const char* what, const fs::path& path) {
  TANDEM_CHECK(IoError, !error, kSave, ": cannot ", what, " '", path.string(), "': ", error.message());
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  check_saved(error, "remove", path);
}

/// "model-00002-of-00003.safetensors" for index 1 of 3.
std::string shard_name(const std::string& name, size_t index, size_t count) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "-%05zu-of-%05zu", index + 1, count);
  return name + numbers + kSuffix;
}

/// Whether shard_name(name, ..) can be `file`.
bool is_shard(const std::string& file, const std::string& name) {
  size_t index = 0;
  size_t count = 0;
  return file.starts_with(name + "-") && std::sscanf(file.c_str() + name.size(), "-%zu-of-%zu", &index, &count) == 2 &&
         index >= 1 && file == shard_name(name, index - 1, count);
}

/// Consecutive tensors of at most `max_shard_size` bytes, or one that is larger.
std::vector<NamedTensors> split(NamedTensors tensors, int64_t max_shard_size) {
  std::vector<NamedTensors> shards(1);
  int64_t num_bytes = 0;
  for (auto& named : tensors) {
    const int64_t added = named.second.num_bytes();
    if (!shards.back().empty() && added > max_shard_size - num_bytes) {
      shards.emplace_back();
      num_bytes = 0;
    }
    num_bytes += added;
    shards.back().push_back(std::move(named));
  }
  return shards;
}

/// Removes the shards of earlier weights.
void remove_shards_except(const fs::path& folder, const std::string& name, const std::set<std::string>& kept) {
  std::error_code error;
  std::vector<std::string> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    found.push_back(entry->path().filename().string());
  check_saved(error, "read the folder", folder);
  for (const std::string& file : found) {
    if (is_shard(file, name) && !kept.contains(file)) remove_file(folder / file);
    if (is_temporary(file) && is_shard(file.substr(0, file.rfind('.')), name)) remove_stale_temporary(folder / file);
  }
}

}  // namespace

void save_pretrained(const std::string& folder, const NamedTensors& tensors, const SavePretrainedOptions& options) {
  check_file_name(kSave, options.name);
  TANDEM_CHECK(ValueError, options.max_shard_size >= 1, kSave, ": max_shard_size is ", options.max_shard_size,
               " (expected at least 1)");
  const std::vector<NamedTensors> shards = split(distinct_tensors(kSave, tensors).tensors, options.max_shard_size);
  check_saved(create_folder(folder), "create the folder", folder);

  // load_pretrained prefers the single file to the index. So old weights of one file are valid until that is removed at
  // the end, and old weights of several files must become invalid before the first of them is replaced.
  const std::string single = options.name + kSuffix;
  const fs::path index = fs::path(folder) / (options.name + kIndexSuffix);
  if (shards.size() == 1) {
    save_safetensors(fs::path(folder) / single, shards[0], options.metadata);
    remove_file(index);
    remove_shards_except(folder, options.name, {});
    return;
  }
  remove_file(index);
  check_saved(flush_folder(folder), "flush to disk the folder", folder);
  WeightMap weight_map;
  std::set<std::string> files;
  int64_t total_size = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shard_name(options.name, i, shards.size());
    save_safetensors(fs::path(folder) / file, shards[i], options.metadata);
    files.insert(file);
    for (const auto& [name, tensor] : shards[i]) {
      weight_map.emplace(name, file);
      total_size += tensor.num_bytes();
    }
  }
  const std::string text = write_index(weight_map, total_size);
  AtomicFile index_file(kSave, index);
  index_file.write(text.data(), text.size());
  index_file.commit();
  remove_file(fs::path(folder) / single);
  remove_shards_except(folder, options.name, files);
}

SafetensorsFile load_pretrained(const std::string& folder, const LoadPretrainedOptions& options) {
  check_file_name(kLoad, options.name);
  const fs::path single = fs::path(folder) / (options.name + kSuffix);
  if (path_exists(kLoad, single)) return load_safetensors(single, {.mmap = options.mmap});
  const fs::path index = fs::path(folder) / (options.name + kIndexSuffix);
  TANDEM_CHECK(IoError, path_exists(kLoad, index), kLoad, ": the folder '", folder, "' has neither '", options.name,
               kSuffix, "' nor '", options.name, kIndexSuffix, "'");
  const WeightMap weight_map = parse_index(index, InputFile(kLoad, index).text());

  std::set<std::string> files;
  for (const auto& [name, file] : weight_map) files.insert(file);
  std::set<std::string> loaded;
  SafetensorsFile result;
  for (const std::string& file : files) {
    const fs::path path = fs::path(folder) / file;
    TANDEM_CHECK(IoError, path_exists(kLoad, path), kLoad, ": '", index.string(), "' names '", file,
                 "', which is not in the folder");
    SafetensorsFile shard = load_safetensors(path, {.mmap = options.mmap});
    const auto take = [&](const std::string& name) {
      const auto entry = weight_map.find(name);
      TANDEM_CHECK(IoError, entry != weight_map.end(), kLoad, ": '", path.string(), "' has the tensor '", name,
                   "', which '", index.string(), "' does not name");
      TANDEM_CHECK(IoError, entry->second == file, kLoad, ": '", path.string(), "' has the tensor '", name,
                   "', which '", index.string(), "' assigns to '", entry->second, "'");
      loaded.insert(name);
    };
    for (const auto& [name, tensor] : shard.tensors) take(name);
    for (const auto& [name, dtype] : shard.skipped) take(name);
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(result.tensors));
    std::move(shard.skipped.begin(), shard.skipped.end(), std::back_inserter(result.skipped));
    if (file == *files.begin()) result.metadata = std::move(shard.metadata);
  }
  for (const auto& [name, file] : weight_map) {
    TANDEM_CHECK(IoError, loaded.contains(name), kLoad, ": '", index.string(), "' assigns the tensor '", name, "' to '",
                 file, "', which does not have it");
  }
  return result;
}

}}}  // namespace tandem::v0::io
