// CUDA vector types of indices and sizes.
#pragma once

struct uint3 {
  unsigned int x, y, z;
};

struct dim3 {
  constexpr dim3(unsigned int width = 1, unsigned int height = 1, unsigned int depth = 1)
      : x(width), y(height), z(depth) {}

  unsigned int x, y, z;
};
