// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <atomic>
#include <cstdint>

// A shared library that shows nothing of RMM may define RMM_PRIVATE_STATE for all its files. It then has objects of its own instead of
// the process-wide ones: it does not look for those of the process, and other shared objects do not find its own.
//
// Files compiled with RMM_STATE_BY_LINKER can be linked into such a library and into one that shares the state. Each of the two also needs
// a file compiled without it that includes this header, and in the second such files have to define all anchors.
#if defined(__ELF__) && !defined(RMM_PRIVATE_STATE)
#define RMM_DETAIL_FINDS_ANCHORS
#endif

#if defined(RMM_DETAIL_FINDS_ANCHORS)
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstddef>
#include <cstring>
#endif

/// @file
/// Process-wide objects: one object per process, shared by all its shared objects.
///
/// An inline variable exists once per process only if the dynamic linker merges its symbol. The linker does not merge symbols of a
/// module opened with RTLD_LOCAL (unless g++ marked the symbol as unique), hidden symbols, or those of an executable that does not
/// export them. So nothing here relies on merging. Each shared object and the executable has its own anchor, a pointer to the
/// process-wide object, and an ELF note with the address of the anchor. Notes can be found in all loaded objects without symbols.
///
/// Invariants, for the anchors of one name in one process:
///  A1  an anchor is null, or holds the address of the process-wide object; once set, it never changes
///  A2  the object is published in its home, the anchor of the first loaded shared object that has one; other anchors are copies
///  A3  the home is pinned before the object is published in it: it stays loaded, and stays first, because the loader appends
///  A4  the object is on the heap, and the shared object whose code made it is pinned before it is published
/// So every search finds one object, whatever is unloaded, and an anchor that is set answers with one read.
///
/// Order: the update that publishes the object in the home releases, and so does each store of a copy, by a thread that has acquired the
/// address. All loads acquire. So what made the object happens before each use of it, through however many anchors.
/// tests/models/process_wide_model.cpp tries all executions.
///
/// Functions that read an anchor or call find_or_publish() are RMM_HIDDEN. If the linker merged such a function, one shared object
/// could use an inlined copy, which reads its own anchor, and also call the merged function, which sets the anchor of another.

namespace RMM_NAMESPACE {
namespace detail {

/// A pointer to a process-wide object, in a shared object or executable.
using process_wide_anchor = std::atomic<void*>;

}  // namespace detail
}  // namespace RMM_NAMESPACE

/// `RMM_PROCESS_WIDE_ANCHOR(name, number);` at global scope defines the anchor `name` of a process-wide object.
///
/// `number` is the type of the ELF note, unique in this library. A change of the object's layout needs a new name and a new number.
#define RMM_PROCESS_WIDE_ANCHOR(name, number)                                \
  extern "C" {                                                               \
  RMM_DETAIL_ANCHOR inline ::rmm::detail::process_wide_anchor name{nullptr}; \
  }                                                                          \
  RMM_DETAIL_ANCHOR_NOTE(name, number)                                       \
  static_assert(number > 0, "notes are numbered from 1")

#if defined(RMM_DETAIL_FINDS_ANCHORS)
#define RMM_DETAIL_ANCHOR RMM_HIDDEN __attribute__((used))
#elif defined(RMM_PRIVATE_STATE)
#define RMM_DETAIL_ANCHOR RMM_HIDDEN
#else
#define RMM_DETAIL_ANCHOR RMM_EXPORT
#endif

// The note: its owner is "RMM", its type is the number, its content is the distance to the anchor. The device pass of a CUDA compiler
// does not support such sections.
#if !defined(RMM_DETAIL_FINDS_ANCHORS) || defined(RMM_STATE_BY_LINKER) || defined(__CUDA_ARCH__)
#define RMM_DETAIL_ANCHOR_NOTE(name, number)
#else
#define RMM_DETAIL_ANCHOR_NOTE(name, number) \
  __asm__(                                   \
    ".pushsection .note.rmm, \"a\", %note\n" \
    ".balign 4\n"                            \
    ".long 4, 4, " #number                   \
    "\n"                                     \
    ".asciz \"RMM\"\n"                       \
    ".long " #name                           \
    " - .\n"                                 \
    ".popsection\n");
#endif

// Exists in a shared library whose state is private.
extern "C" {
#if defined(RMM_PRIVATE_STATE) && defined(__ELF__)
RMM_HIDDEN __attribute__((used)) inline char const rmm_state_is_private{1};
#elif defined(RMM_DETAIL_FINDS_ANCHORS) && defined(RMM_STATE_BY_LINKER)
RMM_HIDDEN __attribute__((weak)) extern char const rmm_state_is_private;
#endif
}

