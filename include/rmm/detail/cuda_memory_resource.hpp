// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#error "RMM requires LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE to be defined: on the command line, or by rmm::rmm."
#endif

#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/resource_concepts.hpp>
