// SPDX-License-Identifier: Apache-2.0
//
// cudaMemcpy* and cudaMemset*.
//
// Every copy is a box of bytes: rows of a width, a pitch from row to row, and a pitch from slice to slice. A call makes
// the host wait when an H200 with driver 580 does; see docs/simulator.md.

#include "attributes.hpp"
#include "capture.hpp"
#include "memory.hpp"
#include "reports.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cudasim {
namespace {

constexpr std::uint64_t latency_ns = 1'000;

/// Bytes moved in a nanosecond of virtual time.
constexpr std::uint64_t host_speed   = 25;
constexpr std::uint64_t peer_speed   = 200;
constexpr std::uint64_t device_speed = 2'000;

/// Pageable sources up to this size are copied when an asynchronous copy is queued; for larger ones the call waits.
constexpr std::size_t staging_bytes = std::size_t{1} << 20U;

struct box {
  std::size_t width;  ///< bytes of a row
  std::size_t height{1};
  std::size_t depth{1};
  [[nodiscard]] bool empty() const noexcept { return width == 0 || height == 0 || depth == 0; }
  [[nodiscard]] std::size_t volume() const noexcept { return width * height * depth; }
};

/// One end of a copy.
struct side {
  char* base;                  ///< beginning of the box
  std::size_t pitch{0};        ///< bytes from row to row
  std::size_t slice_pitch{0};  ///< bytes from slice to slice
  std::size_t offset{0};       ///< offset of `base` from the program's pointer
  memory_info info{};          ///< the allocation behind the program's pointer

  [[nodiscard]] bool pageable() const noexcept { return info.type == cudaMemoryTypeUnregistered; }
  [[nodiscard]] bool on_host() const noexcept { return pageable() || info.type == cudaMemoryTypeHost; }
  [[nodiscard]] bool on_device() const noexcept { return info.type == cudaMemoryTypeDevice; }
  [[nodiscard]] char* given() const noexcept { return base - offset; }
  [[nodiscard]] char* row(std::size_t y, std::size_t z) const noexcept { return base + z * slice_pitch + y * pitch; }
};

[[nodiscard]] side make_side(void const* base, std::size_t pitch = 0, std::size_t slice_pitch = 0)
{
  return side{static_cast<char*>(const_cast<void*>(base)), pitch, slice_pitch};
}

/// Offset of a byte in a pitched layout. Returns false if it does not fit in the address space.
[[nodiscard]] bool find_offset(side const& s, std::size_t x, std::size_t y, std::size_t z, std::size_t& out)
{
  std::size_t rows   = 0;
  std::size_t slices = 0;
  return !__builtin_mul_overflow(s.pitch, y, &rows) && !__builtin_mul_overflow(s.slice_pitch, z, &slices) &&
         !__builtin_add_overflow(rows, slices, &out) && !__builtin_add_overflow(out, x, &out);
}

/// Whether the rows follow each other without gaps, so that the box is one range of bytes.
[[nodiscard]] bool contiguous(side const& s, box const& size)
{
  return (size.height == 1 || s.pitch == size.width) && (size.depth == 1 || s.slice_pitch == size.width * size.height);
}

void add_accesses(std::vector<access>& out, side const& s, box const& size, bool write)
{
  if (s.pageable()) { return; }  // ordinary host memory is not checked
  if (contiguous(s, size)) {
    out.push_back({address_of(s.base), size.volume(), write});
    return;
  }
  for (std::size_t z = 0; z < size.depth; ++z) {
    for (std::size_t y = 0; y < size.height; ++y) { out.push_back({address_of(s.row(y, z)), size.width, write}); }
  }
}

/// Looks up the memory behind one end, and checks that the box lies inside it.
[[nodiscard]] cudaError_t check_side(call& c, side& s, box const& size, char const* role, bool has_to_be_known)
{
  if (s.given() == nullptr) { return c.misuse(cudaErrorInvalidValue, "the %s is null", role); }
  std::size_t bytes = 0;  // from the given pointer to the end of the box
  if (!find_offset(s, size.width, size.height - 1, size.depth - 1, bytes) ||
      __builtin_add_overflow(bytes, s.offset, &bytes)) {
    return c.misuse(cudaErrorInvalidValue, "the %s is larger than the address space", role);
  }
  s.info = lookup(s.given());
  if (!check_bytes(c.name(), c.site(), address_of(s.given()), bytes)) { return cudaErrorInvalidValue; }
  if (has_to_be_known && s.pageable()) {
    return c.misuse(cudaErrorInvalidValue, "the %s %p is not memory of CUDA", role, static_cast<void*>(s.given()));
  }
  return cudaSuccess;
}

/// Checks the direction, then both ends. The sides that the direction calls device memory must be memory of CUDA.
[[nodiscard]] cudaError_t check_copy(call& c, side& to, side& from, box const& size, cudaMemcpyKind kind)
{
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return c.misuse(cudaErrorInvalidMemcpyDirection, "unknown direction %d", static_cast<int>(kind));
  }
  bool const to_device   = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (auto const error = check_side(c, to, size, "destination", to_device); error != cudaSuccess) { return error; }
  return check_side(c, from, size, "source", from_device);
}

