#include <tandem/data/error_context.h>

#include <stdexcept>
#include <typeinfo>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

/// Throws a T with the longer text if the type of `error` is exactly T; an object of a derived class would lose its
/// type.
template <class T>
void rethrow_as(const std::exception& error, const std::string& context) {
  if (typeid(error) == typeid(T)) throw T(std::string(error.what()) + "\n  " + context);
}

}  // namespace

void rethrow_with_context(const std::string& context) {
  try {
    throw;
  } catch (const CommError& error) {
    throw CommError(std::string(error.what()) + "\n  " + context, error.rank(), error.peer(), error.seq());
  } catch (const std::exception& error) {
    rethrow_as<Error>(error, context);
    rethrow_as<ShapeError>(error, context);
    rethrow_as<DTypeError>(error, context);
    rethrow_as<DeviceError>(error, context);
    rethrow_as<IndexError>(error, context);
    rethrow_as<ValueError>(error, context);
    rethrow_as<StateError>(error, context);
    rethrow_as<OutOfMemory>(error, context);
    rethrow_as<IoError>(error, context);
    rethrow_as<std::runtime_error>(error, context);
    rethrow_as<std::range_error>(error, context);
    rethrow_as<std::overflow_error>(error, context);
    rethrow_as<std::logic_error>(error, context);
    rethrow_as<std::invalid_argument>(error, context);
    rethrow_as<std::domain_error>(error, context);
    rethrow_as<std::out_of_range>(error, context);
    throw;
  }
}

}}}  // namespace tandem::v0::data
