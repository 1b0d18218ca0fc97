// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// What every suballocator says of a request that it could not serve. Throws std::bad_alloc.
[[nodiscard]] RMM_COLD inline memory_report report_of(std::size_t asked,
                                                      cuda_stream_view stream,
                                                      std::string const& reason,
                                                      heap_figures const& figures)
{
  memory_report report;
  report.asked_bytes     = asked;
  report.alignment_bytes = CUDA_ALLOCATION_ALIGNMENT;
  report.stream          = stream;
  report.device          = rmm::detail::current_device_if_known();
  report.reason          = reason;
  report.pool            = figures;
  if (auto const [free, total] = rmm::detail::device_memory_info_or_zero(); total != 0) {
    report.device_figures = {free, total};
  }
  return report;
}

/// Throws out_of_memory with the report that `make_report()` returns, unless the host has no memory for one.
template <class MakeReport>
[[noreturn]] RMM_COLD void throw_exhausted(std::string const& message, MakeReport const& make_report)
{
  std::optional<memory_report> report;
  try {
    report.emplace(make_report());
  } catch (std::exception const&) {
    throw out_of_memory{message};
  }
  rmm::detail::throw_out_of_memory(message, *report);
}

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