[[nodiscard]] std::uint64_t duration_of_copy(side const& to, side const& from, box const& size)
{
  auto const speed = to.on_host() || from.on_host()       ? host_speed
                     : to.info.device != from.info.device ? peer_speed
                                                          : device_speed;
  return latency_ns + size.volume() / speed;
}

void copy_box(side const& to, side const& from, box const& size)
{
  if (contiguous(to, size) && contiguous(from, size)) {
    std::memmove(to.base, from.base, size.volume());  // CUDA accepts ranges that overlap
    return;
  }
  for (std::size_t z = 0; z < size.depth; ++z) {
    for (std::size_t y = 0; y < size.height; ++y) { std::memmove(to.row(y, z), from.row(y, z), size.width); }
  }
}

void fill_box(side const& to, box const& size, int value)
{
  if (contiguous(to, size)) {
    std::memset(to.base, value, size.volume());
    return;
  }
  for (std::size_t z = 0; z < size.depth; ++z) {
    for (std::size_t y = 0; y < size.height; ++y) { std::memset(to.row(y, z), value, size.width); }
  }
}

/// The operation of a copy, without its `run`.
[[nodiscard]] operation make_copy(side const& to, side const& from, box const& size)
{
  operation work;
  add_accesses(work.accesses, from, size, false);
  add_accesses(work.accesses, to, size, true);
  work.duration_ns = duration_of_copy(to, from, size);
  return work;
}

[[nodiscard]] std::function<void()> copy_in_place(side const& to, side const& from, box const& size)
{
  return [to, from, size] { copy_box(to, from, size); };
}

/// Copies the source to a buffer now; the returned function copies from there when the work runs.
[[nodiscard]] std::function<void()> copy_staged(side const& to, side const& from, box const& size)
{
  auto staged      = std::make_shared<std::vector<char>>(size.volume());
  auto const inner = side{staged->data(), size.width, size.width * size.height};
  copy_box(inner, from, size);
  return [to, inner, size, staged = std::move(staged)] { copy_box(to, inner, size); };
}

/// Waits for the operation that was submitted to the stream last.
cudaError_t wait_for_last(call& c, std::shared_ptr<stream> const& s)
{
  auto const clock = s->clock;
  return wait_for(c, end_of(s), clock);
}

enum class host { waits, goes_on };

