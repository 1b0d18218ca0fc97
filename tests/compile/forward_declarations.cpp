// SPDX-License-Identifier: Apache-2.0

// Programs declare these in their most included headers, before any header of the library: they are classes, not
// aliases or templates, directly in their namespaces.
namespace rmm {
class device_buffer;
class cuda_stream_view;
}  // namespace rmm
namespace rmm::mr {
class device_memory_resource;
class host_memory_resource;
}  // namespace rmm::mr

namespace client {
rmm::device_buffer make();
void use(rmm::mr::device_memory_resource* mr);
}  // namespace client

#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/host/host_memory_resource.hpp>

namespace client {
rmm::device_buffer make() { return {}; }
void use(rmm::mr::device_memory_resource* mr) { mr->deallocate(mr->allocate(1), 1); }
}  // namespace client
