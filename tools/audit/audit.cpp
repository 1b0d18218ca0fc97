// SPDX-License-Identifier: Apache-2.0
//
// librmm_audit.so: lists, refuses or routes what the libraries of a process allocate from the CUDA driver, past the
// pools. Preloaded into an unchanged program: LD_PRELOAD=librmm_audit.so RMM_AUDIT=report program.
//
// It works at one level, the functions of the driver. All runtimes (including those that are linked statically into
// other libraries) and XLA find these by dlsym() and cuGetProcAddress(). So the library replaces dlsym(), which returns
// the library's own functions for the names that it knows (driver_functions.hpp). One of these is cuGetProcAddress(),
// which does the same. A program that is linked to the driver finds the library's functions first. All other names lead
// to the driver's functions, whose calls cost nothing extra.
//
// dlsym() itself is a few instructions that jump to the real one. The real one thus still sees its caller: RTLD_NEXT keeps its meaning.
//
// The library needs only the C library. It contains its parts of the C++ library, so it does not replace the program's release.

#include "audit.hpp"

#include "callers.hpp"
#include "driver_functions.hpp"
#include "report.hpp"
#include "route.hpp"

#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/config.hpp>

#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {
namespace {

// Order: process::get() releases the process with its address, and process_if_any() acquires it. The handlers of fork() are registered after
// the store, so their loads may be relaxed.
std::atomic<process*> known_process{nullptr};

[[nodiscard]] process* process_if_any() noexcept { return known_process.load(std::memory_order_acquire); }

void write_all(int file, std::string const& text) noexcept
{
  std::size_t written = 0;
  while (written < text.size()) {
    auto const more = ::write(file, text.data() + written, text.size() - written);
    if (more <= 0) { return; }
    written += static_cast<std::size_t>(more);
  }
}

/// Opens the file of RMM_AUDIT_FILE, where %p stands for the process id. Returns no file without the variable, and after a failure.
[[nodiscard]] detail::file_descriptor open_report()
{
  auto const* const name = std::getenv("RMM_AUDIT_FILE");
  if (name == nullptr || *name == '\0') { return {}; }
  std::string path{name};
  if (auto const at = path.find("%p"); at != std::string::npos) { path.replace(at, 2, std::to_string(::getpid())); }
  auto opened = detail::open_log_file(path, false);
  if (opened.problem != nullptr) {
    say("cannot open %s: %s; the report goes to standard error", path.c_str(), opened.problem);
  }
  return std::move(opened.file);
}

void write_report(process& all) noexcept
{
  try {
    auto const text = "librmm_audit: process " + std::to_string(::getpid()) + " (" + ::program_invocation_short_name +
                      "), RMM_AUDIT=" + all.chosen.text + "\n" + make_table(all.known);
    auto const file = open_report();
    write_all(file.get() >= 0 ? file.get() : STDERR_FILENO, text);
  } catch (std::exception const&) {
    say("the report is lost: the process has no memory for it");
  }
}

/// Prints nothing in processes that never reached the driver, such as a shell, and in children of fork() that did not allocate.
[[gnu::destructor]] void report_at_exit()
{
  auto* const all = process_if_any();
  if (all != nullptr && !(all->is_child && all->known.is_empty())) { write_report(*all); }
}

}  // namespace

process::process()
  : chosen{read_mode(std::getenv("RMM_AUDIT"))},
    pool{(static_cast<void>(known.id_of("(unknown)")), known.id_of("rmm (route)"))}
{}

process& process::get()
{
  static auto& made = *[] {
    auto* const all = new process;
    known_process.store(all, std::memory_order_release);
    static_cast<void>(pthread_atfork(
      [] {
        lock_routes();
        known_process.load(std::memory_order_relaxed)->known.lock();
      },
      [] {
        known_process.load(std::memory_order_relaxed)->known.unlock();
        unlock_routes();
      },
      [] {
        auto* const of_child = known_process.load(std::memory_order_relaxed);
        of_child->known.unlock();
        unlock_routes();
        continue_routes_in_child();
        of_child->known.forget();
        of_child->is_child = true;
      }));
    all->complain();
    return all;
  }();
  return made;
}

void process::complain() noexcept
{
  if (!chosen.complaint.empty() && !has_complained_.exchange(true)) { say("%s", chosen.complaint.c_str()); }
}