cudaError_t copy(call& c, side to, side from, box const& size, cudaMemcpyKind kind, cudaStream_t handle, host asked)
{
  if (size.empty()) { return cudaSuccess; }  // CUDA looks at no argument of an empty copy
  if (auto const error = check_copy(c, to, from, size, kind); error != cudaSuccess) { return error; }
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  bool const capturing = s->capturing != nullptr;
  if (capturing && asked == host::waits) { return refuse_while_capturing(*s); }

  bool wait  = false;
  bool stage = false;
  if (asked == host::waits) {
    wait = !(to.on_device() && from.on_device());
  } else if (!capturing) {  // a node of a graph reads and writes pageable memory when it runs
    wait  = to.pageable() || (to.on_host() && from.on_host());
    stage = !wait && from.pageable() && size.volume() <= staging_bytes;
    wait  = wait || (from.pageable() && !stage);
  }
  auto work = make_copy(to, from, size);
  work.run  = stage ? copy_staged(to, from, size) : copy_in_place(to, from, size);
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
  return wait ? wait_for_last(c, s) : cudaSuccess;
}

cudaError_t fill(call& c, side to, box const& size, int value, cudaStream_t handle, host asked)
{
  if (size.empty()) { return cudaSuccess; }
  if (auto const error = check_side(c, to, size, "destination", true); error != cudaSuccess) { return error; }
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (!check_peer(c.name(), c.site(), address_of(to.given()), s->device)) { return cudaErrorInvalidValue; }
  if (s->capturing != nullptr && asked == host::waits) { return refuse_while_capturing(*s); }
  operation work;
  add_accesses(work.accesses, to, size, true);
  work.duration_ns = latency_ns + size.volume() / (to.on_host() ? host_speed : device_speed);
  work.run         = [to, size, value] { fill_box(to, size, value); };
  if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
  return asked == host::waits && !to.on_device() ? wait_for_last(c, s) : cudaSuccess;
}

/// The checks of a copy between devices.
cudaError_t check_peer_copy(call& c, side& to, int to_device, side& from, int from_device, box const& size)
{
  for (int const number : {to_device, from_device}) {
    if (find_device(c, number) == nullptr) { return cudaErrorInvalidDevice; }
  }
  return check_copy(c, to, from, size, cudaMemcpyDeviceToDevice);
}

/// Orders `work` after all that the default stream of a device comes after.
cudaError_t order_after_device(call& c, int number, operation& work)
{
  auto const& legacy = the_world().devices[static_cast<std::size_t>(number)].legacy;
  if (auto const error = submit(c, legacy, operation{}); error != cudaSuccess) { return error; }
  work.after.push_back(end_of(legacy));
  work.clock.join(legacy->clock);
  return cudaSuccess;
}

/// Copies on the current device's default stream, after earlier and before later work of both devices' default streams.
/// The host does not wait.
cudaError_t copy_between_devices(call& c, side to, int to_device, side from, int from_device, box const& size)
{
  if (size.empty()) { return cudaSuccess; }
  if (auto const error = check_peer_copy(c, to, to_device, from, from_device, size); error != cudaSuccess) {
    return error;
  }
  auto const current = this_thread().device;
  std::set<int> others{to_device, from_device};
  others.erase(current);
  auto work = make_copy(to, from, size);
  work.run  = copy_in_place(to, from, size);
  for (int const number : others) {
    if (auto const error = order_after_device(c, number, work); error != cudaSuccess) { return error; }
  }
  auto const& legacy = current_device().legacy;
  if (auto const error = submit(c, legacy, std::move(work)); error != cudaSuccess) { return error; }
  for (int const number : others) {
    operation barrier;
    barrier.after.push_back(end_of(legacy));
    barrier.clock     = legacy->clock;
    auto const& other = the_world().devices[static_cast<std::size_t>(number)].legacy;
    if (auto const error = submit(c, other, std::move(barrier)); error != cudaSuccess) { return error; }
  }
  return cudaSuccess;
}

