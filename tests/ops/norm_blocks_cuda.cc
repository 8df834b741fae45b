// The division of batch norms' tensors into blocks.
#include <gtest/gtest.h>

#include <tandem/base/math.h>
#include <tandem/ops/norm/channels_cuda.h>

namespace tandem::testing { namespace {

using cuda::ThreadLayout;

/// The tensors [batch, channels, size, size] of ResNet-50.
struct Image {
  int64_t channels;
  int64_t size;
};
constexpr Image kImages[] = {{64, 112}, {64, 56},  {256, 56},  {128, 56}, {128, 28}, {512, 28},
                             {256, 28}, {256, 14}, {1024, 14}, {512, 14}, {512, 7},  {2048, 7}};

TEST(BatchNormBlocks, FillAnH200AWholeNumberOfTimes) {
  int filled = 0;
  for (const Image& image : kImages) {
    for (const int64_t batch : {32, 100, 256}) {
      for (const int pack : {4, 8}) {
        for (const int resident : {2, 3}) {
          const BatchNormShape shape = {batch, image.channels, image.size * image.size, true};
          const ThreadLayout layout(shape, pack, resident);
          const int64_t slots = 132 * resident, blocks = layout.num_blocks(), rounds = ceil_div(blocks, slots);
          const int64_t positions = ceil_div<int64_t>(layout.images, layout.threads / layout.width);  // of a thread
          const auto here = str(image.channels, " channels of ", image.size, ", batch ", batch, ", pack ", pack);
          EXPECT_LE(positions, 64) << here;
          EXPECT_GE(positions, 8) << here;
          EXPECT_GE(layout.pieces * layout.images, shape.per_channel()) << here;
          EXPECT_LE(layout.pieces, cuda::max_pieces(shape)) << here;
          if (positions == 8) continue;  // a small tensor
          EXPECT_GE(blocks, rounds * slots * 9 / 10) << here;
          ++filled;
        }
      }
    }
  }
  EXPECT_GE(filled, 100);
}

}}  // namespace tandem::testing
