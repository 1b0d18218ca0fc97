// SPDX-License-Identifier: Apache-2.0
//
// Memory of one process open in another. The handle names the exporting process's memory file, which the opener reaches
// through /proc. The whole block that holds the pointer is mapped, as in CUDA.

#include "memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace cudasim {
namespace {

/// The content of a handle.
struct memory_note {
  static constexpr std::uint64_t expected = 0x79726f6d656d5f6dULL;
  std::uint64_t magic;
  std::uint64_t process;  ///< token of the process
  std::int32_t pid;
  std::int32_t descriptor;
  std::int32_t device;
  std::int32_t unused;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t serial;  ///< serial of the allocation
};
static_assert(sizeof(memory_note) <= sizeof(cudaIpcMemHandle_t) && std::is_trivially_copyable_v<memory_note>);

/// Opens the memory file of another process. Returns -1 if the process is gone, or its descriptor is not a memory file.
[[nodiscard]] int open_file(memory_note const& note)
{
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", note.pid, note.descriptor);
  char target[64]{};
  if (::readlink(path, target, sizeof target - 1) < 0 || std::strstr(target, "cudasim") == nullptr) { return -1; }
  return ::open(path, O_RDWR | O_CLOEXEC);
}

[[nodiscard]] std::string key_of(cudaIpcMemHandle_t const& handle) { return {handle.reserved, sizeof(memory_note)}; }

}  // namespace
}  // namespace cudasim

using namespace cudasim;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* ptr)
{
  CUDASIM_CALL(cudaIpcGetMemHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer for the handle is null"); }
    auto const found = find_allocation(address_of(ptr));
    if (found == memory().allocations.end() || found->second.type != allocation::kind::device) {
      return refuse_pointer(c, cudaErrorInvalidValue, ptr);
    }
    auto const& what  = found->second;
    auto const& owner = memory_of(what.device);
    memory_note const note{memory_note::expected,
                           process_token(),
                           ::getpid(),
                           owner.pages.descriptor(),
                           what.device,
                           0,
                           owner.blocks.offset_of(found->first),
                           what.bytes,
                           what.serial};
    *out = {};
    std::memcpy(out->reserved, &note, sizeof note);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned flags)
{
  CUDASIM_CALL(cudaIpcOpenMemHandle, {
    if (out == nullptr) { return c.misuse(cudaErrorInvalidValue, "the output pointer is null"); }
    if (flags != cudaIpcMemLazyEnablePeerAccess) {
      return c.misuse(cudaErrorInvalidValue, "flags have to be cudaIpcMemLazyEnablePeerAccess, not %#x", flags);
    }
    memory_note note{};
    std::memcpy(&note, handle.reserved, sizeof note);
    if (note.magic != memory_note::expected) {
      return c.misuse(cudaErrorInvalidValue, "the handle was not made by cudaIpcGetMemHandle");
    }
    if (note.process == process_token()) {
      return c.misuse(cudaErrorDeviceUninitialized,
                      "the handle was made by this process and can only be opened in others");
    }
    auto& m = memory();
    if (auto const known = m.opened.find(key_of(handle)); known != m.opened.end()) {
      ++known->second.uses;
      *out = pointer_to(known->second.begin);
      return cudaSuccess;
    }
    auto const descriptor = open_file(note);
    if (descriptor < 0) { return cudaErrorMapBufferObjectFailed; }
    memory_file file{"cudasim-opened", descriptor};
    auto const first  = note.offset & ~std::uint64_t{page_bytes - 1};
    auto const inside = static_cast<std::size_t>(note.offset - first);
    auto const length = round_up(inside + note.bytes, page_bytes);
    auto const window = m.addresses.claim(length + guard_bytes, block_bytes);
    if (window == 0) { return cudaErrorMemoryAllocation; }
    if (!file.map(window, length, first) || !protect(window, length, protection::read_write)) {
      m.addresses.give_up(window);
      return cudaErrorMapBufferObjectFailed;
    }
    auto const device = note.device < the_world().machine.devices ? note.device : this_thread().device;
    auto const begin  = window + inside;
    m.opened.emplace(key_of(handle), opened_memory{begin, window, 1});
    add_allocation(begin, allocation{allocation::kind::opened, note.bytes, device, c.name(), c.site()});
    *out = pointer_to(begin);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* ptr)
{
  CUDASIM_CALL(cudaIpcCloseMemHandle, {
    auto& m         = memory();
    auto const find = [&] {
      return std::find_if(
        m.opened.begin(), m.opened.end(), [&](auto const& one) { return one.second.begin == address_of(ptr); });
    };
    auto known = find();
    if (known == m.opened.end()) { return refuse_pointer(c, cudaErrorInvalidValue, ptr); }
    if (known->second.uses == 1) {
      auto const bytes = m.allocations.at(known->second.begin).bytes;
      if (auto const error = end_use(c, known->second.begin, bytes); error != cudaSuccess) { return error; }
      known = find();  // another thread may have closed it during the wait
      if (known == m.opened.end()) { return refuse_pointer(c, cudaErrorInvalidValue, ptr); }
    }
    if (--known->second.uses != 0) { return cudaSuccess; }
    release_allocation(m.allocations.find(known->second.begin), c.name(), c.site());
    m.addresses.give_up(known->second.window);
    m.opened.erase(known);
    return cudaSuccess;
  });
}
