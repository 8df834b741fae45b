"""What tools/check/machine_code.py requires of the CUDA kernels' machine code for sm_90a.

Kernels are named OBJECT/KERNEL<TYPES>, patterns as of fnmatch. The numbers are those of the compiled code: lower an exception, or
raise a promise, with the change that improves it.
"""

import typing


class Promise(typing.NamedTuple):
    threads: int  # per block, as launched for large tensors, without dynamic shared memory
    warps: int  # least number of resident warps per multiprocessor
    loads: int = 0  # least number of load and store instructions of 16 bytes
    stores: int = 0


# The kernels that take most of the time of GPT-2's and ResNet's steps; BFloat16 also represents Half.
HOT = {
    "elementwise/for_each_index_kernel<MapBinary<BFloat16, BFloat16, Plus>>": Promise(256, 40, loads=2, stores=1),
    "elementwise/for_each_index_kernel<MapBinary<float, float, Plus>>": Promise(256, 48, loads=2, stores=1),
    "elementwise/for_each_index_kernel<MapBinary<BFloat16, BFloat16, Mul>>": Promise(256, 40, loads=2, stores=1),
    "elementwise/for_each_index_kernel<MapUnary<BFloat16, BFloat16, Relu>>": Promise(256, 64, loads=1, stores=1),
    "elementwise/for_each_index_kernel<MapBinary<BFloat16, BFloat16, GradientOf<Relu>>>": Promise(256, 40, loads=2, stores=1),
    "activation/for_each_index_kernel<MapUnary<BFloat16, BFloat16, GeluTanh>>": Promise(256, 48, loads=1, stores=1),
    "activation/for_each_index_kernel<MapBinary<BFloat16, BFloat16, GradientOf<GeluTanh>>>": Promise(256, 48, loads=2, stores=1),
    "primitives/for_each_index_kernel<Copy<BFloat16, float>>": Promise(256, 64, loads=1),
    "primitives/for_each_index_kernel<Copy<float, BFloat16>>": Promise(256, 64, stores=1),
    "primitives/for_each_element_kernel<2, Copy<unsigned short, unsigned short>>": Promise(256, 48),
    "primitives/for_each_index_kernel<AddInto<BFloat16>>": Promise(256, 64, loads=2, stores=1),
    "primitives/for_each_index_kernel<AddInto<float>>": Promise(256, 64, loads=2, stores=1),
    "elementwise/for_each_index_kernel<AddHalf<BFloat16>>": Promise(256, 64, loads=1, stores=1),
    "attention/attention_kernel<BFloat16, 1, false>": Promise(256, 16),
    "attention/attention_query_gradient_kernel<BFloat16, 1, false>": Promise(256, 8),
    "attention/attention_key_gradient_kernel<BFloat16, 1, false>": Promise(256, 8),
    "layer_norm/layer_norm_warp_kernel<float, BFloat16, 8>": Promise(128, 32, loads=8, stores=8),
    "layer_norm/backward_kernel<float, BFloat16>": Promise(96, 24, loads=8, stores=8),
    "batch_norm/sum_kernel<AddMoments<BFloat16>, 8>": Promise(256, 24, loads=4),
    "batch_norm/map_kernel<Normalise<BFloat16, false>, 8>": Promise(256, 24, loads=4, stores=2),
    "batch_norm/map_kernel<Normalise<BFloat16, true>, 8>": Promise(256, 24, loads=4, stores=2),
    "batch_norm/sum_kernel<AddGradients<BFloat16, Masked<BFloat16>>, 8>": Promise(256, 16, loads=4),
    "batch_norm/sum_kernel<AddGradients<BFloat16, MaskedByResult<BFloat16>>, 8>": Promise(256, 16, loads=8, stores=2),
    "batch_norm/map_kernel<InputGradient<BFloat16>, 8>": Promise(256, 16, loads=6, stores=2),
    "softmax/softmax_warp_kernel<BFloat16, 4>": Promise(128, 32, loads=4, stores=4),
    "softmax/softmax_backward_warp_kernel<BFloat16, 4>": Promise(128, 20, loads=8, stores=4),
    "softmax/softmax_kernel<BFloat16, 8>": Promise(512, 64, loads=2, stores=1),
    "softmax/softmax_backward_kernel<BFloat16, 8>": Promise(512, 64, loads=4, stores=1),
    "loss/cross_entropy_kernel<BFloat16, 8>": Promise(512, 64, loads=1),
    "loss/cross_entropy_backward_kernel<BFloat16, 8>": Promise(512, 64, loads=1, stores=1),
    "embedding/for_each_index_kernel<TakeRows<Pack<unsigned int, 4>>>": Promise(256, 64, loads=1, stores=1),
    "embedding/embedding_backward_kernel<BFloat16, 8>": Promise(256, 40, loads=8, stores=1),
    "matmul/sum_rows_kernel<BFloat16, 8, StoredRows<BFloat16>>": Promise(256, 32, loads=9),
    "matmul/sum_rows_kernel<BFloat16, 8, ActivationGradients<BFloat16, ReluGradient>>": Promise(256, 24, loads=10, stores=5),
    "matmul/sum_rows_kernel<BFloat16, 8, ActivationGradients<BFloat16, GeluTanhGradient>>": Promise(256, 24, loads=10, stores=5),
    "reduce/fold_columns_kernel<folds::Sum, BFloat16, float, BFloat16>": Promise(256, 64),
    "max_pool/for_each_index_kernel<MaxPool<BFloat16, unsigned char, unsigned int, 8>>": Promise(256, 40, loads=1, stores=1),
    "max_pool/for_each_index_kernel<MaxPoolBackward<BFloat16, unsigned char, unsigned int, 8>>": Promise(256, 48, loads=1, stores=1),
    "random/for_each_index_kernel<Draw<float, Dropout<float>>>": Promise(256, 48, loads=1, stores=1),
    "random/for_each_index_kernel<Draw<BFloat16, Dropout<BFloat16>>>": Promise(256, 64),
    "clip_grad/for_each_chunk_kernel<1, ChunkNorm<float>>": Promise(256, 40, loads=1),
    "adam/for_each_chunk_kernel<6, UpdateChunk<AdamWRule, float, false, false>>": Promise(256, 40),
    "sgd/for_each_chunk_kernel<4, UpdateChunk<SgdRule, float, true, true, false, false>>": Promise(256, 64),
}

