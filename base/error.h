// Exceptions and checks. The library reports every failure by throwing one of these; it never exits and never prints.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Base class of all exceptions that tandem throws. what() is "operation: what is wrong", then one indented line per
/// operand and, inside a module's forward or backward, "  in Linear 'encoder.fc1'".
class TANDEM_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes do not fit an operation.
class TANDEM_API ShapeError : public Error {
 public:
  using Error::Error;
};

/// A dtype is not accepted.
class TANDEM_API DTypeError : public Error {
 public:
  using Error::Error;
};

/// Operands are on different devices, or a device does not exist.
class TANDEM_API DeviceError : public Error {
 public:
  using Error::Error;
};

/// An index, dimension or label is out of range.
class TANDEM_API IndexError : public Error {
 public:
  using Error::Error;
};

/// A value is not acceptable (a probability of 2, a negative learning rate).
class TANDEM_API ValueError : public Error {
 public:
  using Error::Error;
};

/// An object is not in a state that permits the call (backward twice, a saved tensor changed in place).
class TANDEM_API StateError : public Error {
 public:
  using Error::Error;
};

/// An allocation exceeds a device's memory or the limit set for it.
class TANDEM_API OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// The operation of a Future was cancelled.
class TANDEM_API CancelledError : public Error {
 public:
  using Error::Error;
};

/// A file or socket could not be read or written, or has unexpected contents.
class TANDEM_API IoError : public Error {
 public:
  using Error::Error;
};

/// The operating system refused to start a thread or process because a limit is reached.
class TANDEM_API ResourceError : public Error {
 public:
  using Error::Error;
};

/// A collective, the store or a peer failed.
class TANDEM_API CommError : public Error {
 public:
  /// `what` is the text. The other arguments are the results of the methods below.
  explicit CommError(const std::string& what, int rank = -1, int peer = -1, int64_t seq = -1)
      : Error(what), rank_(rank), peer_(peer), seq_(seq) {}
  int rank() const { return rank_; }    ///< the rank that threw, -1 if unknown
  int peer() const { return peer_; }    ///< the rank at fault, -1 if unknown
  int64_t seq() const { return seq_; }  ///< number of the collective in its group, -1 if none

 private:
  int rank_;
  int peer_;
  int64_t seq_;
};

/// A library that tandem calls (oneDNN, cuBLAS ...) returned an error.
class TANDEM_API BackendError : public Error {
 public:
  /// `call` is the function that failed, `status` its code.
  BackendError(const std::string& call, int status)
      : Error(call + " failed with status " + std::to_string(status)), call_(call), status_(status) {}
  const std::string& call() const { return call_; }  ///< the function that failed
  int status() const { return status_; }             ///< its error code

 private:
  std::string call_;
  int status_;
};

namespace detail {
/// Selects the classic locale, and names instead of numbers for bool.
TANDEM_API void set_format(std::ostream& out);
}  // namespace detail

/// Concatenates its arguments with operator<<, in the classic locale: files, keys of the store and error texts must not
/// depend on the program's locale.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  detail::set_format(out);
  (out << ... << args);
  return out.str();
}

/// e.what(); for a std::bad_alloc an explanation and advice.
TANDEM_API std::string error_text(const std::exception& e);

/// `message`, followed by "\n  in Linear 'fc1'" inside a module.
TANDEM_API std::string with_module_scope(std::string message);

}}  // namespace tandem::v0

/// Throws `ErrorType`, a class above without its namespace, unless `condition` holds. The message consists of the
/// remaining arguments, concatenated, and the running module. The arguments are evaluated only on failure.
#define TANDEM_CHECK(ErrorType, condition, ...)                                           \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      throw ::tandem::ErrorType(::tandem::with_module_scope(::tandem::str(__VA_ARGS__))); \
  } while (false)