cudaError_t copy_between_devices_async(
  call& c, side to, int to_device, side from, int from_device, box const& size, cudaStream_t handle)
{
  if (size.empty()) { return cudaSuccess; }
  if (auto const error = check_peer_copy(c, to, to_device, from, from_device, size); error != cudaSuccess) {
    return error;
  }
  auto const s = find_stream(c, handle);
  if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
  if (s->capturing != nullptr) { return refuse_while_capturing(*s); }
  auto work = make_copy(to, from, size);
  work.run  = copy_in_place(to, from, size);
  return submit(c, s, std::move(work));
}

// --- Rows

cudaError_t copy_rows(
  call& c, side to, side from, box const& size, cudaMemcpyKind kind, cudaStream_t handle, host asked)
{
  if (!size.empty() && (to.pitch < size.width || from.pitch < size.width)) {
    return c.misuse(cudaErrorInvalidValue,
                    "rows of %zu bytes do not fit in pitches of %zu (destination) and %zu (source)",
                    size.width,
                    to.pitch,
                    from.pitch);
  }
  return copy(c, to, from, size, kind, handle, asked);
}

cudaError_t fill_rows(call& c, side to, box const& size, int value, cudaStream_t handle, host asked)
{
  if (size.height > 1 && to.pitch < size.width) {
    return c.misuse(cudaErrorInvalidValue, "rows of %zu bytes do not fit in a pitch of %zu", size.width, to.pitch);
  }
  return fill(c, to, size, value, handle, asked);
}

// --- Boxes

[[nodiscard]] box make_box(cudaExtent const& extent) { return {extent.width, extent.height, extent.depth}; }

/// Sets `out` to the end of a copy that starts at a position of a pitched allocation, or returns an error.
cudaError_t find_corner(
  call& c, cudaPitchedPtr const& memory, cudaPos const& at, box const& size, char const* role, side& out)
{
  if (size.width > memory.pitch || (size.depth > 1 && size.height > memory.ysize)) {
    return c.misuse(cudaErrorInvalidPitchValue,
                    "%zu rows of %zu bytes do not fit in a slice of the %s: %zu rows of %zu",
                    size.height,
                    size.width,
                    role,
                    memory.ysize,
                    memory.pitch);
  }
  out = make_side(memory.ptr, memory.pitch, memory.pitch * memory.ysize);
  if (at.x > memory.pitch - size.width || size.height > memory.ysize || at.y > memory.ysize - size.height ||
      !find_offset(out, at.x, at.y, at.z, out.offset)) {
    return c.misuse(cudaErrorInvalidValue, "the position is beyond the rows of the %s", role);
  }
  if (out.base == nullptr) { out.offset = 0; }
  out.base += out.offset;
  return cudaSuccess;
}

/// Finds both ends of a copy of boxes. Arrays, the memory of textures, are not simulated.
template <class Parameters>
cudaError_t find_corners(call& c, Parameters const& p, box const& size, side& to, side& from)
{
  if (p.srcArray != nullptr || p.dstArray != nullptr) {
    return report_unsimulated(c, " with a cudaArray is not simulated");
  }
  if (auto const error = find_corner(c, p.dstPtr, p.dstPos, size, "destination", to); error != cudaSuccess) {
    return error;
  }
  return find_corner(c, p.srcPtr, p.srcPos, size, "source", from);
}

cudaError_t copy_boxes(call& c, cudaMemcpy3DParms const* p, cudaStream_t handle, host asked)
{
  if (p == nullptr) { return c.misuse(cudaErrorInvalidValue, "no parameters"); }
  auto const size = make_box(p->extent);
  if (size.empty()) { return cudaSuccess; }
  side to{};
  side from{};
  if (auto const error = find_corners(c, *p, size, to, from); error != cudaSuccess) { return error; }
  return copy(c, to, from, size, p->kind, handle, asked);
}