# Bytes of local memory per thread: spilled registers, and arrays with indices that the compiler does not know.
LOCAL = {
    "attention/attention_key_gradient_kernel<double, 2, false>": 192,
    "attention/attention_key_gradient_kernel<double, 1, true>": 16,
    "math/*MapUnary<*, Sine<*>>>": 40,  # the reduction of large arguments
    "math/for_each_element_kernel<2, MapUnary<*, RareFunction>>": 40,
    "math/for_each_index_kernel<MapUnary<double, double, RareFunction>>": 80,
    "math/for_each_index_kernel<MapUnary<[BH]*, RareFunction>>": 64,
    "random/*<Draw<double, Normal<*>>>": 40,
}

# Calls of an IEEE division or square root in the hot kernels of half types.
DIVISIONS = {
    "attention/attention_kernel<BFloat16, 1, false>": 12,  # three copies of four
    "batch_norm/map_kernel<InputGradient<BFloat16>, 8>": 4,  # per channel, not per element
    "layer_norm/backward_kernel<float, BFloat16>": 2,
    "layer_norm/layer_norm_warp_kernel<float, BFloat16, 8>": 5,
    "loss/cross_entropy_backward_kernel<BFloat16, 8>": 1,
    "reduce/fold_columns_kernel<folds::Sum, BFloat16, float, BFloat16>": 1,
    "softmax/softmax_kernel<BFloat16, 8>": 1,  # per row
    "softmax/softmax_warp_kernel<BFloat16, 4>": 1,
}

# KiB of machine code per object, 5 to 10 % above the compiled code; "*": all others.
CODE_KIB = {
    "activation": 2000,
    "attention": 3950,
    "avg_pool": 500,
    "batch_norm": 1620,
    "conv": 345,
    "elementwise": 5500,
    "elementwise_loss": 930,
    "index": 960,
    "layer_norm": 480,
    "math": 7000,
    "matmul": 880,
    "max_pool": 620,
    "pair": 2500,
    "primitives": 1650,
    "random": 470,
    "reduce": 1450,
    "scan": 1400,
    "softmax": 385,
    "*": 360,
}
# KiB of all objects' compressed code (.nv_fatbin), if compiled for sm_90a only.
FATBIN_KIB = 3180
