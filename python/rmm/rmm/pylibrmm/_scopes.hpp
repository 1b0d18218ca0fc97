// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/tag_scope.hpp>

#include <deque>

namespace rmm_python {

/// Returns the tag scopes that Python has begun on the calling thread; the innermost is the last.
[[nodiscard]] inline std::deque<rmm::tag_scope>& tag_scopes()
{
  thread_local std::deque<rmm::tag_scope> scopes;
  return scopes;
}

/// Begins a scope on the calling thread. Throws std::bad_alloc.
inline void begin_tag_scope(rmm::tag label) { tag_scopes().emplace_back(label); }

/// Ends the innermost scope of the calling thread. Returns false if there is none.
[[nodiscard]] inline bool end_tag_scope()
{
  auto& scopes = tag_scopes();
  if (scopes.empty()) { return false; }
  scopes.pop_back();
  return true;
}

}  // namespace rmm_python
