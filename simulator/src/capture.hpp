// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Stream capture, as streams and events see it. All functions expect the lock.

#include "world.hpp"

#include <memory>

namespace cudasim {

/// For calls that make no sense while a stream captures: if `s` captures, invalidates the capture and returns
/// cudaErrorStreamCaptureUnsupported; else returns cudaSuccess.
[[nodiscard]] cudaError_t refuse_while_capturing(stream const& s);

/// cudaEventRecord on a capturing stream: the event stands for the nodes that the stream's next node would follow.
cudaError_t capture_record(stream const& s, event& e);

/// cudaStreamWaitEvent where the stream captures or the event was captured: the stream joins the event's capture.
cudaError_t capture_wait(stream& s, std::shared_ptr<stream> const& shared, event const& e);

/// Takes a stream that is destroyed out of its capture, whose nodes stay. If the capture began on that stream, it ends
/// without a graph.
void leave_capture(stream& s);

}  // namespace cudasim
