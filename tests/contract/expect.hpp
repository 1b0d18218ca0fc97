// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

/// Ends the program if `condition` does not hold.
inline void expect(bool condition, char const* what)
{
  if (!condition) { throw std::runtime_error{std::string{"expected: "} + what}; }
}

inline void expect_success(cudaError_t status) { expect(status == cudaSuccess, cudaGetErrorString(status)); }

/// Runs a program; says why it failed.
template <class Program>
int run(Program program)
{
  try {
    program();
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
