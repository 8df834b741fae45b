// Strict loading of a State.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {

/// Reads a State and collects all mismatches, so that one error lists them: missing entries, entries of a different
/// type, shape or dtype than requested, entries refused by the caller, and unexpected entries that were never read. The
/// state must outlive the reader.
///
///     StateReader reader(state);
///     const auto* lr = reader.read<double>("lr");
///     if (lr != nullptr && *lr < 0) reader.refuse("lr", "is negative");
///     reader.finish("SGD: the state does not fit");  // throws if there are mismatches
class TANDEM_API StateReader {
 public:
  /// Reads `state`, which must outlive the reader.
  explicit StateReader(const State& state);
  /// Reads tensors by path. A path that occurs several times is a mismatch.
  explicit StateReader(const std::vector<std::pair<std::string, Tensor>>& tensors);
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;

  /// Replaces the path of every value by f(path). Values with equal new paths are a mismatch. Call it before the other
  /// functions.
  void rename(FunctionRef<std::string(const std::string& path)> f);
  /// Whether `path` is a value or a nested state that is not empty.
  bool has(const std::string& path) const;
  /// The value at `path`, which does not count as read; null if it is missing.
  const State::Value* find(const std::string& path) const;
  /// The value at `path` as T (int64_t, double, bool or std::string); null, and a mismatch, if it is missing or has
  /// another type.
  template <class T>
  const T* read(const std::string& path);
  /// The tensor at `path`; null, and a mismatch, unless it has the shape and dtype of `like`, or, with
  /// `any_floating_dtype`, its shape if both dtypes are floating-point. It may be on any device.
  const Tensor* read_tensor(const std::string& path, const Tensor& like, bool any_floating_dtype = false);
  /// Elements [begin, end), in row-major order, of the tensor at `path`, which the state has whole or in pieces
  /// (state_pieces.h): 1-D tensors, on any device, in order, whose sizes add up to end - begin. Empty, and a mismatch,
  /// if the tensor is missing or has another shape or dtype, if pieces overlap, or if the pieces lack one of the
  /// elements. All its pieces count as read.
  std::vector<Tensor> read_elements(const std::string& path, const Shape& shape, DType dtype, int64_t begin,
                                    int64_t end);
  /// Adds a mismatch: "different   <path>: <why>".
  void refuse(const std::string& path, const std::string& why);
  /// The paths of values that were never read, in alphabetical order.
  std::vector<std::string> unread() const;
  /// Throws StateError with `heading` and one line per mismatch, if there are mismatches. Without `strict`, unexpected
  /// entries are not mismatches.
  void finish(const std::string& heading, bool strict = true);

 private:
  using Values = std::map<std::string, const State::Value*>;

  const Tensor* read_tensor(const std::string& path, const Shape& shape, DType dtype, bool any_floating_dtype);
  /// The value at `path`, which is marked as read; null, and a mismatch, if it is missing.
  const State::Value* take(const std::string& path);
  /// Adds a value to values_, or a mismatch if there is one with this path.
  void insert(const std::string& path, const State::Value* value);

  std::vector<State::Value> owned_;    ///< values of values_ that are not part of a state
  Values values_;                      ///< by path
  std::map<std::string, bool> asked_;  ///< paths of values_ that were read; a set would need another header
  std::string problems_;
};

}}  // namespace tandem::v0