cudaError_t fill_boxes(
  call& c, cudaPitchedPtr const& memory, int value, cudaExtent const& extent, cudaStream_t handle, host asked)
{
  auto const size = make_box(extent);
  if (size.empty()) { return cudaSuccess; }
  bool const rows_overlap   = size.height > 1 && size.width > memory.pitch;
  bool const slices_overlap = size.depth > 1 && (size.width > memory.pitch || size.height > memory.ysize);
  if (rows_overlap || slices_overlap) {
    return c.misuse(cudaErrorInvalidValue,
                    "%zu rows of %zu bytes do not fit in a slice of %zu rows of %zu",
                    size.height,
                    size.width,
                    memory.ysize,
                    memory.pitch);
  }
  return fill(c, make_side(memory.ptr, memory.pitch, memory.pitch * memory.ysize), size, value, handle, asked);
}

// --- Functions behind both a symbol and its per-thread twin

cudaError_t memcpy_at(
  void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(
    cudaMemcpy, site, { return copy(c, make_side(to), make_side(from), box{bytes}, kind, s, host::waits); });
}

cudaError_t memcpy_async_at(
  void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(
    cudaMemcpyAsync, site, { return copy(c, make_side(to), make_side(from), box{bytes}, kind, s, host::goes_on); });
}

cudaError_t memcpy_2d_at(side to, side from, box size, cudaMemcpyKind kind, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy2D, site, { return copy_rows(c, to, from, size, kind, s, host::waits); });
}

cudaError_t memcpy_2d_async_at(side to, side from, box size, cudaMemcpyKind kind, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy2DAsync, site, { return copy_rows(c, to, from, size, kind, s, host::goes_on); });
}

cudaError_t memcpy_3d_at(cudaMemcpy3DParms const* p, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy3D, site, { return copy_boxes(c, p, s, host::waits); });
}

cudaError_t memcpy_3d_async_at(cudaMemcpy3DParms const* p, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy3DAsync, site, { return copy_boxes(c, p, s, host::goes_on); });
}

cudaError_t memcpy_3d_peer_at(cudaMemcpy3DPeerParms const* p, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy3DPeer, site, {
    if (p == nullptr) { return c.misuse(cudaErrorInvalidValue, "no parameters"); }
    auto const size = make_box(p->extent);
    if (size.empty()) { return cudaSuccess; }
    side to{};
    side from{};
    if (auto const error = find_corners(c, *p, size, to, from); error != cudaSuccess) { return error; }
    return copy_between_devices(c, to, p->dstDevice, from, p->srcDevice, size);
  });
}

cudaError_t memcpy_3d_peer_async_at(cudaMemcpy3DPeerParms const* p, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpy3DPeerAsync, site, {
    if (p == nullptr) { return c.misuse(cudaErrorInvalidValue, "no parameters"); }
    auto const size = make_box(p->extent);
    if (size.empty()) { return cudaSuccess; }
    side to{};
    side from{};
    if (auto const error = find_corners(c, *p, size, to, from); error != cudaSuccess) { return error; }
    return copy_between_devices_async(c, to, p->dstDevice, from, p->srcDevice, size, s);
  });
}

cudaError_t memset_at(void* to, int value, std::size_t bytes, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemset, site, { return fill(c, make_side(to), box{bytes}, value, s, host::waits); });
}

cudaError_t memset_async_at(void* to, int value, std::size_t bytes, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemsetAsync, site, { return fill(c, make_side(to), box{bytes}, value, s, host::goes_on); });
}

cudaError_t memset_2d_at(side to, int value, box size, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemset2D, site, { return fill_rows(c, to, size, value, s, host::waits); });
}

cudaError_t memset_2d_async_at(side to, int value, box size, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemset2DAsync, site, { return fill_rows(c, to, size, value, s, host::goes_on); });
}

cudaError_t memset_3d_at(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemset3D, site, { return fill_boxes(c, to, value, extent, s, host::waits); });
}

cudaError_t memset_3d_async_at(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t s, void const* site)
{
  CUDASIM_CALL_AT(cudaMemset3DAsync, site, { return fill_boxes(c, to, value, extent, s, host::goes_on); });
}
// --- Batches

