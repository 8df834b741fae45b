// Files of weights that are loaded into modules on a GPU.
#include <gtest/gtest.h>

#include <tandem/io/pretrained.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/norm.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { namespace {

const Device kGpu("cuda");

struct Net : nn::Module {
  nn::Linear& fc = add<nn::Linear>("fc", 300, 100);
  nn::BatchNorm1d& norm = add<nn::BatchNorm1d>("norm", 100);
};

TEST(GpuLoadStateDict, MappedShardsOfHalfPrecisionAreConvertedOnTheGpu) {
  const testing::TemporaryFolder folder;
  Net source;
  source.to(kGpu, kFloat16);
  io::save_pretrained(folder.path(), source.state_dict().tensors(), {.max_shard_size = 1000});
  Net net;
  net.to(kGpu);
  // The files are unmapped on return, which must not be before the copies have finished.
  const nn::LoadReport report =
      net.load_state_dict(io::load_pretrained(folder.path()).tensors, {.convert_dtype = true});
  EXPECT_EQ(report.loaded_keys.size(), 7u);
  EXPECT_EQ(report.converted_keys.size(), 6u);
  EXPECT_EQ(net.fc.weight.device(), kGpu);
  EXPECT_EQ(net.fc.weight.dtype(), kFloat32);
  EXPECT_EQ(net.fc.weight.to_vector<float>(), source.fc.weight.to_vector<float>());
  EXPECT_EQ(net.fc.bias.to_vector<float>(), source.fc.bias.to_vector<float>());
}

}}  // namespace tandem
