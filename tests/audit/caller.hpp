// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

/// @file
/// What each of the two libraries does that allocate in these tests.

/// How a library gets at the functions of the driver.
enum class way { linked, by_symbol, by_name };

/// Memory, as the driver names it: an address, a handle or an array.
struct memory {
  std::uint64_t number;
  std::uint64_t mapped_bytes;
};

/// Calls of one library.
struct caller {
  CUresult (*allocate)(way, char const* kind, std::size_t bytes, CUstream stream, memory& out);
  CUresult (*release)(way, char const* kind, memory const& given, CUstream stream);
  CUresult (*allocate_again)(std::size_t bytes,
                             memory& out);  ///< by the function of the last allocation of kind "device"
  void* (*find)(way, char const* symbol, char const* name, int version);
};
