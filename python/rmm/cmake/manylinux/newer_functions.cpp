// SPDX-License-Identifier: Apache-2.0

// Functions of glibc and libstdc++ that compilers since 2022 call and manylinux_2_28 lacks. They are implemented here with
// functions that manylinux_2_28 has. Wheels are linked with them (link_stubs.py); the linker takes only those that are used. Each
// one has the linker name of the function that it replaces, and a name of its own, so that no header has to declare it alike.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <ios>
#include <new>
#include <sstream>

#define STANDS_FOR(name) asm(name) __attribute__((visibility("hidden")))

extern "C" {

// glibc 2.32: whether the process has only one thread, so that a counter needs no atomic instructions. Here it never says so.
extern char single_threaded STANDS_FOR("__libc_single_threaded");
char single_threaded{0};

// glibc 2.33. The kernel fills the structure that these functions take on both architectures, whichever name the function has.
struct stat;
#define NEWER_STATUS(ending)                                                                  \
  int newer_fstat##ending(int file, struct stat* status) STANDS_FOR("fstat" #ending);         \
  int newer_fstat##ending(int file, struct stat* status)                                      \
  {                                                                                           \
    return static_cast<int>(syscall(SYS_fstat, file, status));                                \
  }                                                                                           \
  int newer_fstatat##ending(int folder, char const* path, struct stat* status, int flags)     \
    STANDS_FOR("fstatat" #ending);                                                            \
  int newer_fstatat##ending(int folder, char const* path, struct stat* status, int flags)     \
  {                                                                                           \
    return static_cast<int>(syscall(SYS_newfstatat, folder, path, status, flags));            \
  }                                                                                           \
  int newer_stat##ending(char const* path, struct stat* status) STANDS_FOR("stat" #ending);   \
  int newer_stat##ending(char const* path, struct stat* status)                               \
  {                                                                                           \
    return newer_fstatat##ending(AT_FDCWD, path, status, 0);                                  \
  }                                                                                           \
  int newer_lstat##ending(char const* path, struct stat* status) STANDS_FOR("lstat" #ending); \
  int newer_lstat##ending(char const* path, struct stat* status)                              \
  {                                                                                           \
    return newer_fstatat##ending(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);                \
  }
NEWER_STATUS()
NEWER_STATUS(64)

// Converts a moment of a clock to the clock that the older functions wait by.
static timespec on_the_old_clock(clockid_t clock, timespec moment)
{
  if (clock == CLOCK_REALTIME) { return moment; }
  timespec now{};
  timespec now_of_old{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &now_of_old);
  constexpr long second{1'000'000'000};
  moment.tv_sec += now_of_old.tv_sec - now.tv_sec;
  moment.tv_nsec += now_of_old.tv_nsec - now.tv_nsec;
  if (moment.tv_nsec < 0) {
    moment.tv_nsec += second;
    --moment.tv_sec;
  } else if (moment.tv_nsec >= second) {
    moment.tv_nsec -= second;
    ++moment.tv_sec;
  }
  if (moment.tv_sec < 0) { moment = timespec{}; }
  return moment;
}

// glibc 2.30: waits until a moment of a monotonic clock. If the system clock is set meanwhile, the wait gets longer or shorter.
int newer_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, timespec const* until)
  STANDS_FOR("pthread_cond_clockwait");
int newer_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, timespec const* until)
{
  timespec const moment{on_the_old_clock(clock, *until)};
  return pthread_cond_timedwait(condition, mutex, &moment);
}

int newer_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, timespec const* until)
  STANDS_FOR("pthread_mutex_clocklock");
int newer_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, timespec const* until)
{
  timespec const moment{on_the_old_clock(clock, *until)};
  return pthread_mutex_timedlock(mutex, &moment);
}

// GCC 11, std::__throw_bad_array_new_length().
[[noreturn]] void newer_throw_bad_array_new_length() STANDS_FOR("_ZSt28__throw_bad_array_new_lengthv");
[[noreturn]] void newer_throw_bad_array_new_length() { throw std::bad_array_new_length{}; }

// GCC 11: exception_ptr::_M_addref() and _M_release(). Older releases have a private constructor and a destructor that call them.
void old_exception_ptr(void** made, void* exception) asm("_ZNSt15__exception_ptr13exception_ptrC1EPv");

void newer_addref(void** pointer) STANDS_FOR("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void newer_addref(void** pointer)
{
  void* second{nullptr};
  old_exception_ptr(&second, *pointer);  // not destroyed, so that the added reference stays
}

// Returns libstdc++'s destructor. The linker might find an inline copy of it from a header, which calls newer_release() again.
static void (*old_destructor())(void**)
{
  void* const library{dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD)};
  if (library == nullptr) { std::abort(); }
  void* const found{dlsym(library, "_ZNSt15__exception_ptr13exception_ptrD1Ev")};
  if (found == nullptr) { std::abort(); }
  return reinterpret_cast<void (*)(void**)>(found);
}

void newer_release(void** pointer) STANDS_FOR("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void newer_release(void** pointer)
{
  static void (*const destroy)(void**){old_destructor()};
  destroy(pointer);
}

// GCC 9, std::ostringstream's constructor without arguments.
void newer_ostringstream(std::ostringstream* made)
  STANDS_FOR("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void newer_ostringstream(std::ostringstream* made)
{
  ::new (static_cast<void*>(made)) std::ostringstream{std::ios_base::out};
}

}  // extern "C"