template <class Question>
bool process::answer(std::array<std::atomic<std::int8_t>, ledger::most_libraries>& answers,
                     library_id library,
                     Question&& ask)
{
  auto& kept        = answers[library];
  auto known_answer = kept.load(std::memory_order_relaxed);  // 0 means not asked yet
  if (known_answer == 0) {
    known_answer = ask(chosen, known.name_of_library(library)) ? std::int8_t{1} : std::int8_t{-1};
    kept.store(known_answer, std::memory_order_relaxed);
  }
  return known_answer == 1;
}

bool process::refuses(library_id library) { return answer(refused_, library, is_refused); }
bool process::routes(library_id library)
{
  return answer(routed_, library, [library](mode const& mode_of_process, std::string const& name) {
    return is_routed(mode_of_process, name) && !(mode_of_process.routes_to_current() && has_rmm_inside(library));
  });
}

bool process::has_rmm(library_id library) const
{
  return has_rmm_inside(library) || is_of_rmm(known.name_of_library(library));
}

thread_state& this_thread() noexcept
{
  [[gnu::tls_model("initial-exec")]] static thread_local thread_state state{};
  return state;
}

void say(char const* format, ...) noexcept
{
  char line[4096];
  auto length = static_cast<std::size_t>(std::snprintf(line, sizeof line, "librmm_audit: "));
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line + length, sizeof line - length - 1, format, arguments);
  va_end(arguments);
  length         = std::strlen(line);
  line[length++] = '\n';
  if (::write(STDERR_FILENO, line, length) < 0) { return; }
}

