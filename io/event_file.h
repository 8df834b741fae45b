// TensorBoard event files: scalars by training step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace io {

/// Writes "FOLDER/events.out.tfevents.<seconds>.<host>.<process>.<k>", which TensorBoard also shows during the run:
///
///     io::EventFile events("runs/first");
///     events.add_scalar("loss/train", loss.item(), step);
///
/// Use one per run, on rank 0. A resumed run creates another file in the same folder and calls `resume`, which hides
/// the scalars that the earlier run wrote for later steps.
///
/// A write error does not end the training: it is logged once, as a warning, and later scalars are dropped. Each
/// scalar is written immediately, without a buffer. Not thread-safe.
class TANDEM_API EventFile {
 public:
  /// Creates the folder and the file.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Writes `value` as float32. A '/' in the tag groups tags. Throws ValueError if `tag` is not valid UTF-8.
  void add_scalar(std::string_view tag, double value, int64_t step);
  /// Records that this run resumes at `step`. TensorBoard hides earlier events of that step and of later ones.
  void resume(int64_t step);

  /// The path of the file.
  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);
  void disable(const std::string& reason);

  std::string path_;
  int descriptor_ = -1;
};

}}}  // namespace tandem::v0::io
