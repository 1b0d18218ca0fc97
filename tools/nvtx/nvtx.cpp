// SPDX-License-Identifier: Apache-2.0
//
// librmm_nvtx.so: makes tags (rmm/tag_scope.hpp) from the NVTX ranges of an unchanged program. NVTX loads it if
// NVTX_INJECTION64_PATH names it.
//
// Each shared object with NVTX has its own table of functions, and calls InitializeInjectionNvtx2() at its first range.
// NVTX skips all functions that are not set here. Among them are nvtxRangeStart and nvtxRangeEnd: such a range may end
// in another thread, so it cannot name the allocations of a thread.

#include "range_names.hpp"
#include "range_stack.hpp"
#include "range_tags.hpp"

#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/config.hpp>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>

namespace {

using rmm::tools::narrow_name;
using rmm::tools::range_name;
using rmm::tools::range_stack;
using rmm::tools::range_tags;

/// Never destroyed, because threads may use it while the process exits.
///
/// Order: make_tags() releases the tags with their address, and tags() acquires them. A thread that reads null waits for the construction in
/// make_tags(). The handlers of fork() are registered after the store, so their loads may be relaxed.
std::atomic<range_tags*> known_tags{nullptr};

/// Throws std::bad_alloc on its first call.
RMM_COLD range_tags& make_tags()
{
  static auto& made = *[] {
    auto* const tags = new range_tags{std::getenv("RMM_NVTX_DOMAINS")};
    known_tags.store(tags, std::memory_order_release);
    // Without this, a child of fork() could wait forever for a thread of its parent.
    static_cast<void>(pthread_atfork([] { known_tags.load(std::memory_order_relaxed)->lock(); },
                                     [] { known_tags.load(std::memory_order_relaxed)->unlock(); },
                                     [] { known_tags.load(std::memory_order_relaxed)->unlock(); }));
    return tags;
  }();
  return made;
}

/// NVTX reads its table of functions without a memory order, so a function may run before the return of make_tags() is visible.
[[nodiscard]] range_tags& tags() noexcept
{
  auto* const known = known_tags.load(std::memory_order_acquire);
  return known != nullptr ? *known : make_tags();
}

/// The ranges of a thread, and its current tag, which lies in the shared object that made the table of tags. That object stays loaded.
struct thread_ranges {
  std::uint32_t* current;
  range_stack stack;
};

/// Out of line, because a compiler may look up a shared object's thread-local variable at each access.
[[nodiscard]] RMM_OUT_OF_LINE thread_ranges& ranges() noexcept
{
  static thread_local thread_ranges of_thread;
  return of_thread;
}

[[nodiscard]] std::uint32_t& current_of(thread_ranges& thread) noexcept
{
  if (thread.current == nullptr) { thread.current = rmm::detail::tags().current(); }
  return *thread.current;
}

// NVTX's level of a range is unknown, because all domains share one stack.
int push(std::uint32_t domain, std::uint32_t tag) noexcept
{
  auto& thread = ranges();
  thread.stack.push(current_of(thread), domain, tag);
  return NVTX_NO_PUSH_POP_TRACKING;
}

int pop(std::uint32_t domain) noexcept
{
  auto& thread = ranges();
  thread.stack.pop(current_of(thread), domain);
  return NVTX_NO_PUSH_POP_TRACKING;
}

// Handles are numbers, so that an invalid one is harmless: a domain's number, or a string's tag.

template <class Handle>
[[nodiscard]] Handle to_handle(std::uint32_t number) noexcept
{
  return reinterpret_cast<Handle>(std::uintptr_t{number});
}

template <class Handle>
[[nodiscard]] std::uint32_t to_number(Handle handle) noexcept
{
  auto const number = reinterpret_cast<std::uintptr_t>(handle);
  return number <= 0xFFFF'FFFFU ? static_cast<std::uint32_t>(number) : 0xFFFF'FFFFU;
}

[[nodiscard]] std::uint32_t tag_of(range_tags& known, std::uint32_t domain, char const* name) noexcept
{
  return known.tag_of(domain, range_name(name));
}

[[nodiscard]] std::uint32_t tag_of(range_tags& known, std::uint32_t domain, wchar_t const* name) noexcept
{
  return tag_of(known, domain, narrow_name{name}.c_str());
}

[[nodiscard]] std::uint32_t tag_of(range_tags& known,
                                   std::uint32_t domain,
                                   nvtxEventAttributes_t const* attributes) noexcept
{
  constexpr auto needed = offsetof(nvtxEventAttributes_t, message) + sizeof attributes->message;
  if (attributes == nullptr || attributes->size < needed) { return 0; }
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return tag_of(known, domain, attributes->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return tag_of(known, domain, attributes->message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      auto const tag = to_number(attributes->message.registered);
      return tag <= rmm::detail::tag_names::max_tags ? tag : 0;
    }
    default:
      return 0;
  }
}

/// Begins a range that is named by a text or by attributes.
template <class Name>
RMM_FLATTEN int push_named(std::uint32_t domain, Name name) noexcept
{
  auto& known = tags();
  return known.is_ignored(domain) ? NVTX_NO_PUSH_POP_TRACKING : push(domain, tag_of(known, domain, name));
}

RMM_FLATTEN int pop_from(std::uint32_t domain) noexcept
{
  return tags().is_ignored(domain) ? NVTX_NO_PUSH_POP_TRACKING : pop(domain);
}

template <class Char>
[[nodiscard]] nvtxStringHandle_t register_string(nvtxDomainHandle_t handle, Char const* text) noexcept
{
  auto const domain = to_number(handle);
  auto& known       = tags();
  return to_handle<nvtxStringHandle_t>(known.is_ignored(domain) ? 0 : tag_of(known, domain, text));
}

[[nodiscard]] nvtxDomainHandle_t create_domain(char const* name) noexcept
{
  return to_handle<nvtxDomainHandle_t>(name != nullptr ? tags().domain(name) : range_tags::default_domain);
}

/// One of NVTX's tables of functions.
class function_table {
 public:
  function_table(NvtxExportTableCallbacks const& callbacks, NvtxCallbackModule module) noexcept
  {
    if (callbacks.GetModuleFunctionTable(module, &functions_, &size_) == 0) { size_ = 0; }
  }

