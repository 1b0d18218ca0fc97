// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace rmm_c {

/// Whether `*wanted` is a struct of this interface that can be written: it begins with the size that the caller set.
template <class Struct>
[[nodiscard]] bool can_be_written(Struct const* wanted) noexcept
{
  return wanted != nullptr && wanted->size >= sizeof wanted->size;
}

/// Writes to `*wanted` the members of `known` that the caller's version of the struct has, and zeros to members that
/// only the caller knows. Sets the size to that of the written part. Requires can_be_written(wanted).
template <class Struct>
void write_known_part(Struct* wanted, Struct known) noexcept
{
  std::size_t const room = wanted->size;
  known.size             = std::min(room, sizeof known);
  auto* const bytes      = reinterpret_cast<unsigned char*>(wanted);
  std::memcpy(bytes, &known, known.size);
  std::memset(bytes + known.size, 0, room - known.size);
}

}  // namespace rmm_c
