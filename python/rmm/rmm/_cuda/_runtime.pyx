# SPDX-License-Identifier: Apache-2.0
"""The calls of the CUDA runtime that rmm._cuda.gpu wraps. Each function returns the status as its first result."""

from libc.string cimport memset
from libcpp.pair cimport pair
from libcpp.string cimport string


cdef extern from "pylibrmm/_exact_integers.hpp":
    pass


cdef extern from "cuda_runtime_api.h" nogil:
    ctypedef int cudaError_t
    ctypedef int cudaDeviceAttr

    cdef struct cudaDeviceProp:
        char name[256]
        size_t totalGlobalMem
        size_t sharedMemPerBlock
        int regsPerBlock
        int warpSize
        size_t memPitch
        int maxThreadsPerBlock
        int maxThreadsDim[3]
        int maxGridSize[3]
        size_t totalConstMem
        int major
        int minor
        int multiProcessorCount
        int integrated
        int canMapHostMemory
        int concurrentKernels
        int ECCEnabled
        int pciBusID
        int pciDeviceID
        int pciDomainID
        int asyncEngineCount
        int unifiedAddressing
        int memoryBusWidth
        int l2CacheSize
        int maxThreadsPerMultiProcessor
        int managedMemory
        int pageableMemoryAccess
        int concurrentManagedAccess
        int memoryPoolsSupported

    int cudaDriverGetVersion(int*)
    int cudaRuntimeGetVersion(int*)
    int cudaGetDevice(int*)
    int cudaSetDevice(int)
    int cudaGetDeviceCount(int*)
    int cudaDeviceGetAttribute(int*, cudaDeviceAttr, int)
    int cudaGetDeviceProperties(cudaDeviceProp*, int)
    int cudaDeviceCanAccessPeer(int*, int, int)
    int cudaGetLastError()
    int cudaMalloc(void**, size_t)
    int cudaMallocAsync(void**, size_t, void*)
    int cudaFree(void*)
    const char* c_error_name "cudaGetErrorName"(cudaError_t)
    const char* c_error_string "cudaGetErrorString"(cudaError_t)


cdef extern from "_cuda/_driver_error.hpp" namespace "rmm_python" nogil:
    pair[string, string] c_driver_error "rmm_python::driver_error"(int status) except +


cdef extern from "dlfcn.h" nogil:
    ctypedef struct Dl_info:
        const char* dli_fname

    int dladdr(const void*, Dl_info*)


cdef answer(int status, int value):
    if status != 0:
        cudaGetLastError()  # clears the error, which the caller reports, so that later calls do not find it
    return (status, value)


def places():
    """Returns the files that the CUDA functions of this module come from; "" where the loader does not know."""
    cdef const void* functions[4]
    cdef Dl_info info
    functions[0] = <const void*>&cudaGetDevice
    functions[1] = <const void*>&cudaMalloc
    functions[2] = <const void*>&cudaMallocAsync
    functions[3] = <const void*>&cudaFree
    found = []
    for function in functions:
        info.dli_fname = NULL
        dladdr(function, &info)
        found.append("" if info.dli_fname == NULL else info.dli_fname.decode(errors="surrogateescape"))
    return found


def error_name(int status):
    return c_error_name(<cudaError_t>status).decode()


def error_string(int status):
    return c_error_string(<cudaError_t>status).decode()


def driver_error(int status):
    cdef pair[string, string] texts = c_driver_error(status)
    return texts.first.decode(), texts.second.decode()


def driver_version():
    """The status of the call, and the release of CUDA that the driver serves."""
    cdef int version = 0
    cdef int status = cudaDriverGetVersion(&version)
    return answer(status, version)


def runtime_version():
    """The status of the call, and the release of the CUDA runtime."""
    cdef int version = 0
    cdef int status = cudaRuntimeGetVersion(&version)
    return answer(status, version)


def get_device():
    """The status of the call, and the current device."""
    cdef int device = 0
    cdef int status = cudaGetDevice(&device)
    return answer(status, device)


def set_device(int device):
    cdef int status
    with nogil:
        status = cudaSetDevice(device)
    return answer(status, 0)


def device_count():
    """The status of the call, and the number of devices."""
    cdef int count = 0
    cdef int status
    with nogil:
        status = cudaGetDeviceCount(&count)
    return answer(status, count)


def can_access_peer(int device, int peer):
    cdef int can = 0
    cdef int status
    with nogil:
        status = cudaDeviceCanAccessPeer(&can, device, peer)
    return answer(status, can)


def device_attribute(int attribute, int device):
    cdef int value = 0
    cdef int status = cudaDeviceGetAttribute(&value, <cudaDeviceAttr>attribute, device)
    return answer(status, value)


def device_properties(int device):
    cdef cudaDeviceProp properties
    memset(&properties, 0, sizeof(properties))
    cdef int status
    with nogil:
        status = cudaGetDeviceProperties(&properties, device)
    if status != 0:
        return answer(status, 0)
    return status, dict(properties)
