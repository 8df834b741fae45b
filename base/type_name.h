// Names of classes, for error texts and traces.
#pragma once

#include <string>
#include <typeinfo>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// The name of a class without namespaces, enclosing classes and functions: "Linear" for typeid(nn::Linear).
TANDEM_API std::string type_name(const std::type_info& type);

}}  // namespace tandem::v0
