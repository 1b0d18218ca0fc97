// SPDX-License-Identifier: Apache-2.0

// Succeeds if the memory of the library that it calls comes from the simulator.

#include <cudasim/cudasim.h>

bool holds_while_allocated(bool (*condition)());

int main()
{
  return holds_while_allocated([] { return !cudasim::ledger().empty(); }) ? 0 : 1;
}
