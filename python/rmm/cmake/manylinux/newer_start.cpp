// SPDX-License-Identifier: Apache-2.0

// Starts a program on any glibc. Since 2.34 the C library calls a program's constructors. Before, the program passed it a function
// that calls them, which programs linked with a newer glibc do not. So this start function passes one.

extern "C" {

using procedure = void (*)(int, char**, char**);

extern procedure first_constructor[] asm("__init_array_start") __attribute__((visibility("hidden")));
extern procedure end_of_constructors[] asm("__init_array_end") __attribute__((visibility("hidden")));
void begin_of_constructors() asm("_init") __attribute__((visibility("hidden")));

static void construct(int count, char** arguments, char** environment)
{
  begin_of_constructors();
  for (procedure* each = first_constructor; each != end_of_constructors; ++each) {
    (*each)(count, arguments, environment);
  }
}

using main_function = int (*)(int, char**, char**);

int old_start(
  main_function main, int count, char** arguments, procedure constructors, void (*fini)(), void (*end)(), void* stack);
#if defined(__x86_64__)
__asm__(".symver old_start, __libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver old_start, __libc_start_main@GLIBC_2.17");
#endif

int start(main_function main, int count, char** arguments, procedure, void (*fini)(), void (*end)(), void* stack) asm(
  "__libc_start_main") __attribute__((visibility("hidden")));
int start(main_function main, int count, char** arguments, procedure, void (*fini)(), void (*end)(), void* stack)
{
  return old_start(main, count, arguments, construct, fini, end, stack);
}

}  // extern "C"
