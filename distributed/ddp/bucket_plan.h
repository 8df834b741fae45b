// Which gradient lies where in the flat buffers, and which ranges travel together.
//
// Vocabulary.  A *buffer* is one flat allocation per dtype and device.  A *bucket* is a range of a buffer that is
// all-reduced by one operation.  A *module* here is a run of parameters with the same path up to the last '.': their
// gradients become ready at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// What the plan needs to know of a parameter.
struct ParameterInfo {
  std::string name;
  int64_t num_elements = 0;
  DType dtype = kFloat32;
  Device device = {};
};

struct BucketSizes {
  int64_t first_bytes = 256 << 10;  ///< the first bucket is small, so that communication starts early
  int64_t bucket_bytes = 4 << 20;   ///< larger modules are split, or get a bucket of their own
  int64_t last_bytes = 256 << 10;   ///< the last buckets halve down to this, so that little is left when backward ends
  bool split = true;                ///< whether a bucket may hold a part of a parameter
};

struct BucketPlan {
  struct Buffer {
    DType dtype;
    Device device;
    int64_t num_elements;
  };
  struct Placement {
    int buffer;
    int64_t offset;  ///< in elements, a multiple of 64 bytes
  };
  struct Bucket {
    int buffer;
    int64_t begin;  ///< in elements
    int64_t end;
    int first_parameter;  ///< of those it holds (a part of), in registration order: the last one to become ready
    int last_parameter;
  };
  std::vector<Buffer> buffers;
  std::vector<Placement> placements;  ///< by parameter
  std::vector<Bucket> buckets;        ///< in the order of launching
};

/// Plans for gradients that become ready in reverse order of registration.  A pure function of its arguments: ranks that
/// agree on the parameters agree on the plan.
TANDEM_API BucketPlan plan_buckets(const std::vector<ParameterInfo>& parameters, const BucketSizes& sizes = {});

}}}  // namespace tandem::v0::distributed