  /// Does nothing if the release of NVTX lacks the function.
  template <class Function>
  void set(unsigned id, Function function) const noexcept
  {
    if (id <= size_) { *functions_[id] = reinterpret_cast<NvtxFunctionPointer>(function); }
  }

 private:
  NvtxFunctionTable functions_{};
  unsigned size_{};  // the largest id
};

void set_functions(NvtxExportTableCallbacks const& callbacks) noexcept
{
  constexpr auto default_domain = range_tags::default_domain;
  function_table const core{callbacks, NVTX_CB_MODULE_CORE};
  core.set(
    NVTX_CBID_CORE_RangePushEx,
    +[](nvtxEventAttributes_t const* attributes) { return push_named(default_domain, attributes); });
  core.set(
    NVTX_CBID_CORE_RangePushA, +[](char const* name) { return push_named(default_domain, name); });
  core.set(
    NVTX_CBID_CORE_RangePushW, +[](wchar_t const* name) { return push_named(default_domain, name); });
  core.set(
    NVTX_CBID_CORE_RangePop, +[] { return pop_from(default_domain); });

  function_table const domains{callbacks, NVTX_CB_MODULE_CORE2};
  domains.set(
    NVTX_CBID_CORE2_DomainRangePushEx, +[](nvtxDomainHandle_t domain, nvtxEventAttributes_t const* attributes) {
      return push_named(to_number(domain), attributes);
    });
  domains.set(
    NVTX_CBID_CORE2_DomainRangePop, +[](nvtxDomainHandle_t domain) { return pop_from(to_number(domain)); });
  domains.set(NVTX_CBID_CORE2_DomainRegisterStringA, &register_string<char>);
  domains.set(NVTX_CBID_CORE2_DomainRegisterStringW, &register_string<wchar_t>);
  domains.set(NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  domains.set(
    NVTX_CBID_CORE2_DomainCreateW,
    +[](wchar_t const* name) { return create_domain(name != nullptr ? narrow_name{name}.c_str() : nullptr); });
}

}  // namespace

/// NVTX calls this once for each shared object that uses it. Returns whether it succeeded; if not, the object's ranges stay without tags.
extern "C" RMM_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table)
{
  try {
    static_cast<void>(make_tags());
  } catch (std::exception const&) {
    return 0;
  }
  auto const* const callbacks = static_cast<NvtxExportTableCallbacks const*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof *callbacks) { return 0; }
  auto const* const version = static_cast<NvtxExportTableVersionInfo const*>(get_export_table(NVTX_ETID_VERSIONINFO));
  if (version != nullptr && version->struct_size >= sizeof *version) { version->SetInjectionNvtxVersion(NVTX_VERSION); }
  set_functions(*callbacks);
  return 1;
}
