// SPDX-License-Identifier: Apache-2.0
//
// The last error of a thread, and the names and texts of errors.

#include "reports.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace cudasim {
namespace {

struct error_description {
  int number;
  char const* name;
  char const* text;
};

// Sorted by number. The names are CUDA's, and so are the texts of errors that programs meet here.
constexpr error_description errors[]{
  {0, "cudaSuccess", "no error"},
  {1, "cudaErrorInvalidValue", "invalid argument"},
  {2, "cudaErrorMemoryAllocation", "out of memory"},
  {3, "cudaErrorInitializationError", "initialization error"},
  {4, "cudaErrorCudartUnloading", "driver shutting down"},
  {5, "cudaErrorProfilerDisabled", "profiling is disabled while another tool profiles"},
  {6, "cudaErrorProfilerNotInitialized", "the profiler was not initialized"},
  {7, "cudaErrorProfilerAlreadyStarted", "profiling is under way already"},
  {8, "cudaErrorProfilerAlreadyStopped", "profiling is not under way"},
  {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
  {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
  {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
  {16, "cudaErrorInvalidHostPointer", "invalid host pointer"},
  {17, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
  {18, "cudaErrorInvalidTexture", "unknown texture reference"},
  {19, "cudaErrorInvalidTextureBinding", "the texture has no memory behind it"},
  {20, "cudaErrorInvalidChannelDescriptor", "unknown channel format"},
  {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
  {22, "cudaErrorAddressOfConstant", "a constant has no address that can be taken here"},
  {23, "cudaErrorTextureFetchFailed", "a texture fetch failed"},
  {24, "cudaErrorTextureNotBound", "a texture fetch from an unbound texture"},
  {25, "cudaErrorSynchronizationError", "threads of a block met at different barriers"},
  {26, "cudaErrorInvalidFilterSetting", "linear filtering needs a floating-point texture"},
  {27, "cudaErrorInvalidNormSetting", "normalized reads need an integer texture of 8 or 16 bits"},
  {28, "cudaErrorMixedDeviceExecution", "device emulation mixed with device execution"},
  {31, "cudaErrorNotYetImplemented", "not implemented in this version"},
  {32, "cudaErrorMemoryValueTooLarge", "a size or address does not fit in 32 bits"},
  {34, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
  {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
  {36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"},
  {37, "cudaErrorInvalidSurface", "unknown surface reference"},
  {43, "cudaErrorDuplicateVariableName", "two global variables have the same name"},
  {44, "cudaErrorDuplicateTextureName", "two textures have the same name"},
  {45, "cudaErrorDuplicateSurfaceName", "two surfaces have the same name"},
  {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
  {49, "cudaErrorIncompatibleDriverContext", "the current driver context does not fit the runtime"},
  {52, "cudaErrorMissingConfiguration", "a kernel launch without a configuration"},
  {53, "cudaErrorPriorLaunchFailure", "an earlier launch failed"},
  {65, "cudaErrorLaunchMaxDepthExceeded", "launches are nested too deeply"},
  {66, "cudaErrorLaunchFileScopedTex", "the kernel uses file-scope textures, which this launch cannot"},
  {67, "cudaErrorLaunchFileScopedSurf", "the kernel uses file-scope surfaces, which this launch cannot"},
  {68, "cudaErrorSyncDepthExceeded", "a device-side synchronization is nested too deeply"},
  {69, "cudaErrorLaunchPendingCountExceeded", "too many launches are pending on the device"},
  {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
  {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
  {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
  {102, "cudaErrorDeviceNotLicensed", "no license for this use of the device"},
  {103, "cudaErrorSoftwareValidityNotEstablished", "the integrity of the software is not established"},
  {127, "cudaErrorStartupFailure", "the runtime could not start"},
  {200, "cudaErrorInvalidKernelImage", "the kernel image cannot be read"},
  {201, "cudaErrorDeviceUninitialized", "invalid device context"},
  {205, "cudaErrorMapBufferObjectFailed", "a buffer object could not be mapped"},
  {206, "cudaErrorUnmapBufferObjectFailed", "a buffer object could not be unmapped"},
  {207, "cudaErrorArrayIsMapped", "the array is mapped"},
  {208, "cudaErrorAlreadyMapped", "the resource is mapped already"},
  {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
  {210, "cudaErrorAlreadyAcquired", "the resource is acquired already"},
  {211, "cudaErrorNotMapped", "the resource is not mapped"},
  {212, "cudaErrorNotMappedAsArray", "the resource is not mapped as an array"},
  {213, "cudaErrorNotMappedAsPointer", "the resource is not mapped as a pointer"},
  {214, "cudaErrorECCUncorrectable", "memory error that cannot be corrected"},
  {215, "cudaErrorUnsupportedLimit", "limit is not supported on this architecture"},
  {216, "cudaErrorDeviceAlreadyInUse", "another thread uses the exclusive device"},
  {217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
  {218, "cudaErrorInvalidPtx", "PTX code could not be compiled"},
  {219, "cudaErrorInvalidGraphicsContext", "unusable OpenGL or DirectX context"},
  {220, "cudaErrorNvlinkUncorrectable", "NVLink error that cannot be corrected"},
  {221, "cudaErrorJitCompilerNotFound", "the PTX compiler library was not found"},
  {222, "cudaErrorUnsupportedPtxVersion", "PTX code of a toolchain that is not supported"},
  {223, "cudaErrorJitCompilationDisabled", "compilation of PTX code is disabled"},
  {224, "cudaErrorUnsupportedExecAffinity", "that execution affinity is not supported"},
  {225, "cudaErrorUnsupportedDevSideSync", "PTX code that synchronizes on the device, which is not supported"},
  {226, "cudaErrorContained", "the error of a peer's memory or link was contained"},
  {300, "cudaErrorInvalidSource", "the device code cannot be used"},
  {301, "cudaErrorFileNotFound", "a file was not found"},
  {302, "cudaErrorSharedObjectSymbolNotFound", "a symbol of a shared object was not found"},
  {303, "cudaErrorSharedObjectInitFailed", "a shared object could not be initialized"},
  {304, "cudaErrorOperatingSystem", "a call of the operating system failed"},
  {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
  {401, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
  {402, "cudaErrorLossyQuery", "the answer would leave something out"},
  {500, "cudaErrorSymbolNotFound", "named symbol not found"},
  {600, "cudaErrorNotReady", "device not ready"},
  {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
  {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
  {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
  {703, "cudaErrorLaunchIncompatibleTexturing", "the launch uses another texturing mode"},
  {704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
  {705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
  {708, "cudaErrorSetOnActiveProcess", "cannot set while device is active in this process"},
  {709, "cudaErrorContextIsDestroyed", "context is destroyed"},
  {710, "cudaErrorAssert", "device-side assert triggered"},
  {711, "cudaErrorTooManyPeers", "no room for another peer mapping"},
  {712, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
  {713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
  {714, "cudaErrorHardwareStackError", "stack error on the device"},
  {715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
  {716, "cudaErrorMisalignedAddress", "misaligned address"},
  {717, "cudaErrorInvalidAddressSpace", "the instruction does not work on that address space"},
  {718, "cudaErrorInvalidPc", "the program counter left the program"},
  {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
  {720, "cudaErrorCooperativeLaunchTooLarge", "a cooperative launch with more blocks than fit at once"},
  {721, "cudaErrorTensorMemoryLeak", "tensor memory was not freed completely"},
  {800, "cudaErrorNotPermitted", "operation not permitted"},
  {801, "cudaErrorNotSupported", "operation not supported"},
  {802, "cudaErrorSystemNotReady", "system not yet initialized"},
  {803, "cudaErrorSystemDriverMismatch", "display driver and CUDA driver do not fit together"},
  {804, "cudaErrorCompatNotSupportedOnDevice", "forward compatibility is not available on this device"},
  {805, "cudaErrorMpsConnectionFailed", "no connection to the MPS daemon or server"},
  {806, "cudaErrorMpsRpcFailure", "a remote call to the MPS server failed"},
  {807, "cudaErrorMpsServerNotReady", "the MPS server takes no requests yet"},
  {808, "cudaErrorMpsMaxClientsReached", "the MPS server takes no more clients"},
  {809, "cudaErrorMpsMaxConnectionsReached", "the MPS server takes no more connections"},
  {810, "cudaErrorMpsClientTerminated", "the MPS server ended this client"},
  {811, "cudaErrorCdpNotSupported", "dynamic parallelism is not supported in this configuration"},
  {812, "cudaErrorCdpVersionMismatch", "versions of dynamic parallelism that do not work together"},
  {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
  {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
  {902, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
  {903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
  {904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
  {905, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
  {906,
   "cudaErrorStreamCaptureImplicit",
   "operation would make the legacy stream depend on a capturing blocking stream"},
  {907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
  {908,
   "cudaErrorStreamCaptureWrongThread",
   "attempt to terminate a thread-local capture sequence from another thread"},
  {909, "cudaErrorTimeout", "wait operation timed out"},
  {910, "cudaErrorGraphExecUpdateFailure", "the instantiated graph cannot be updated with these changes"},
  {911, "cudaErrorExternalDevice", "asynchronous error of something outside of CUDA"},
  {912, "cudaErrorInvalidClusterSize", "a launch with clusters that do not fit"},
  {913, "cudaErrorFunctionNotLoaded", "the function has not been loaded yet"},
  {914, "cudaErrorInvalidResourceType", "a resource of a type that the operation does not take"},
  {915, "cudaErrorInvalidResourceConfiguration", "resources that are too few or do not apply"},
  {999, "cudaErrorUnknown", "unknown error"},
};

constexpr char const* unknown_error = "unrecognized error code";

[[nodiscard]] error_description const* describe(int number) noexcept
{
  auto const* const found = std::lower_bound(
    std::begin(errors), std::end(errors), number, [](error_description const& e, int n) { return e.number < n; });
  return found != std::end(errors) && found->number == number ? found : nullptr;
}

}  // namespace

char const* error_name(cudaError_t error) noexcept
{
  auto const* const known = describe(error);
  return known == nullptr ? nullptr : known->name;
}

bool find_error(std::string const& name, cudaError_t& out)
{
  auto const* const by_name =
    std::find_if(std::begin(errors), std::end(errors), [&](error_description const& e) { return e.name == name; });
  if (by_name != std::end(errors)) {
    out = static_cast<cudaError_t>(by_name->number);
    return true;
  }
  bool const is_number = !name.empty() && name.size() < 6 &&
                         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) { return false; }
  out = static_cast<cudaError_t>(std::atoi(name.c_str()));
  return error_name(out) != nullptr;
}

}  // namespace cudasim

using namespace cudasim;

// These four report errors: they return none of their own, are not counted and cannot be made to fail.

cudaError_t cudaPeekAtLastError() { return this_thread().last_error; }

cudaError_t cudaGetLastError()
{
  auto& state      = this_thread();
  auto const last  = state.last_error;
  state.last_error = cudaSuccess;
  return last;
}

char const* cudaGetErrorName(cudaError_t error)
{
  auto const* const known = describe(error);
  return known == nullptr ? unknown_error : known->name;
}

char const* cudaGetErrorString(cudaError_t error)
{
  auto const* const known = describe(error);
  return known == nullptr ? unknown_error : known->text;
}