#if CUDART_VERSION >= 12080
struct batch {
  void* const* to;
  void const* const* from;
  std::size_t const* bytes;
  std::size_t count;
  cudaMemcpyAttributes const* attributes;
  std::size_t const* first_copy;  ///< for each set of attributes, the first copy that it applies to
  std::size_t attribute_count;
};

[[nodiscard]] char const* find_flaw(batch const& b)
{
  if (b.to == nullptr || b.from == nullptr || b.bytes == nullptr || b.count == 0) { return "no copies"; }
  if (b.attributes == nullptr || b.first_copy == nullptr || b.attribute_count == 0 || b.attribute_count > b.count) {
    return "there are no attributes, or more attributes than copies";
  }
  if (b.first_copy[0] != 0) { return "the first copy has no attributes"; }
  for (std::size_t i = 0; i < b.attribute_count; ++i) {
    auto const order = b.attributes[i].srcAccessOrder;
    if (order < cudaMemcpySrcAccessOrderStream || order > cudaMemcpySrcAccessOrderAny) {
      return "unknown access order";
    }
    if (b.first_copy[i] >= b.count || (i > 0 && b.first_copy[i] <= b.first_copy[i - 1])) {
      return "attributes out of order";
    }
  }
  for (std::size_t i = 0; i < b.count; ++i) {
    if (b.bytes[i] == 0) { return "a copy has a size of 0"; }
  }
  return nullptr;
}

cudaError_t memcpy_batch_at(batch const& b, cudaStream_t handle, void const* site)
{
  CUDASIM_CALL_AT(cudaMemcpyBatchAsync, site, {
    auto const s = find_stream(c, handle);
    if (s == nullptr) { return cudaErrorInvalidResourceHandle; }
    if (s->type == stream::kind::legacy) {
      return c.misuse(cudaErrorInvalidValue, "a batch cannot run on the legacy default stream");
    }
    if (s->capturing != nullptr) { return cudaErrorStreamCaptureUnsupported; }  // the capture stays valid
    if (auto const* const flaw = find_flaw(b)) { return c.misuse(cudaErrorInvalidValue, "%s", flaw); }
    std::vector<std::pair<side, side>> ends(b.count);
    for (std::size_t i = 0; i < b.count; ++i) {  // all or nothing
      ends[i]          = {make_side(b.to[i]), make_side(b.from[i])};
      auto& [to, from] = ends[i];
      if (auto const error = check_copy(c, to, from, box{b.bytes[i]}, cudaMemcpyDefault); error != cudaSuccess) {
        return error;
      }
    }
    bool wait        = false;
    std::size_t next = 0;
    for (std::size_t i = 0; i < b.count; ++i) {
      if (next < b.attribute_count && b.first_copy[next] == i) { ++next; }
      auto const& [to, from] = ends[i];
      auto const size        = box{b.bytes[i]};
      bool const in_order    = b.attributes[next - 1].srcAccessOrder == cudaMemcpySrcAccessOrderStream;
      auto work              = make_copy(to, from, size);
      work.run = from.pageable() && !in_order ? copy_staged(to, from, size) : copy_in_place(to, from, size);
      wait     = wait || (from.pageable() && in_order);
      if (auto const error = submit(c, s, std::move(work)); error != cudaSuccess) { return error; }
    }
    return wait ? wait_for_last(c, s) : cudaSuccess;
  });
}
#endif

}  // namespace
}  // namespace cudasim

using namespace cudasim;

// Synchronous forms run on the default stream: the legacy one, or the thread's own for the _ptds twins.
namespace {
constexpr cudaStream_t legacy = nullptr;
auto const own                = cudaStreamPerThread;
}  // namespace

#define HERE __builtin_return_address(0)

