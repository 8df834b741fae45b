// The demonstrations of the example.
#pragma once

#include <string>
#include <vector>

#include <tandem/examples/support/demo.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

namespace examples {

// many.cc
void show_many(Demo& demo, const std::vector<tandem::Tensor>& tensors, tandem::Device target,
               const tandem::TransferOptions& options);
void show_overlap(Demo& demo, const std::vector<tandem::Tensor>& tensors, tandem::Device target, tandem::Device worker,
                  const tandem::TransferOptions& options, const std::string& trace_path);
void show_then(Demo& demo, const std::vector<tandem::Tensor>& tensors, tandem::Device target,
               const tandem::TransferOptions& options);
void show_choice(Demo& demo, const std::vector<tandem::Tensor>& tensors, const std::vector<tandem::Device>& candidates);

// large.cc
void show_chunks(Demo& demo, const tandem::Tensor& x, tandem::Device target, tandem::TransferOptions options);
void show_strided(Demo& demo, const tandem::Tensor& x, tandem::Device target, const tandem::TransferOptions& options);
void show_large_times(Demo& demo, const tandem::Tensor& x, tandem::Device target,
                      const tandem::TransferOptions& options);
void show_cancel(Demo& demo, const tandem::Tensor& x, tandem::Device target, tandem::TransferOptions options);
void show_too_large(Demo& demo, const tandem::Tensor& x, tandem::Device target);

}  // namespace examples
