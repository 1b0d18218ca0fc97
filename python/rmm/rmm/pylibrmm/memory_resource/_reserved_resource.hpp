// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/memory_reservation.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace rmm_python {

/// A reservation as a resource with shared ownership. It keeps its source alive.
///
/// Thread-safe: the reservation ends only after the calls that use it.
class reserved_resource final : public rmm::mr::device_memory_resource {
 public:
  reserved_resource(resource_ptr source, rmm::mr::memory_reservation reservation)
    : source_{std::move(source)},
      blocks_{&reservation.resource()},
      reservation_{std::make_shared<rmm::mr::memory_reservation>(std::move(reservation))}
  {}

  /// Returns the reservation. Throws logic_error if it has ended.
  [[nodiscard]] std::shared_ptr<rmm::mr::memory_reservation> reservation() const
  {
    auto found = reservation_or_null();
    RMM_EXPECTS(found != nullptr, "The reservation has ended");
    return found;
  }

  /// Returns the reserved bytes; 0 if the reservation has ended.
  [[nodiscard]] std::size_t bytes() const
  {
    auto const found = reservation_or_null();
    return found != nullptr ? found->bytes() : 0;
  }
  [[nodiscard]] std::size_t used_bytes() const
  {
    auto const found = reservation_or_null();
    return found != nullptr ? found->used_bytes() : 0;
  }

  /// Shrinks the reservation; see memory_reservation::shrink_to(). Throws logic_error if it has ended.
  std::size_t shrink_to(std::size_t bytes)
  {
    auto const found = reservation();
    std::lock_guard<std::mutex> const one_at_a_time{shrink_mutex_};
    return found->shrink_to(bytes);
  }

  /// Ends the reservation after the calls that use it. Live blocks stay valid.
  void release() noexcept
  {
    std::shared_ptr<rmm::mr::memory_reservation> ended;  // outlives the lock
    std::lock_guard<std::mutex> const lock{mutex_};
    ended.swap(reservation_);
  }

 private:
  [[nodiscard]] std::shared_ptr<rmm::mr::memory_reservation> reservation_or_null() const
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return reservation_;
  }

  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    return reservation()->resource().allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    if (ptr != nullptr) { blocks_->deallocate(ptr, bytes, stream); }
  }

  resource_ptr source_;
  rmm::mr::device_memory_resource* blocks_;  // lives as long as the reservation or any block
  mutable std::mutex mutex_;                 // guards reservation_
  std::shared_ptr<rmm::mr::memory_reservation> reservation_;
  std::mutex shrink_mutex_;
};

}  // namespace rmm_python
