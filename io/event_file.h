// TensorBoard's event files: scalars over the steps of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace io {

/// Appends to "FOLDER/events.out.tfevents.<seconds>.<host>.<process>.<k>", which TensorBoard shows while it grows:
///
///     io::EventFile events("runs/first");
///     events.add_scalar("loss/train", loss.item(), step);
///
/// One per run, on rank 0.  A run that goes on writes a file of its own into the same folder and calls `resume`, so that
/// what the earlier one wrote beyond that step is not shown.
///
/// Training never ends because of it: what cannot be written is logged once, as a warning, and the rest is left out.
/// Each scalar is written at once.  Not safe from many threads.
class TANDEM_API EventFile {
 public:
  /// Makes the folder and the file.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// The value at a step, kept as float32.  The tag is UTF-8 (else ValueError); '/' groups tags.
  void add_scalar(std::string_view tag, double value, int64_t step);
  /// Says that this run goes on at `step`: TensorBoard drops what was written for it and later steps before.
  void resume(int64_t step);

  /// Where it writes.
  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);
  void give_up(const std::string& reason);

  std::string path_;
  int descriptor_ = -1;
};

}}}  // namespace tandem::v0::io
