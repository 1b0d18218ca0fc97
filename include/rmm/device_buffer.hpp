// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/assert.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/memory.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/identified_stream.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/immediate_resource.hpp>
#include <rmm/mr/detail/size_rounding.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>  // IWYU pragma: export
#include <string>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {

/// A block of untyped, uninitialised device memory, freed by the destructor. Use it for bytes; device_uvector holds elements.
///
/// @code{.cpp}
/// rmm::cuda_stream const stream;
/// rmm::device_buffer buffer{1000, stream.view()};
/// cudaMemsetAsync(buffer.data(), 0, buffer.size(), stream.value());
/// buffer.resize(2000, stream.view());  // keeps the first 1000 bytes
/// @endcode
/// Stream   All work is in the order of one stream: that of the constructor, or the last one passed to reserve(), resize(),
///          shrink_to_fit(), set_stream() or try_allocate_nonblocking(). A move takes over the stream. The caller orders these streams, and
///          all streams that use the memory, with each other. The buffer does not own the stream: it has to exist until the buffer is
///          destroyed, is moved from, or has another stream.
/// Threads  Not thread-safe.
/// Failure  Throws what the resource throws, and cuda_error if a copy fails.
///
/// The memory comes from a resource, by default the one registered for the current device. The resource has to outlive the buffer. Make the
/// buffer while the resource's device is current: the buffer takes the current device as the device of its memory. Later calls work
/// whatever device is current, and leave it current.
///
/// A buffer that is made with size 0 allocates nothing, and its address is null. size() and capacity() are the exact bytes; a resource may
/// be asked for more.
class RMM_EXPORT device_buffer {
  // Invariants:
  //  B1  size_ <= capacity_
  //  B2  block_ and data_ are null if and only if capacity_ is 0; otherwise block_ is an allocation of block_size(capacity_)
  //      bytes from resource_, and data_ is the first address in it that is a multiple of alignment_
  //  B3  device_ is the device of the memory; negative only if there is none

  // An alignment in overloads. It needs a user-defined conversion from an integer, so that overload resolution still takes a literal 0
  // in the first argument for a null pointer.
  struct alignment_argument {
    constexpr alignment_argument(std::size_t alignment) noexcept : value{alignment} {}
    std::size_t value;
  };

 public:
  /// An empty buffer for the default stream and the current device's resource.
  device_buffer() : device_buffer{location::current(), cuda_stream_view{}} {}

  /// `size` uninitialised bytes.
  explicit device_buffer(std::size_t size, cuda_stream_view stream) : device_buffer{location::current(), stream}
  {
    allocate(size);
  }

