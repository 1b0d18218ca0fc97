// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"

#include "sized_struct.hpp"

#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>

#include <cstddef>
#include <exception>
#include <new>
#include <stdexcept>

#include <string.h>  // strnlen

namespace rmm_c {
namespace {

/// The last failure of a thread. It needs no allocation and no destructor, so keeping a failure cannot fail, and works
/// even while the thread or the process ends.
struct kept_failure {
  static constexpr std::size_t most_text = 8192;

  rmm_c_status status;
  bool has_report;
  rmm_c_report report;
  char text[most_text];
};

thread_local kept_failure last;

rmm_c_report to_c(rmm::memory_report const& from) noexcept
{
  rmm_c_report to{};
  to.asked_bytes        = from.asked_bytes;
  to.alignment_bytes    = from.alignment_bytes;
  to.device             = from.device;
  to.maximum_bytes      = from.maximum_bytes ? *from.maximum_bytes : RMM_C_UNKNOWN;
  to.reserved_bytes     = from.pool.reserved_bytes;
  to.live_bytes         = from.pool.live_bytes;
  to.free_bytes         = from.pool.free_bytes;
  to.cached_bytes       = from.pool.cached_bytes;
  to.largest_free_bytes = from.pool.largest_free_bytes;

  to.device_free_bytes    = from.device_figures ? from.device_figures->free_bytes : RMM_C_UNKNOWN;
  to.device_total_bytes   = from.device_figures ? from.device_figures->total_bytes : RMM_C_UNKNOWN;
  auto const others       = from.held_by_others();
  to.held_by_others_bytes = others ? *others : RMM_C_UNKNOWN;

  to.failures = from.pool.recovery.failures;
  return to;
}

}  // namespace

rmm_c_status fail(rmm_c_status status, char const* text) noexcept
{
  last.status       = status;
  last.has_report   = false;
  auto const length = strnlen(text, kept_failure::most_text - 1);
  memcpy(last.text, text, length);
  last.text[length] = '\0';
  return status;
}

rmm_c_status fail_by_exception(activity during) noexcept
{
  bool const is_making = during == activity::making_a_resource;
  try {
    throw;
  } catch (rmm::out_of_memory const& error) {
    fail(RMM_C_OUT_OF_MEMORY, error.what());
    if (auto const* const report = error.report()) {
      last.report     = to_c(*report);
      last.has_report = true;
    }
    return RMM_C_OUT_OF_MEMORY;
  } catch (rmm::bad_alloc const& error) {
    return fail(RMM_C_ALLOCATION_FAILED, error.what());
  } catch (std::bad_alloc const& error) {
    return fail(RMM_C_HOST_OUT_OF_MEMORY, error.what());
  } catch (rmm::cuda_error const& error) {
    return fail(RMM_C_CUDA_ERROR, error.what());
  } catch (std::out_of_range const& error) {
    return fail(RMM_C_INVALID_ARGUMENT, error.what());
  } catch (std::invalid_argument const& error) {
    return fail(is_making ? RMM_C_BAD_CONFIGURATION : RMM_C_INVALID_ARGUMENT, error.what());
  } catch (std::logic_error const& error) {
    return fail(is_making ? RMM_C_BAD_CONFIGURATION : RMM_C_MISUSE, error.what());
  } catch (std::exception const& error) {
    return fail(RMM_C_FAILED, error.what());
  } catch (...) {
    return fail(RMM_C_FAILED, "an exception that is not a std::exception was thrown");
  }
}

}  // namespace rmm_c

using rmm_c::can_be_written;
using rmm_c::write_known_part;

rmm_c_status rmm_c_last_failure(void) noexcept { return rmm_c::last.status; }

char const* rmm_c_last_failure_text(void) noexcept { return rmm_c::last.text; }

rmm_c_status rmm_c_last_failure_report(rmm_c_report* report) noexcept
{
  if (!can_be_written(report)) { return RMM_C_INVALID_ARGUMENT; }
  write_known_part(report, rmm_c::last.has_report ? rmm_c::last.report : rmm_c_report{});
  return rmm_c::last.has_report ? RMM_C_OK : RMM_C_NOT_SUPPORTED;
}
