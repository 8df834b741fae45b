// The CUDA driver's functions that cuDNN calls when it makes execution plans for a GPU that is only described. They
// succeed and do nothing; the last ones fail, so that the CUDA runtime reports that there is no GPU.

#define SUCCEEDS(name) \
  int name(void) { return 0; }

SUCCEEDS(cuInit)
SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuDeviceGet)
SUCCEEDS(cuGetErrorName)
SUCCEEDS(cuGetErrorString)
SUCCEEDS(cuKernelGetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryGetKernel)
SUCCEEDS(cuLibraryLoadFromFile)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
SUCCEEDS(cuStreamGetCtx)

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
int cuLibraryLoadData(void** library, const void* code) {
  *library = (void*)code;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  (void)name, (void)version, (void)flags;
  *function = 0;
  return 500;  // CUDA_ERROR_NOT_FOUND
}
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* found) {
  if (found) *found = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
  return cuGetProcAddress(name, function, version, flags);
}
int cuGetExportTable(const void** table, const void* id) {
  (void)id;
  *table = 0;
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}
