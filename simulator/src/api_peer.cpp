// SPDX-License-Identifier: Apache-2.0
//
// Access of one device to the memory of another. Any two devices of the machine can have it.

#include "memory.hpp"

using namespace cudasim;

cudaError_t cudaDeviceCanAccessPeer(int* out, int device, int peer)
{
  CUDASIM_CALL(cudaDeviceCanAccessPeer, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the answer is null"); }
    if (!is_device(c, device) || !is_device(c, peer)) { return cudaErrorInvalidDevice; }
    *out = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

// Libraries that share a process may enable or disable access twice, so those errors are not misuse.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
  CUDASIM_CALL(cudaDeviceEnablePeerAccess, {
    if (flags != 0) { return c.misuse(cudaErrorInvalidValue, "flags have to be 0, not %#x", flags); }
    if (!is_device(c, peer)) { return cudaErrorInvalidDevice; }
    auto& mine = current_device();
    if (peer == mine.number) { return c.misuse(cudaErrorPeerAccessUnsupported, "device %d is its own peer", peer); }
    the_world().devices[static_cast<std::size_t>(peer)].has_context = true;  // access is from context to context
    return mine.peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
  CUDASIM_CALL(cudaDeviceDisablePeerAccess, {
    if (!is_device(c, peer)) { return cudaErrorInvalidDevice; }
    return current_device().peers.erase(peer) != 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* out, cudaDeviceP2PAttr attribute, int device, int peer)
{
  CUDASIM_CALL(cudaDeviceGetP2PAttribute, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the attribute is null"); }
    if (!is_device(c, device) || !is_device(c, peer)) { return cudaErrorInvalidDevice; }
    if (device == peer) { return c.misuse(cudaErrorInvalidDevice, "device %d is its own peer", device); }
    switch (attribute) {
      case cudaDevP2PAttrPerformanceRank:
        *out = 0;
        return cudaSuccess;
      case cudaDevP2PAttrAccessSupported:
      case cudaDevP2PAttrNativeAtomicSupported:
      case cudaDevP2PAttrCudaArrayAccessSupported:
        *out = 1;
        return cudaSuccess;
#if CUDART_VERSION >= 13000
      case cudaDevP2PAttrOnlyPartialNativeAtomicSupported:
        *out = 0;
        return cudaSuccess;
#endif
    }
    return c.misuse(cudaErrorInvalidValue, "unknown attribute %d", static_cast<int>(attribute));
  });
}
