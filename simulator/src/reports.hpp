// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What faults, reports and the environment share. All functions expect the lock unless they say otherwise.

#include "shared_devices.hpp"
#include "world.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cudasim {

/// Applies the environment's settings other than the machine: time limit, quiet, and faults. Only the first call acts.
void apply_environment();

/// The devices that other processes share; null unless the environment names a file for them.
[[nodiscard]] std::unique_ptr<shared_devices> open_shared_devices();

/// Parses one entry of CUDASIM_FAULT, "FUNCTION:N:ERROR[:COUNT]". Returns an empty string and fills `out`, or says what is
/// wrong. Needs no lock.
[[nodiscard]] std::string parse_fault(std::string const& text, fault& out);

/// Why the fault cannot be injected; empty if it can. Needs no lock.
[[nodiscard]] std::string check_fault(fault const& what);

/// Arms a fault that check_fault() found nothing wrong with.
void arm(fault const& what);

/// Sets `attention`, which sends calls the slow way, exactly if there is a reason.
void update_attention();

/// The functions called since the last reset, by name, with their numbers of calls. Needs no lock.
[[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> calls_by_function();

/// Whether the CUDA runtime has a function of that name, simulated or not. Twins do not count. Needs no lock.
[[nodiscard]] bool is_runtime_function(std::string const& name);

/// Name of an error; null for a number that is not an error. Needs no lock.
[[nodiscard]] char const* error_name(cudaError_t error) noexcept;

/// The error of that name or number. Returns false if there is none. Needs no lock.
[[nodiscard]] bool find_error(std::string const& name, cudaError_t& out);

/// Reports a call of an unsimulated function: prints one line, the name of the call and `what`, even with
/// CUDASIM_QUIET, unless the line was printed often enough for the same caller. Returns cudaErrorNotSupported.
cudaError_t report_unsimulated(call const& c, std::string const& what);

}  // namespace cudasim
