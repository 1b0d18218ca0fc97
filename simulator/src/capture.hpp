// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Stream capture, as streams and events see it. All functions expect the lock.

#include "world.hpp"

#include <memory>

namespace cudasim {

/// A call that has no meaning while the stream captures: invalidates the capture and answers
/// cudaErrorStreamCaptureUnsupported. cudaSuccess if it does not capture.
[[nodiscard]] cudaError_t refuse_while_capturing(stream const& s);

/// cudaEventRecord on a capturing stream: the event stands for the nodes that the stream's next node would follow.
cudaError_t capture_record(stream const& s, event& e);

/// cudaStreamWaitEvent where the stream captures or the event was captured: the stream joins the capture.
cudaError_t capture_wait(stream& s, std::shared_ptr<stream> const& shared, event const& e);

/// Takes a stream that goes away out of the capture, whose nodes stay. The capture ends, without a graph, if it began on that stream.
void leave_capture(stream& s);

}  // namespace cudasim
