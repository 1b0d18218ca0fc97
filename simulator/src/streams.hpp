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

/// Sees to it that somebody runs what may have become ready. Does nothing when the test does the stepping.
void call_worker();

/// Takes a stream off its device's list as soon as its work is done; what it did stays known to the checker.
void retire_stream(std::shared_ptr<stream> const& s);

/// Destroys the streams and events of a device; waits for what runs and drops what does not. Leaves the lock for a while.
void drop_device_work(std::unique_lock<std::mutex>& lock, int device);

/// Reports two accesses that nothing orders.
void report_race(place const& later, access const& range, access_history::conflict const& found);

/// A copy of `name` that lives as long as the process; equal names share one.
[[nodiscard]] char const* keep_name(char const* name);

}  // namespace cudasim
