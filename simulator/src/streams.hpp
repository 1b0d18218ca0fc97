// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the files that make and destroy streams share with the scheduler. All functions expect the lock.

#include "world.hpp"

#include <memory>

namespace cudasim {

/// A new stream of `device`, with no handle and not yet listed with the device.
[[nodiscard]] std::shared_ptr<stream> make_stream(int device, stream::kind type, unsigned flags, int priority);

/// find_stream() without the report: null for a handle that names none.
[[nodiscard]] std::shared_ptr<stream> try_find_stream(cudaStream_t handle);

/// Makes a worker run operations that may have become ready. Does nothing in stepped mode.
void call_worker();

/// Takes a stream off its device's list once its work is done. The checker still knows its operations.
void retire_stream(std::shared_ptr<stream> const& s);

/// Destroys the streams and events of a device; drops queued work, waits for running work without the lock.
void drop_device_work(std::unique_lock<std::mutex>& lock, int device);

/// Reports two conflicting accesses that nothing orders.
void report_race(place const& later, access const& range, access_history::conflict const& found);

/// A copy of `name` that lives as long as the process; equal names share one.
[[nodiscard]] char const* keep_name(char const* name);

}  // namespace cudasim