  explicit device_buffer(std::size_t size, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{location::current_with(mr), stream}
  {
    allocate(size);
  }

  /// A copy of `size` bytes of host or device memory. The copy is queued on `stream`, and `source` has to stay valid until it is done.
  /// Throws logic_error if `source` is null and `size` is not 0.
  device_buffer(void const* source, std::size_t size, cuda_stream_view stream)
    : device_buffer{location::current(), stream}
  {
    allocate_copy(source, size);
  }

  device_buffer(void const* source, std::size_t size, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{location::current_with(mr), stream}
  {
    allocate_copy(source, size);
  }

  /// An empty buffer of `current_device`, for a caller that knows the current device.
  device_buffer(cuda_device_id current_device, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{location{current_device, mr}, stream}
  {}

  /// `size` uninitialised bytes at an address that is a multiple of `alignment`, now and after each change of the capacity.
  ///
  /// Resources guarantee an alignment of 256, CUDA_ALLOCATION_ALIGNMENT, except some of host memory. For a larger alignment the buffer asks
  /// its resource for up to `alignment` bytes more. Throws bad_alloc unless `alignment` is a power of two.
  device_buffer(std::size_t size, alignment_argument alignment, cuda_stream_view stream)
    : device_buffer{location::current(), stream, alignment}
  {
    allocate(size);
  }

  device_buffer(std::size_t size, alignment_argument alignment, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{location::current_with(mr), stream, alignment}
  {
    allocate(size);
  }

  // Aligned buffers of an unsigned size. g++ also takes std::size_t{0} for a null pointer, and would then choose a copying constructor.
  template <class Size, std::enable_if_t<std::is_unsigned_v<Size>, int> = 0>
  device_buffer(Size size, std::size_t alignment, cuda_stream_view stream)
    : device_buffer{size, alignment_argument{alignment}, stream}
  {}

  template <class Size, std::enable_if_t<std::is_unsigned_v<Size>, int> = 0>
  device_buffer(Size size, std::size_t alignment, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{size, alignment_argument{alignment}, stream, mr}
  {}

  device_buffer(void const* source, std::size_t size, alignment_argument alignment, cuda_stream_view stream)
    : device_buffer{location::current(), stream, alignment}
  {
    allocate_copy(source, size);
  }

  device_buffer(void const* source,
                std::size_t size,
                alignment_argument alignment,
                cuda_stream_view stream,
                device_async_resource_ref mr)
    : device_buffer{location::current_with(mr), stream, alignment}
  {
    allocate_copy(source, size);
  }

  /// A copy of the content of `other`, with its alignment. The capacity is the size, and the resource of `other` is not used.
  device_buffer(device_buffer const& other, cuda_stream_view stream)
    : device_buffer{other.data(), other.size(), other.alignment(), stream}
  {}

  device_buffer(device_buffer const& other, cuda_stream_view stream, device_async_resource_ref mr)
    : device_buffer{other.data(), other.size(), other.alignment(), stream, mr}
  {}

  device_buffer(device_buffer const&)            = delete;
  device_buffer& operator=(device_buffer const&) = delete;

  /// Takes over the memory and all properties of `other`. Afterwards `other` is empty: it keeps its resource and alignment, has the default
  /// stream, and has no device.
  device_buffer(device_buffer&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      capacity_{std::exchange(other.capacity_, 0)},
      stream_{std::exchange(other.stream_, cuda_stream_view{})},
      resource_{other.resource_},
      device_{std::exchange(other.device_, no_device())},
      block_{std::exchange(other.block_, nullptr)},
      alignment_{other.alignment_}
  {}

  /// Frees the memory in the order of its stream. Then takes over everything of `other`, as the move constructor does.
  device_buffer& operator=(device_buffer&& other) noexcept
  {
    if (this != &other) {
      deallocate();
      data_      = std::exchange(other.data_, nullptr);
      size_      = std::exchange(other.size_, 0);
      capacity_  = std::exchange(other.capacity_, 0);
      stream_    = std::exchange(other.stream_, cuda_stream_view{});
      resource_  = other.resource_;
      device_    = std::exchange(other.device_, no_device());
      block_     = std::exchange(other.block_, nullptr);
      alignment_ = other.alignment_;
    }
    return *this;
  }

  ~device_buffer() noexcept { deallocate(); }

  /// Makes the capacity at least `new_capacity` bytes; the size stays.
  ///
  /// Sets the stream to `stream`. If the capacity is smaller, moves the content to an allocation of exactly `new_capacity` bytes. If
  /// that throws, only the stream has changed.
  void reserve(std::size_t new_capacity, cuda_stream_view stream)
  {
    set_stream(stream);
    if (new_capacity > capacity_) { reallocate(new_capacity); }
  }

  /// Changes the size. Added bytes are uninitialised.
  ///
  /// As reserve(new_size, stream), and then sets the size.
  void resize(std::size_t new_size, cuda_stream_view stream)
  {
    reserve(new_size, stream);
    size_ = new_size;
  }

  /// Allocates `size` bytes for a buffer without memory, in the order of `stream`, from free memory that `from` can hand out without
  /// waiting for another thread. `from` is the immediate_resource of this buffer's resource (mr/detail/immediate_resource.hpp).
  /// CUDA is not asked for what `stream` knows.
  ///
  /// Returns false, and changes nothing, if there is no such memory, if `size` is 0, if the alignment of the buffer is above 256, if its
  /// device is not current, or as long as the process has not chosen whether sizes are rounded. Call resize() then.
  [[nodiscard]] bool try_allocate_nonblocking(std::size_t size,
                                              detail::identified_stream stream,
                                              mr::detail::immediate_resource& from) noexcept
  {
    RMM_ASSERT(block_ == nullptr);
    if (size == 0 || alignment_ > CUDA_ALLOCATION_ALIGNMENT || mr::detail::known_size_rounding() == nullptr ||
        device_.value() != stream.current_device()) {
      return false;
    }
    void* const block = from.try_allocate_nonblocking(size_in_calls(size), stream);
    if (block == nullptr) { return false; }
    set_stream(stream.view());
    block_    = block;
    data_     = block;
    capacity_ = size;
    size_     = size;
    return true;
  }

  /// Frees the memory through `to`, the immediate_resource of `resource`, without waiting for another thread.
  ///
  /// Returns false, and changes nothing, if the memory is from another resource, if the alignment of the buffer is above 256, if freeing
  /// has to wait, or if the stream is a default stream of a device that is not current. The destructor frees the memory then.
  [[nodiscard]] bool try_deallocate_nonblocking(device_async_resource_ref resource,
                                                mr::detail::immediate_resource& to) noexcept
  {
    if (capacity_ == 0) { return true; }
    bool const is_default = stream_.is_default() || stream_.is_per_thread_default();
    if (block_ == nullptr || resource_ != resource || alignment_ > CUDA_ALLOCATION_ALIGNMENT ||
        (is_default && device_.value() != detail::current_device())) {
      return false;
    }
    // Only the handle of a default stream depends on the current device, and then that is the buffer's.
    detail::identified_stream const stream{stream_, 0, is_default ? device_.value() : -1};
    if (!to.try_deallocate_nonblocking(block_, size_in_calls(capacity_), stream)) { return false; }
    block_    = nullptr;
    data_     = nullptr;
    capacity_ = 0;
    size_     = 0;
    return true;
  }

  /// Makes the capacity equal to the size. If the capacity is larger, moves the content to an allocation of exactly size() bytes.
  ///
  /// Sets the stream to `stream`. If moving the content throws, only the stream has changed.
  void shrink_to_fit(cuda_stream_view stream)
  {
    set_stream(stream);
    if (size_ != capacity_) { reallocate(size_); }
  }

  /// Returns the address of the memory; null if the capacity is 0.
  [[nodiscard]] void const* data() const noexcept { return data_; }
  [[nodiscard]] void* data() noexcept { return data_; }

  /// Returns the number of bytes of the content.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The size as a signed number.
  [[nodiscard]] std::int64_t ssize() const noexcept
  {
    RMM_ASSERT(size_ <= static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()));
    return static_cast<std::int64_t>(size_);
  }

  /// Whether the size is 0. The capacity may be larger.
  [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }

  /// Returns the size up to which the buffer can grow without another allocation.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Returns the alignment that the constructor was given, or CUDA_ALLOCATION_ALIGNMENT.
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }

  /// Returns the stream in whose order the memory will be freed.
  [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }

  /// Sets the stream in whose order the memory will be freed. The caller has to order it after the previous stream.
  void set_stream(cuda_stream_view stream) noexcept { stream_ = stream; }

  /// Returns the device of the memory, which was current in the constructor. A moved-from buffer returns a negative number. When it gets
  /// memory again, its device is the one that is current then.
  [[nodiscard]] cuda_device_id device() const noexcept { return device_; }

  /// Returns the resource that the memory comes from.
  [[nodiscard]] device_async_resource_ref memory_resource() const noexcept { return resource_; }

 private:
  // A device and a resource. Both are determined with one call of the runtime.
  struct location {
    cuda_device_id device;
    device_async_resource_ref resource;

    [[nodiscard]] static location current()
    {
      cuda_device_id const device{detail::current_device()};
      return {device, mr::get_per_device_resource_ref(device)};
    }

    [[nodiscard]] static location current_with(device_async_resource_ref resource)
    {
      return {cuda_device_id{detail::current_device()}, resource};
    }
  };

  [[nodiscard]] static constexpr cuda_device_id no_device() noexcept { return cuda_device_id{-1}; }

  // The public constructors delegate to this one, so that the destructor cleans up if they throw.
  device_buffer(location const& where,
                cuda_stream_view stream,
                alignment_argument alignment = CUDA_ALLOCATION_ALIGNMENT)
    : stream_{stream}, resource_{where.resource}, device_{where.device}, alignment_{alignment.value}
  {
    RMM_EXPECTS(is_supported_alignment(alignment_),
                "The alignment of a buffer is " + std::to_string(alignment_) + ", but has to be a power of two.",
                bad_alloc);
  }

  // Returns the size that the resource would receive from a call through a reference, which is how buffers allocate otherwise. 0 if
  // rounding overflows; an immediate_resource does not serve size 0.
  [[nodiscard]] static std::size_t size_in_calls(std::size_t bytes) noexcept
  {
    return mr::detail::size_when_allocated(bytes, alignof(std::max_align_t));
  }

  // Returns the size of an allocation that has room for `capacity` aligned bytes, wherever it begins. A call through a reference guarantees
  // the alignment of max_align_t, and resources of host memory no more.
  [[nodiscard]] std::size_t block_size(std::size_t capacity) const
  {
    return alignment_ <= CUDA_ALLOCATION_ALIGNMENT
             ? capacity
             : detail::checked_add(capacity, alignment_ - alignof(std::max_align_t));
  }

  [[nodiscard]] void* aligned(void* block) const noexcept
  {
    if (alignment_ <= CUDA_ALLOCATION_ALIGNMENT) { return block; }
    auto const address = reinterpret_cast<std::uintptr_t>(block);
    return static_cast<char*>(block) + (align_up(address, alignment_) - address);
  }

  // Requires an empty buffer, and its device to be current.
  void allocate(std::size_t size)
  {
    if (size == 0) { return; }
    block_    = resource_.allocate_async(block_size(size), stream_);
    data_     = aligned(block_);
    capacity_ = size;
    size_     = size;
  }

  void allocate_copy(void const* source, std::size_t size)
  {
    if (size == 0) { return; }
    RMM_EXPECTS(source != nullptr, "Cannot copy from a null pointer to a buffer whose size is not 0.");
    allocate(size);
    detail::copy_async(data_, source, size, stream_);
  }

  // Moves the content to an allocation of `new_capacity` bytes. Requires `new_capacity >= size_`.
  void reallocate(std::size_t new_capacity)
  {
    auto const device = device_ == no_device() ? cuda_device_id{detail::current_device()} : device_;
    detail::device_scope const guard{device.value()};
    void* block = nullptr;
    if (new_capacity > 0) {
      auto const bytes = block_size(new_capacity);
      block            = resource_.allocate_async(bytes, stream_);
      detail::scope_guard undo{[&]() noexcept { resource_.deallocate_async(block, bytes, stream_); }};
      if (size_ > 0) { detail::copy_async(aligned(block), data_, size_, stream_); }
      undo.dismiss();
    }
    if (capacity_ != 0) { give_back(); }
    block_    = block;
    data_     = aligned(block);
    capacity_ = new_capacity;
    device_   = device;
  }

  void deallocate() noexcept
  {
    if (capacity_ == 0) { return; }
    detail::sees_one_device() ? give_back() : give_back_on_its_device();
  }

  RMM_OUT_OF_LINE void give_back_on_its_device() noexcept
  {
    detail::device_scope const guard{device_.value()};
    give_back();
  }

  // Requires that there is memory, and its device to be current.
  void give_back() noexcept { resource_.deallocate_async(block_, block_size(capacity_), stream_); }

  void* data_{nullptr};
  std::size_t size_{0};
  std::size_t capacity_{0};
  cuda_stream_view stream_;
  device_async_resource_ref resource_;
  cuda_device_id device_;
  void* block_{nullptr};  // the allocation of block_size(capacity_) bytes; null if capacity_ is 0
  std::size_t alignment_;
};

}  // namespace RMM_NAMESPACE
