// A library in C that produces and consumes tensors by DLPack, and a definition of DLPack's structures independent of
// tandem's.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint32_t major, minor;
} DLPackVersion;
typedef struct {
  int32_t device_type, device_id;
} DLDevice;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

// Produces a tensor whose deleter counts its calls in `deleted`.
DLManagedTensorVersioned* peer_produce(DLTensor tensor, int* deleted);
// Consumes a float32 tensor: adds 1 to each element and calls the deleter.
void peer_consume(DLManagedTensorVersioned* managed);

#ifdef __cplusplus
}
#endif