namespace {

/// Calls the driver's function that `place` names. Returns CUDA_ERROR_NOT_INITIALIZED without a driver.
template <class... Arguments>
[[nodiscard]] CUresult call_driver(function place,
                                   CUresult (* /*type*/)(Arguments...),
                                   std::common_type_t<Arguments>... arguments) noexcept
{
  auto const found = reinterpret_cast<CUresult (*)(Arguments...)>(driver_function(place));
  return found != nullptr ? found(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}
#define RMM_AUDIT_CALL(symbol, ...) call_driver(function::symbol, &::symbol, __VA_ARGS__)

[[nodiscard]] bool is_counted() noexcept { return this_thread().calls == 0; }

/// Whether the thread is in a resource that memory is routed to, or in a scope in which the program's resource takes memory.
[[nodiscard]] bool is_of_resource() noexcept
{
  auto const& thread = this_thread();
  return thread.pool_calls + thread.unrouted_scopes != 0;
}

/// Records what the driver has done. The call has succeeded, even if the record fails.
template <class Record>
void record(Record&& write) noexcept
{
  try {
    write();
  } catch (std::exception const&) {
    say("an allocation is not recorded: the process has no memory for it");
  }
}

[[nodiscard]] library_id caller(process& all, void const* code) noexcept
{
  return is_of_resource() ? all.pool : calling_library(all.known, code);
}

/// Refuses an allocation. Prints that each time at first, then less and less often.
[[nodiscard]] CUresult refuse(
  process& all, library_id library, memory_kind kind, std::size_t bytes, char const* symbol) noexcept
{
  record([&] {
    auto const before = all.known.refuse(library, kind, bytes);
    if (before >= 10 && (before & (before - 1)) != 0) { return; }
    auto const others = before < 10 ? std::string{} : ", and " + with_commas(before) + " calls before this one";
    say("refused %s bytes to %s (%s)%s",
        with_commas(bytes).c_str(),
        all.known.name_of_library(library).c_str(),
        symbol,
        others.c_str());
  });
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/// An allocation that a function of the driver was asked for.
struct request {
  char const* symbol;
  memory_kind kind;
  key_space space;
  std::size_t bytes;
  void const* code;  // the return address of the call
};

/// Lets the driver allocate, and counts the allocation. `key()` is called afterwards.
template <class Call, class Key>
[[nodiscard]] CUresult allocate(request const& asked, Call&& call, Key&& key) noexcept
{
  if (!is_counted()) { return call(); }
  counted_call const inside;
  auto& all          = process::get();
  auto const library = caller(all, asked.code);
  if (is_of_device(asked.kind) && library != all.pool && all.refuses(library)) {
    return refuse(all, library, asked.kind, asked.bytes, asked.symbol);
  }
  auto const result = call();
  if (result == CUDA_SUCCESS) {
    if (all.chosen.routes_to_current() && asked.space == key_space::address) { note_new_memory(key(), asked.bytes); }
    auto const taker = library == all.pool ? calling_library(all.known, asked.code) : library;
    record([&] { all.known.add(asked.space, std::uint64_t{key()}, asked.bytes, library, asked.kind, taker); });
  }
  return result;
}

/// allocate() for memory that may be routed.
template <class Call>
[[nodiscard]] CUresult allocate_or_route(request const& asked, CUdeviceptr* out, use_order order, Call&& call) noexcept
{
  auto& all = process::get();
  if (all.chosen.does == mode::action::route && is_counted() && !is_of_resource()) {
    counted_call const inside;
    auto const library = calling_library(all.known, asked.code);
    if (all.routes(library)) {
      if (auto const result = allocate_routed(out, asked.bytes, order)) {
        if (*result == CUDA_SUCCESS) {
          record([&] { all.known.add(key_space::routed, *out, asked.bytes, library, memory_kind::routed); });
        }
        return *result;
      }
    }
  }
  return allocate(asked, std::forward<Call>(call), [&] { return *out; });
}

/// Lets the driver free, and counts it. The record is removed first, because another thread may then get the same memory.
template <class Call>
[[nodiscard]] CUresult release(key_space space, std::uint64_t key, void const* code, Call&& call) noexcept
{
  if (!is_counted()) { return call(); }
  counted_call const inside;
  auto& all        = process::get();
  auto const ended = all.known.remove(space, key);
  if (ended && all.chosen.routes_to_current() && space == key_space::address) { note_end_of_memory(key, ended->bytes); }
  // A second free of a routed block may name the resource's own memory, if that begins at the same address. A library
  // that took memory for a resource, however, may give it back at any time.
  bool is_of_another = false;
  if (ended && ended->library == all.pool && !is_of_resource()) {
    auto const library = calling_library(all.known, code);
    is_of_another      = library != ended->taker && !all.has_rmm(library);
  }
  auto const result = is_of_another ? CUDA_ERROR_INVALID_VALUE : call();
  if (result != CUDA_SUCCESS && ended) {
    record([&] { all.known.restore(space, key, *ended); });
  }
  return result;
}

[[nodiscard]] bool may_be_routed() noexcept
{
  return process::get().chosen.does == mode::action::route && is_counted() && !is_of_resource();
}

/// The routed block that begins at an address. `code` is the return address of the call.
///
/// Memory of the driver may begin at the same address. Only the resource itself means that memory, and the resource
/// ends before the block. All other callers mean the block, even callbacks of a resource, such as spilling, which run while it allocates.
[[nodiscard]] std::optional<routed_block> routed_at(CUdeviceptr address, void const* code) noexcept
{
  auto& all = process::get();
  if (all.chosen.does != mode::action::route || !is_counted()) { return std::nullopt; }
  auto const found = find_routed(address);
  if (!found || found->address != address) { return std::nullopt; }
  if (!all.chosen.routes_to_current() || !all.known.has(key_space::address, address)) { return found; }
  bool const is_upstream = this_thread().unrouted_scopes != 0 || all.has_rmm(calling_library(all.known, code));
  return is_upstream ? std::nullopt : found;
}

[[nodiscard]] CUresult free_routed_block(routed_block const& block, use_order order) noexcept
{
  counted_call const inside;
  return free_routed(
    block, order, +[](std::uint64_t address) { process::get().known.remove(key_space::routed, address); });
}

[[nodiscard]] std::size_t bytes_of_channel(CUarray_format format) noexcept
{
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 1;  // channels of 8 bits, or compressed
  }
}

/// The bytes of an array, without the driver's padding. The second and third dimension may be missing.
[[nodiscard]] std::size_t bytes_of(
  std::size_t width, std::size_t height, std::size_t depth, unsigned channels, CUarray_format format) noexcept
{
  return width * (height != 0 ? height : 1) * (depth != 0 ? depth : 1) * channels * bytes_of_channel(format);
}

[[nodiscard]] std::uint64_t number_of(void const* pointer) noexcept
{
  return std::uint64_t{reinterpret_cast<std::uintptr_t>(pointer)};
}

/// Corrects the range of a routed address: the driver knows the pool's memory, but not the block.
void correct_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) noexcept
{
  if (attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE) { return; }
  auto const block = find_routed(address);
  if (!block) { return; }
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
    *static_cast<std::size_t*>(out) = block->bytes;
  } else {
    *static_cast<CUdeviceptr*>(out) = block->address;
  }
}

