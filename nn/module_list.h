// A list of modules.
#pragma once

#include <tandem/nn/module_container.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A list of modules of type T, named "0", "1", ... as in PyTorch. The code of the model calls them:
///
///     nn::ModuleList<Block>& blocks = add<nn::ModuleList<Block>>("blocks");
///     ...
///     for (Block* block : blocks) x = (*block)(x, mask);
template <class T = Layer>
class ModuleList : public IndexedContainer<Module, T> {};

}}}  // namespace tandem::v0::nn
