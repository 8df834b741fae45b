#include <tandem/tests/tensor/dlpack_peer.h>

#include <stdlib.h>

static void count_and_free(DLManagedTensorVersioned* self) {
  ++*(int*)self->manager_ctx;
  free(self);
}

DLManagedTensorVersioned* peer_produce(DLTensor tensor, int* deleted) {
  DLManagedTensorVersioned* managed = malloc(sizeof *managed);
  *managed = (DLManagedTensorVersioned){{1, 3}, deleted, count_and_free, 0, tensor};
  return managed;
}

static void increment(const DLTensor* tensor, int32_t dim, float* first) {
  if (dim == tensor->ndim) {
    *first += 1;
    return;
  }
  for (int64_t i = 0; i < tensor->shape[dim]; ++i) increment(tensor, dim + 1, first + i * tensor->strides[dim]);
}

void peer_consume(DLManagedTensorVersioned* managed) {
  increment(&managed->dl_tensor, 0, managed->dl_tensor.data);
  managed->deleter(managed);
}
