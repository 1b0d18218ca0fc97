// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/tag_scope.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace rmm_python {

/// A scope that knows its tag.
struct labelled_scope {
  explicit labelled_scope(rmm::tag tag) : label{tag}, scope{tag} {}

  rmm::tag label;
  rmm::tag_scope scope;
};

/// Returns the tag scopes that Python has begun on the calling thread; the innermost is the last.
[[nodiscard]] inline std::deque<labelled_scope>& tag_scopes()
{
  thread_local std::deque<labelled_scope> scopes;
  return scopes;
}

/// Begins a scope on the calling thread. Throws std::bad_alloc.
inline void begin_tag_scope(rmm::tag label) { tag_scopes().emplace_back(label); }

/// Which scope end_tag_scope() has ended.
enum class ended_scope { innermost, outer, none };

/// Ends the last scope of the calling thread that has this tag. Scopes that began after it stay. Throws std::bad_alloc.
[[nodiscard]] inline ended_scope end_tag_scope(rmm::tag label)
{
  auto& scopes = tag_scopes();
  auto const found =
    std::find_if(scopes.rbegin(), scopes.rend(), [&](labelled_scope const& scope) { return scope.label == label; });
  if (found == scopes.rend()) { return ended_scope::none; }
  std::vector<rmm::tag> later;
  std::for_each(scopes.rbegin(), found, [&](labelled_scope const& scope) { later.push_back(scope.label); });
  // The later scopes end and begin again, because a scope restores the tag that it began in.
  for (std::size_t i = 0; i <= later.size(); ++i) { scopes.pop_back(); }
  std::for_each(later.rbegin(), later.rend(), begin_tag_scope);
  return later.empty() ? ended_scope::innermost : ended_scope::outer;
}

}  // namespace rmm_python
