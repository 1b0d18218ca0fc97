// SPDX-License-Identifier: Apache-2.0
//
// A library whose constructor waits for a thread that allocates. The dynamic linker's lock is held meanwhile.

extern "C" void allocate_while_constructed();  // of the program

namespace {

[[gnu::constructor]] void wait_for_a_thread() { allocate_while_constructed(); }

}  // namespace
