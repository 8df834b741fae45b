// Layout of gradients in flat buffers and buckets.
//
// A *buffer* is one flat allocation per dtype and device. A *bucket* is a range of a buffer that is averaged by one
// all-reduce. A *module* is a run of consecutive parameters whose names agree up to the last '.'; their gradients
// become ready at about the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Properties of a parameter that determine the plan.
struct ParameterInfo {
  std::string name;          ///< path in the module
  int64_t num_elements = 0;  ///< product of the sizes
  DType dtype = kFloat32;    ///< of the gradient
  Device device = {};        ///< of the gradient
};

/// Target sizes in bytes.
struct BucketSizes {
  int64_t first_bytes = 256 << 10;  ///< first bucket; small, so that communication starts early
  int64_t bucket_bytes = 4 << 20;   ///< maximum; larger modules are split, or use one larger bucket (see split)
  int64_t last_bytes =
      256 << 10;      ///< last buckets shrink by halves to this size, so that little remains when backward ends
  bool split = true;  ///< whether a parameter may be split between buckets
};

/// Places of all gradients in buffers and buckets.
struct BucketPlan {
  /// One flat allocation.
  struct Buffer {
    DType dtype;           ///< of all its gradients
    Device device;         ///< of all its gradients
    int64_t num_elements;  ///< including padding between gradients
  };
  /// Place of a parameter's gradient.
  struct Placement {
    int buffer;      ///< index in `buffers`
    int64_t offset;  ///< in elements; aligned to 64 bytes
  };
  /// A range of a buffer that is all-reduced at once.
  struct Bucket {
    int buffer;           ///< index in `buffers`
    int64_t begin;        ///< in elements, inclusive
    int64_t end;          ///< in elements, exclusive
    int first_parameter;  ///< parameters in the bucket, in registration order; the first one becomes ready last
    int last_parameter;   ///< inclusive
  };
  std::vector<Buffer> buffers;        ///< one per dtype and device
  std::vector<Placement> placements;  ///< one per parameter
  std::vector<Bucket> buckets;        ///< in launch order
};

/// Computes the layout for gradients that become ready in reverse registration order. With `num_pieces` > 0 no
/// parameter is split, and the size of each bucket is a multiple of num_pieces times 64 bytes. A pure function: ranks
/// with equal arguments compute equal plans.
TANDEM_API BucketPlan plan_buckets(const std::vector<ParameterInfo>& parameters, BucketSizes sizes = {},
                                   int num_pieces = 0);

/// A bucket, which is a buffer, for each unit, dtype and device; unit_of[i] is the number of parameter i's unit. The
/// buckets of later units come first, those of unit 0 last. Sizes are multiples of num_pieces times 64 bytes.
BucketPlan plan_units(const std::vector<ParameterInfo>& parameters, const std::vector<size_t>& unit_of, int num_pieces);

}}}  // namespace tandem::v0::distributed