/// Notes that the program's resource begins (1) or ends (-1) to take memory from the driver for itself.
void add_to_unrouted_scopes(int more) noexcept
{
  if (process::get().chosen.routes_to_current()) { this_thread().unrouted_scopes += more; }
}

/// Replaces the address that cuGetProcAddress() gives to the program, if the library stands in for the function.
void hand_out(char const* name, void** out, int version, cuuint64_t flags) noexcept
{
  if (name == nullptr || out == nullptr || *out == nullptr) { return; }
  bool const own_stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  auto place            = find_name(name, version, own_stream);
  if (place == function::count) { place = find_symbol(name); }
  if (place == function::count) { return; }
  auto& all = process::get();
  if (is_only_for_routes(place) && all.chosen.does != mode::action::route) { return; }
  keep_driver_function(place, *out);
  *out = wrapper_of(place);
}

}  // namespace

/// What dlsym() has to do: jump to the real one if `jump` is not null, else return `answer`.
struct found_symbol {
  void* jump;
  void* answer;
};

extern "C" [[gnu::visibility("hidden"), gnu::used]] found_symbol rmm_audit_find_symbol(void* handle,
                                                                                       char const* name,
                                                                                       void const* caller_code) noexcept
{
  auto const next = next_dlsym();
  found_symbol const pass_on{reinterpret_cast<void*>(next), nullptr};
  if (name == nullptr || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) { return pass_on; }
  auto const place = find_symbol(name);
  if (place == function::count) { return pass_on; }
  // A driver that wraps another one would call itself.
  if (is_code_of_driver(caller_code)) { return pass_on; }
  auto* const wrapper = wrapper_of(place);
  void* found         = handle == RTLD_DEFAULT ? wrapper : next(handle, name);
  // The scope of the handle begins with this library. Whether it has a driver depends on the rest.
  if (found == wrapper) { found = next(RTLD_NEXT, name); }
  if (found == nullptr) { return {nullptr, nullptr}; }
  auto& all = process::get();
  if (is_only_for_routes(place) && all.chosen.does != mode::action::route) { return {nullptr, found}; }
  keep_driver_function(place, found);
  return {nullptr, wrapper};
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE

// dlsym(). The real one inspects its return address, so it is reached by a jump, with the caller's stack and arguments.
#if defined(__x86_64__)
__asm__(R"(
  .text
  .globl dlsym
  .type dlsym, @function
  .p2align 4
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  movq 16(%rsp), %rdx
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call rmm_audit_find_symbol
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  je 1f
  jmp *%rax
1:
  movq %rdx, %rax
  ret
  .cfi_endproc
  .size dlsym, . - dlsym
)");
#elif defined(__aarch64__)
__asm__(R"(
  .text
  .globl dlsym
  .type dlsym, %function
  .p2align 4
dlsym:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  mov x29, sp
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl rmm_audit_find_symbol
  mov x16, x0
  mov x17, x1
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore 30
  .cfi_restore 29
  .cfi_def_cfa_offset 0
  cbz x16, 1f
  br x16
1:
  mov x0, x17
  ret
  .cfi_endproc
  .size dlsym, . - dlsym
)");
#else
#error "dlsym() has to be written for this processor"
#endif

using namespace rmm::tools::audit;

extern "C" {

#pragma GCC visibility push(default)

CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuGetProcAddress(char const* name, void** out, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(
  char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status);

/// Writes the report now, as at exit.
void rmm_audit_report() { write_report(process::get()); }

rmm::detail::audit_library const* rmm_audit_library_v1();
rmm::detail::audit_library const* rmm_audit_library_v1()
{
  static constexpr rmm::detail::audit_library functions{
    [](rmm::detail::audit_source const* added) { return add_source(added); },
    [](int number) { withdraw_source(number); },
    [](int number) { return bytes_of_source(number); },
    [] { add_to_unrouted_scopes(1); },
    [] { add_to_unrouted_scopes(-1); }};
  return &functions;
}

// --- the ways to functions ---------------------------------------------------------------------------------------------

CUresult cuGetProcAddress(char const* name, void** out, int version, cuuint64_t flags)
{
  auto const result = RMM_AUDIT_CALL(cuGetProcAddress, name, out, version, flags);
  if (result == CUDA_SUCCESS) { hand_out(name, out, version, flags); }
  return result;
}

CUresult cuGetProcAddress_v2(
  char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status)
{
  auto const result = RMM_AUDIT_CALL(cuGetProcAddress_v2, name, out, version, flags, status);
  if (result == CUDA_SUCCESS) { hand_out(name, out, version, flags); }
  return result;
}

// --- memory of a device ------------------------------------------------------------------------------------------------

CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes)
{
  return allocate_or_route(
    {"cuMemAlloc", memory_kind::device, key_space::address, bytes, __builtin_return_address(0)}, out, {}, [&] {
      return RMM_AUDIT_CALL(cuMemAlloc_v2, out, bytes);
    });
}

CUresult cuMemAllocPitch_v2(
  CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element_bytes)
{
  return allocate(
    {"cuMemAllocPitch", memory_kind::device, key_space::address, width * height, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemAllocPitch_v2, out, pitch, width, height, element_bytes); },
    [&] { return *out; });
}

CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned flags)
{
  return allocate(
    {"cuMemAllocManaged", memory_kind::managed, key_space::address, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemAllocManaged, out, bytes, flags); },
    [&] { return *out; });
}

CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream)
{
  return allocate_or_route(
    {"cuMemAllocAsync", memory_kind::async, key_space::address, bytes, __builtin_return_address(0)},
    out,
    {true, stream, false},
    [&] { return RMM_AUDIT_CALL(cuMemAllocAsync, out, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUstream stream)
{
  return allocate_or_route(
    {"cuMemAllocAsync", memory_kind::async, key_space::address, bytes, __builtin_return_address(0)},
    out,
    {true, stream, true},
    [&] { return RMM_AUDIT_CALL(cuMemAllocAsync_ptsz, out, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream)
{
  return allocate(
    {"cuMemAllocFromPoolAsync", memory_kind::async, key_space::address, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemAllocFromPoolAsync, out, bytes, pool, stream); },
    [&] { return *out; });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream)
{
  return allocate(
    {"cuMemAllocFromPoolAsync", memory_kind::async, key_space::address, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemAllocFromPoolAsync_ptsz, out, bytes, pool, stream); },
    [&] { return *out; });
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
  if (auto const block = routed_at(address, __builtin_return_address(0))) { return free_routed_block(*block, {}); }
  return release(
    key_space::address, address, __builtin_return_address(0), [&] { return RMM_AUDIT_CALL(cuMemFree_v2, address); });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
  if (auto const block = routed_at(address, __builtin_return_address(0))) {
    return free_routed_block(*block, {true, stream, false});
  }
  return release(key_space::address, address, __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuMemFreeAsync, address, stream);
  });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
  if (auto const block = routed_at(address, __builtin_return_address(0))) {
    return free_routed_block(*block, {true, stream, true});
  }
  return release(key_space::address, address, __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuMemFreeAsync_ptsz, address, stream);
  });
}

// --- virtual memory ----------------------------------------------------------------------------------------------------

CUresult cuMemCreate(CUmemGenericAllocationHandle* out,
                     std::size_t bytes,
                     CUmemAllocationProp const* properties,
                     unsigned long long flags)
{
  auto const call = [&] { return RMM_AUDIT_CALL(cuMemCreate, out, bytes, properties, flags); };
  if (!is_counted()) { return call(); }
  counted_call const inside;
  auto& all          = process::get();
  auto const library = caller(all, __builtin_return_address(0));
  if (library != all.pool && all.refuses(library)) {
    return refuse(all, library, memory_kind::virtual_memory, bytes, "cuMemCreate");
  }
  auto const result = call();
  if (result == CUDA_SUCCESS) {
    record([&] { all.known.add_handle(*out, bytes, library); });
  }
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address)
{
  auto const result = RMM_AUDIT_CALL(cuMemRetainAllocationHandle, out, address);
  if (result == CUDA_SUCCESS && is_counted()) { process::get().known.own_handle(*out); }
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
  if (is_counted()) { process::get().known.disown_handle(handle); }
  return RMM_AUDIT_CALL(cuMemRelease, handle);
}

CUresult cuMemMap(CUdeviceptr address,
                  std::size_t bytes,
                  std::size_t offset,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
  auto const result = RMM_AUDIT_CALL(cuMemMap, address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && is_counted()) {
    record([&] { process::get().known.map(address, handle); });
  }
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes)
{
  if (process::get().chosen.routes_to_current() && is_counted()) { note_end_of_memory(address, bytes); }
  return RMM_AUDIT_CALL(cuMemAddressFree, address, bytes);
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes)
{
  auto const result = RMM_AUDIT_CALL(cuMemUnmap, address, bytes);
  if (result == CUDA_SUCCESS && is_counted()) { process::get().known.unmap(address, bytes); }
  return result;
}

