// SPDX-License-Identifier: Apache-2.0
//
// A shared object for stack_module_tests.cpp. It is built with stacks of different sizes; all else is the same.

extern "C" __attribute__((visibility("default"))) void call_from_module(void (*function)())
{
  char space[RMM_TEST_STACK_BYTES];
  asm volatile("" : : "r"(space) : "memory");
  function();
  asm volatile("" : : "r"(space) : "memory");
}
