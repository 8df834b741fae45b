// CUDA vector types: uint3, dim3, float4 and others.
#pragma once

#define TANDEM_EMULATED_VECTORS(scalar, prefix, align2, align4)                            \
  struct prefix##1 {                                                                       \
    scalar x;                                                                              \
  };                                                                                       \
  struct alignas(align2) prefix##2 {                                                       \
    scalar x, y;                                                                           \
  };                                                                                       \
  struct prefix##3 {                                                                       \
    scalar x, y, z;                                                                        \
  };                                                                                       \
  struct alignas(align4) prefix##4 {                                                       \
    scalar x, y, z, w;                                                                     \
  };                                                                                       \
  constexpr prefix##1 make_##prefix##1(scalar x) { return {x}; }                           \
  constexpr prefix##2 make_##prefix##2(scalar x, scalar y) { return {x, y}; }              \
  constexpr prefix##3 make_##prefix##3(scalar x, scalar y, scalar z) { return {x, y, z}; } \
  constexpr prefix##4 make_##prefix##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

TANDEM_EMULATED_VECTORS(signed char, char, 2, 4)
TANDEM_EMULATED_VECTORS(unsigned char, uchar, 2, 4)
TANDEM_EMULATED_VECTORS(short, short, 4, 8)
TANDEM_EMULATED_VECTORS(unsigned short, ushort, 4, 8)
TANDEM_EMULATED_VECTORS(int, int, 8, 16)
TANDEM_EMULATED_VECTORS(unsigned int, uint, 8, 16)
TANDEM_EMULATED_VECTORS(long long, longlong, 16, 16)
TANDEM_EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
TANDEM_EMULATED_VECTORS(float, float, 8, 16)
TANDEM_EMULATED_VECTORS(double, double, 16, 16)

#undef TANDEM_EMULATED_VECTORS

struct dim3 {
  constexpr dim3(unsigned int width = 1, unsigned int height = 1, unsigned int depth = 1)
      : x(width), y(height), z(depth) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }

  unsigned int x, y, z;
};