extern "C" {

cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind)
{
  return memcpy_at(to, from, bytes, kind, legacy, HERE);
}
cudaError_t cudaMemcpy_ptds(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind)
{
  return memcpy_at(to, from, bytes, kind, own, HERE);
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
  return memcpy_async_at(to, from, bytes, kind, s, HERE);
}
cudaError_t cudaMemcpyAsync_ptsz(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
  return memcpy_async_at(to, from, bytes, kind, per_thread(s), HERE);
}

cudaError_t cudaMemcpy2D(void* to,
                         std::size_t to_pitch,
                         void const* from,
                         std::size_t from_pitch,
                         std::size_t width,
                         std::size_t height,
                         cudaMemcpyKind kind)
{
  return memcpy_2d_at(make_side(to, to_pitch), make_side(from, from_pitch), box{width, height}, kind, legacy, HERE);
}
cudaError_t cudaMemcpy2D_ptds(void* to,
                              std::size_t to_pitch,
                              void const* from,
                              std::size_t from_pitch,
                              std::size_t width,
                              std::size_t height,
                              cudaMemcpyKind kind)
{
  return memcpy_2d_at(make_side(to, to_pitch), make_side(from, from_pitch), box{width, height}, kind, own, HERE);
}

cudaError_t cudaMemcpy2DAsync(void* to,
                              std::size_t to_pitch,
                              void const* from,
                              std::size_t from_pitch,
                              std::size_t width,
                              std::size_t height,
                              cudaMemcpyKind kind,
                              cudaStream_t s)
{
  return memcpy_2d_async_at(make_side(to, to_pitch), make_side(from, from_pitch), box{width, height}, kind, s, HERE);
}
cudaError_t cudaMemcpy2DAsync_ptsz(void* to,
                                   std::size_t to_pitch,
                                   void const* from,
                                   std::size_t from_pitch,
                                   std::size_t width,
                                   std::size_t height,
                                   cudaMemcpyKind kind,
                                   cudaStream_t s)
{
  return memcpy_2d_async_at(
    make_side(to, to_pitch), make_side(from, from_pitch), box{width, height}, kind, per_thread(s), HERE);
}

cudaError_t cudaMemcpy3D(cudaMemcpy3DParms const* p) { return memcpy_3d_at(p, legacy, HERE); }
cudaError_t cudaMemcpy3D_ptds(cudaMemcpy3DParms const* p) { return memcpy_3d_at(p, own, HERE); }

cudaError_t cudaMemcpy3DAsync(cudaMemcpy3DParms const* p, cudaStream_t s) { return memcpy_3d_async_at(p, s, HERE); }
cudaError_t cudaMemcpy3DAsync_ptsz(cudaMemcpy3DParms const* p, cudaStream_t s)
{
  return memcpy_3d_async_at(p, per_thread(s), HERE);
}

cudaError_t cudaMemcpy3DPeer(cudaMemcpy3DPeerParms const* p) { return memcpy_3d_peer_at(p, HERE); }
cudaError_t cudaMemcpy3DPeer_ptds(cudaMemcpy3DPeerParms const* p) { return memcpy_3d_peer_at(p, HERE); }

cudaError_t cudaMemcpy3DPeerAsync(cudaMemcpy3DPeerParms const* p, cudaStream_t s)
{
  return memcpy_3d_peer_async_at(p, s, HERE);
}
cudaError_t cudaMemcpy3DPeerAsync_ptsz(cudaMemcpy3DPeerParms const* p, cudaStream_t s)
{
  return memcpy_3d_peer_async_at(p, per_thread(s), HERE);
}

// These two have no twins: their default stream is the legacy one in every program.

cudaError_t cudaMemcpyPeer(void* to, int to_device, void const* from, int from_device, std::size_t bytes)
{
  CUDASIM_CALL(cudaMemcpyPeer,
               { return copy_between_devices(c, make_side(to), to_device, make_side(from), from_device, box{bytes}); });
}

