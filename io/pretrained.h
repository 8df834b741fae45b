// Folders of weights that Hugging Face's libraries load and write: one safetensors file, or several with an index.
//
//     FOLDER/model.safetensors                 all tensors, or
//     FOLDER/model-00001-of-00002.safetensors  some of them each
//     FOLDER/model-00002-of-00002.safetensors
//     FOLDER/model.safetensors.index.json      the file of each tensor
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/io/safetensors.h>

namespace tandem { inline namespace v0 { namespace io {

/// Options of save_pretrained.
struct SavePretrainedOptions {
  std::string name = "model";              ///< of the files
  int64_t max_shard_size = 5'000'000'000;  ///< bytes of tensors per file; a larger tensor has its own file
  Metadata metadata = {{"format", "pt"}};  ///< of each file; transformers requires "format"
};

/// Writes weights, for example those of model.state_dict().tensors(), into a folder, which is created if it does not
/// exist. The tensors are distributed over files in the order of the list; an index is written unless one file holds
/// all of them. Equal input gives equal bytes. A tensor with several names (a tied parameter) is written only under its
/// first name, as transformers does; Module::load_state_dict restores it under all names.
///
/// Each file is replaced atomically. Files of earlier weights with the same name are removed. If the function fails or
/// the process is killed, the folder has the new weights, the old ones, or no weights that load_pretrained accepts,
/// but not parts of both. With several ranks, one of them calls it.
///
/// Throws ValueError for a name that is empty or has a '/', max_shard_size < 1, and as save_safetensors; StateError for
/// an undefined tensor; IoError with the path and the system's reason.
TANDEM_API void save_pretrained(const std::string& folder, const NamedTensors& tensors,
                                const SavePretrainedOptions& options = {});

/// Options of load_pretrained.
struct LoadPretrainedOptions {
  std::string name = "model";  ///< of the files
  bool mmap = true;            ///< as in LoadSafetensorsOptions
};

/// Loads the weights of a folder: NAME.safetensors if it exists, otherwise the files of NAME.safetensors.index.json, in
/// the order of their names. The metadata are those of the first file.
///
/// Throws the errors of load_safetensors. Throws IoError if the folder has neither file; if the index is not JSON, has
/// no "weight_map", repeats a name, or names a file outside of the folder; if a file is missing; or if the tensors of a
/// file are not the tensors that the index assigns to it.
TANDEM_API SafetensorsFile load_pretrained(const std::string& folder, const LoadPretrainedOptions& options = {});

}}}  // namespace tandem::v0::io
