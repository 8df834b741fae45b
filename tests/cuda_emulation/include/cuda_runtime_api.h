// Includes cuda_runtime.h: the emulated runtime has one header.
#pragma once

#include <cuda_runtime.h>