cudaError_t cudaMemcpyPeerAsync(
  void* to, int to_device, void const* from, int from_device, std::size_t bytes, cudaStream_t s)
{
  CUDASIM_CALL(cudaMemcpyPeerAsync, {
    return copy_between_devices_async(c, make_side(to), to_device, make_side(from), from_device, box{bytes}, s);
  });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return memset_at(to, value, bytes, legacy, HERE); }
cudaError_t cudaMemset_ptds(void* to, int value, std::size_t bytes) { return memset_at(to, value, bytes, own, HERE); }

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t s)
{
  return memset_async_at(to, value, bytes, s, HERE);
}
cudaError_t cudaMemsetAsync_ptsz(void* to, int value, std::size_t bytes, cudaStream_t s)
{
  return memset_async_at(to, value, bytes, per_thread(s), HERE);
}

cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height)
{
  return memset_2d_at(make_side(to, pitch), value, box{width, height}, legacy, HERE);
}
cudaError_t cudaMemset2D_ptds(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height)
{
  return memset_2d_at(make_side(to, pitch), value, box{width, height}, own, HERE);
}

cudaError_t cudaMemset2DAsync(
  void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t s)
{
  return memset_2d_async_at(make_side(to, pitch), value, box{width, height}, s, HERE);
}
cudaError_t cudaMemset2DAsync_ptsz(
  void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t s)
{
  return memset_2d_async_at(make_side(to, pitch), value, box{width, height}, per_thread(s), HERE);
}

cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent)
{
  return memset_3d_at(to, value, extent, legacy, HERE);
}
cudaError_t cudaMemset3D_ptds(cudaPitchedPtr to, int value, cudaExtent extent)
{
  return memset_3d_at(to, value, extent, own, HERE);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t s)
{
  return memset_3d_async_at(to, value, extent, s, HERE);
}
cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t s)
{
  return memset_3d_async_at(to, value, extent, per_thread(s), HERE);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to,
                                 void const* const* from,
                                 std::size_t const* bytes,
                                 std::size_t count,
                                 cudaMemcpyAttributes* attributes,
                                 std::size_t* first_copy,
                                 std::size_t attribute_count,
                                 cudaStream_t s)
{
  return memcpy_batch_at({to, from, bytes, count, attributes, first_copy, attribute_count}, s, HERE);
}
cudaError_t cudaMemcpyBatchAsync_ptsz(void* const* to,
                                      void const* const* from,
                                      std::size_t const* bytes,
                                      std::size_t count,
                                      cudaMemcpyAttributes* attributes,
                                      std::size_t* first_copy,
                                      std::size_t attribute_count,
                                      cudaStream_t s)
{
  return memcpy_batch_at({to, from, bytes, count, attributes, first_copy, attribute_count}, per_thread(s), HERE);
}
#elif CUDART_VERSION >= 12080
cudaError_t cudaMemcpyBatchAsync(void** to,
                                 void** from,
                                 std::size_t* bytes,
                                 std::size_t count,
                                 cudaMemcpyAttributes* attributes,
                                 std::size_t* first_copy,
                                 std::size_t attribute_count,
                                 std::size_t* failed,
                                 cudaStream_t s)
{
  if (failed != nullptr) { *failed = SIZE_MAX; }  // no single copy is to blame
  return memcpy_batch_at({to, from, bytes, count, attributes, first_copy, attribute_count}, s, HERE);
}
cudaError_t cudaMemcpyBatchAsync_ptsz(void** to,
                                      void** from,
                                      std::size_t* bytes,
                                      std::size_t count,
                                      cudaMemcpyAttributes* attributes,
                                      std::size_t* first_copy,
                                      std::size_t attribute_count,
                                      std::size_t* failed,
                                      cudaStream_t s)
{
  if (failed != nullptr) { *failed = SIZE_MAX; }
  return memcpy_batch_at({to, from, bytes, count, attributes, first_copy, attribute_count}, per_thread(s), HERE);
}
#endif

}  // extern "C"
