// Strict reading of a State.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {

/// Reads a State and collects everything that does not fit, so that one error names all of it: entries that are
/// missing, that are of another type, shape or dtype than asked for, that their reader refused, and that nobody asked
/// for.  The state must outlive the reader.
///
///     StateReader reader(state);
///     const auto* lr = reader.read<double>("lr");
///     if (lr != nullptr && *lr < 0) reader.refuse("lr", "is negative");
///     reader.finish("SGD: the state does not fit");  // throws if there was anything
class TANDEM_API StateReader {
 public:
  explicit StateReader(const State& state);

  /// Whether there is a value, or a nested state that is not empty, at `path`.
  bool has(const std::string& path) const;
  /// The value at `path` as T (int64_t, double, bool or std::string); null, noted, if there is none.
  template <class T>
  const T* read(const std::string& path);
  /// The tensor at `path`; null, noted, unless it has the shape and dtype of `like`.  It may be on any device.
  const Tensor* read_tensor(const std::string& path, const Tensor& like);
  /// Notes that the value at `path` does not fit: "different   <path>: <why>".
  void refuse(const std::string& path, const std::string& why);
  /// Throws StateError, `heading` and a line for each thing that was noted or never asked for, if there are any.
  void finish(const std::string& heading);

 private:
  /// The value at `path`, from now on asked for; null, noted as missing, if there is none.
  const State::Value* take(const std::string& path);

  std::map<std::string, const State::Value*> values_;  ///< by path
  std::set<std::string> asked_;                        ///< paths of values_ that were asked for
  std::string problems_;
};

}}  // namespace tandem::v0