namespace RMM_NAMESPACE {
namespace detail {

#if defined(RMM_DETAIL_FINDS_ANCHORS)

/// Whether the library that the linker has put this file into keeps its state for itself.
RMM_HIDDEN inline bool state_is_private() noexcept
{
#if defined(RMM_STATE_BY_LINKER)
  return &rmm_state_is_private != nullptr;
#else
  return false;
#endif
}

/// A shared object or executable that has an anchor.
struct anchored_object {
  process_wide_anchor* anchor{nullptr};
  char path[4096]{};  // empty for the executable
};

/// A search of the loaded objects for anchors, and its results.
struct anchor_search {
  std::uint32_t number;
  process_wide_anchor const* own_anchor;
  anchored_object home{};    // the first object that has an anchor
  void* published{nullptr};  // the value of the home's anchor
  anchored_object maker{};   // the object with anchor `own_anchor`
};

/// Returns the anchor that the note `number` in a segment of notes points to; null if there is no such note.
[[nodiscard]] inline process_wide_anchor* find_anchor(char const* notes,
                                                      std::size_t size,
                                                      std::size_t alignment,
                                                      std::uint32_t number) noexcept
{
  auto const padded = [alignment](std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    std::size_t const content = padded(sizeof header + header.n_namesz);
    std::size_t const end     = padded(content + header.n_descsz);
    if (end > size) { break; }
    if (header.n_type == number && header.n_namesz == 4 && header.n_descsz == 4 &&
        std::memcmp(notes + sizeof header, "RMM", 4) == 0) {
      std::int32_t distance{};
      std::memcpy(&distance, notes + content, sizeof distance);
      auto const address = reinterpret_cast<std::intptr_t>(notes + content) + distance;
      return reinterpret_cast<process_wide_anchor*>(address);
    }
    notes += end;
    size -= end;
  }
  return nullptr;
}

/// A callback for dl_iterate_phdr, which calls it for each loaded object. The object cannot be unloaded meanwhile.
inline int visit_loaded_object(dl_phdr_info* info, std::size_t, void* data)
{
  auto& search                = *static_cast<anchor_search*>(data);
  process_wide_anchor* anchor = nullptr;
  for (int i = 0; i < info->dlpi_phnum && anchor == nullptr; ++i) {
    auto const& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE) {
      anchor = find_anchor(reinterpret_cast<char const*>(info->dlpi_addr + segment.p_vaddr),
                           segment.p_memsz,
                           segment.p_align == 8 ? 8 : 4,
                           search.number);
    }
  }
  if (anchor == nullptr) { return 0; }
  auto const remember = [&](anchored_object& object) {
    object.anchor = anchor;
    if (info->dlpi_name != nullptr) { std::strncpy(object.path, info->dlpi_name, sizeof object.path - 1); }
  };
  if (search.home.anchor == nullptr) {
    remember(search.home);
    search.published = anchor->load(std::memory_order_acquire);
  }
  if (anchor == search.own_anchor) { remember(search.maker); }
  return 0;
}

/// Keeps a shared object loaded until the process ends. Does nothing if it is no longer loaded.
inline void pin(anchored_object const& object) noexcept
{
  if (object.path[0] != '\0') { static_cast<void>(dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)); }
}

/// Held during a search and during a fork. The C library does not free the loader's lock in a forked child: if a thread of the parent held
/// it, a search in the child would wait for ever.
RMM_HIDDEN inline pthread_mutex_t search_mutex = PTHREAD_MUTEX_INITIALIZER;
RMM_HIDDEN inline void lock_searches() noexcept { pthread_mutex_lock(&search_mutex); }
RMM_HIDDEN inline void unlock_searches() noexcept { pthread_mutex_unlock(&search_mutex); }
RMM_HIDDEN inline bool const forks_wait_for_searches{
  !state_is_private() && ::pthread_atfork(lock_searches, unlock_searches, unlock_searches) == 0};

/// Looks at all loaded objects.
RMM_HIDDEN inline anchor_search search_objects(process_wide_anchor const& own_anchor, std::uint32_t number)
{
  anchor_search search{number, &own_anchor};
  lock_searches();
  dl_iterate_phdr(visit_loaded_object, &search);
  unlock_searches();
  return search;
}

/// Returns the pinned home of the anchors of note `number`, and the process-wide object if it is published.
RMM_HIDDEN inline anchor_search find_home(process_wide_anchor& own_anchor, std::uint32_t number)
{
  auto search = search_objects(own_anchor, number);
  while (search.published == nullptr && search.home.anchor != nullptr) {
    pin(search.maker);
    pin(search.home);
    auto const again           = search_objects(own_anchor, number);
    bool const pinned_the_home = again.home.anchor == search.home.anchor;
    search                     = again;
    if (pinned_the_home) { break; }  // otherwise the home was unloaded before it was pinned
  }
  if (search.home.anchor == nullptr) { search.home.anchor = &own_anchor; }  // the note was stripped
  return search;
}

#endif

/// Finds or makes the process-wide object of note `number`, and stores its address in the anchor `own_anchor`.
///
/// `make()` returns a new object, which is deleted if another thread has published one meanwhile.
/// Cost  slow, and takes the dynamic linker's lock; called once for each shared object.
template <class T, class Make>
RMM_HIDDEN RMM_COLD T& find_or_publish(process_wide_anchor& own_anchor,
                                       [[maybe_unused]] std::uint32_t number,
                                       Make make)
{
  process_wide_anchor* home = &own_anchor;
  void* object              = nullptr;
#if defined(RMM_DETAIL_FINDS_ANCHORS)
  if (!state_is_private()) {
    auto const search = find_home(own_anchor, number);
    home              = search.home.anchor;
    object            = search.published;
  }
#endif
  if (object == nullptr) {
    T* const made = make();
    if (home->compare_exchange_strong(object, made, std::memory_order_acq_rel)) {
      object = made;
    } else {
      delete made;
    }
  }
  own_anchor.store(object, std::memory_order_release);
  return *static_cast<T*>(object);
}

/// Returns the process-wide object of an anchor, and finds or makes it at the first call. The object is never destroyed.
template <class T, class Make>
[[nodiscard]] RMM_HIDDEN T& process_wide_object(process_wide_anchor& own_anchor, std::uint32_t number, Make make)
{
  void* const found = own_anchor.load(std::memory_order_acquire);
  return found != nullptr ? *static_cast<T*>(found) : find_or_publish<T>(own_anchor, number, make);
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