// --- arrays ------------------------------------------------------------------------------------------------------------

CUresult cuArrayCreate_v2(CUarray* out, CUDA_ARRAY_DESCRIPTOR const* what)
{
  auto const bytes = what == nullptr ? 0 : bytes_of(what->Width, what->Height, 1, what->NumChannels, what->Format);
  return allocate(
    {"cuArrayCreate", memory_kind::array, key_space::array, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuArrayCreate_v2, out, what); },
    [&] { return number_of(*out); });
}

CUresult cuArray3DCreate_v2(CUarray* out, CUDA_ARRAY3D_DESCRIPTOR const* what)
{
  auto const bytes =
    what == nullptr ? 0 : bytes_of(what->Width, what->Height, what->Depth, what->NumChannels, what->Format);
  return allocate(
    {"cuArray3DCreate", memory_kind::array, key_space::array, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuArray3DCreate_v2, out, what); },
    [&] { return number_of(*out); });
}

CUresult cuArrayDestroy(CUarray array)
{
  return release(key_space::array, number_of(array), __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuArrayDestroy, array);
  });
}

/// Counts only the first level.
CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, CUDA_ARRAY3D_DESCRIPTOR const* what, unsigned levels)
{
  auto const bytes =
    what == nullptr ? 0 : bytes_of(what->Width, what->Height, what->Depth, what->NumChannels, what->Format);
  return allocate(
    {"cuMipmappedArrayCreate", memory_kind::array, key_space::array, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMipmappedArrayCreate, out, what, levels); },
    [&] { return number_of(*out); });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
  return release(key_space::array, number_of(array), __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuMipmappedArrayDestroy, array);
  });
}

// --- memory of the host ------------------------------------------------------------------------------------------------

CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags)
{
  return allocate(
    {"cuMemHostAlloc", memory_kind::pinned_host, key_space::address, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemHostAlloc, out, bytes, flags); },
    [&] { return number_of(*out); });
}

CUresult cuMemAllocHost_v2(void** out, std::size_t bytes)
{
  return allocate(
    {"cuMemAllocHost", memory_kind::pinned_host, key_space::address, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemAllocHost_v2, out, bytes); },
    [&] { return number_of(*out); });
}

CUresult cuMemFreeHost(void* address)
{
  return release(key_space::address, number_of(address), __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuMemFreeHost, address);
  });
}

CUresult cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags)
{
  return allocate(
    {"cuMemHostRegister", memory_kind::registered_host, key_space::registered, bytes, __builtin_return_address(0)},
    [&] { return RMM_AUDIT_CALL(cuMemHostRegister_v2, address, bytes, flags); },
    [&] { return number_of(address); });
}

CUresult cuMemHostUnregister(void* address)
{
  return release(key_space::registered, number_of(address), __builtin_return_address(0), [&] {
    return RMM_AUDIT_CALL(cuMemHostUnregister, address);
  });
}

// --- questions about routed memory --------------------------------------------------------------------------------------

CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address)
{
  if (may_be_routed()) {
    if (auto const block = find_routed(address)) {
      if (begin != nullptr) { *begin = block->address; }
      if (bytes != nullptr) { *bytes = block->bytes; }
      return CUDA_SUCCESS;
    }
  }
  return RMM_AUDIT_CALL(cuMemGetAddressRange_v2, begin, bytes, address);
}

/// Refused, because the other process would map the pool's whole memory and take its beginning for the block.
CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address)
{
  if (may_be_routed() && find_routed(address)) {
    say("routed memory cannot be shared with other processes (cuIpcGetMemHandle)");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return RMM_AUDIT_CALL(cuIpcGetMemHandle, out, address);
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address)
{
  auto const result = RMM_AUDIT_CALL(cuPointerGetAttribute, out, attribute, address);
  if (result == CUDA_SUCCESS && may_be_routed()) { correct_attribute(out, attribute, address); }
  return result;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out, CUdeviceptr address)
{
  auto const result = RMM_AUDIT_CALL(cuPointerGetAttributes, count, attributes, out, address);
  if (result == CUDA_SUCCESS && may_be_routed()) {
    for (unsigned i = 0; i < count; ++i) { correct_attribute(out[i], attributes[i], address); }
  }
  return result;
}

#pragma GCC visibility pop

}  // extern "C"
