// SPDX-License-Identifier: Apache-2.0

// Explicit instantiations that need no header but the container's own, not even that of the spans it converts to.
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>

template class rmm::device_uvector<int>;
template class rmm::device_scalar<int>;
