// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_stream.hpp>  // IWYU pragma: export

#include <memory>  // IWYU pragma: export
