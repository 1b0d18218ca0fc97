// SPDX-License-Identifier: Apache-2.0
#include "module.hpp"

#include <rmm/error.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

/// One registry for the executable and modules that are opened with RTLD_LOCAL, which is how Python opens extensions,
/// however they were compiled. Each test is a process of its own, in which nothing has used the registry before.
///
/// Two programs are made of this file: an executable that uses the library itself, like the modules, and one that only
/// opens them, as the Python interpreter does.

// The executable as one of the users, if it is one.
extern "C" two_objects_module_functions const two_objects_module __attribute__((weak));

namespace {

constexpr int device = 3;

/// Ends the child process if something is not as it should be.
void require(bool condition, char const* what)
{
  if (!condition) {
    std::fprintf(stderr, "not true: %s\n", what);
    std::_Exit(1);
  }
}
#define REQUIRE(condition) require(condition, #condition)

class module {
 public:
  explicit module(std::string const& path) : handle_{dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)}
  {
    if (handle_ == nullptr) { std::fprintf(stderr, "%s\n", dlerror()); }
    require(handle_ != nullptr, path.c_str());
    functions_ = static_cast<two_objects_module_functions const*>(dlsym(handle_, "two_objects_module"));
    REQUIRE(functions_ != nullptr);
  }

  /// The executable.
  explicit module(two_objects_module_functions const& functions) : handle_{nullptr}, functions_{&functions} {}

  [[nodiscard]] two_objects_module_functions const* operator->() const { return functions_; }
  void close() { REQUIRE(dlclose(handle_) == 0); }

 private:
  void* handle_;
  two_objects_module_functions const* functions_;
};

std::string module_path(std::string const& name)
{
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

/// The modules that this build made, next to the program: their file names, separated by colons, come from the build.
std::vector<std::string> module_paths()
{
  std::vector<std::string> paths;
  std::istringstream names{TWO_OBJECTS_MODULES};
  for (std::string name; std::getline(names, name, ':');) { paths.push_back(module_path(name)); }
  return paths;
}

std::string name_of(std::string const& path)
{
  auto const name = path.substr(path.rfind("two_objects_") + 12);
  return name.substr(0, name.find('.'));
}

bool executable_is_user() { return &two_objects_module != nullptr; }

/// All modules, and the executable if it uses the registry.
std::vector<module> open_all()
{
  std::vector<module> modules;
  for (auto const& path : module_paths()) { modules.emplace_back(path); }
  if (executable_is_user()) { modules.emplace_back(two_objects_module); }
  return modules;
}

/// A resource, of which only the address matters.
class some_resource final : public rmm::mr::device_memory_resource {
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};

std::vector<module> const* all_modules{};  // for handlers at exit, which take no argument

/// Runs a test body in a process of its own, which has to end well.
#define IN_NEW_PROCESS(...)                             \
  EXPECT_EXIT(                                          \
    {                                                   \
      __VA_ARGS__;                                      \
      std::exit(::testing::Test::HasFailure() ? 1 : 0); \
    },                                                  \
    ::testing::ExitedWithCode(0),                       \
    "")

TEST(TwoObjectsTest, ThereAreModulesToTest) { EXPECT_GE(module_paths().size(), 4); }

/// Parameter: index of the user that is first.
struct TwoObjectsFirstUserTest : ::testing::TestWithParam<std::size_t> {
  static std::vector<module> open_all_and_use_first()
  {
    auto modules = open_all();
    REQUIRE(modules[GetParam()]->registry() != nullptr);
    return modules;
  }
};

TEST_P(TwoObjectsFirstUserTest, AllFindOneRegistry)
{
  IN_NEW_PROCESS({
    auto const modules   = open_all_and_use_first();
    void* const registry = modules[GetParam()]->registry();
    for (auto const& module : modules) { REQUIRE(module->registry() == registry); }
  });
}

TEST_P(TwoObjectsFirstUserTest, AllSeeTheInitialResourceAndKnowItsType)
{
  IN_NEW_PROCESS({
    auto const modules  = open_all_and_use_first();
    auto* const initial = modules[GetParam()]->initial();
    for (auto const& module : modules) {
      REQUIRE(module->initial() == initial);
      REQUIRE(module->pointer(device) == initial);
      REQUIRE(module->is_initial(initial));
    }
  });
}

TEST_P(TwoObjectsFirstUserTest, APointerRegisteredInOneObjectIsUsedInAll)
{
  IN_NEW_PROCESS({
    auto const modules = open_all_and_use_first();
    for (auto const& setter : modules) {
      some_resource resource;
      setter->set_pointer(device, &resource);
      for (auto const& module : modules) { REQUIRE(module->pointer(device) == &resource); }
      setter->set_pointer(device, nullptr);
      for (auto const& module : modules) { REQUIRE(module->pointer(device) == module->initial()); }
    }
  });
}

TEST_P(TwoObjectsFirstUserTest, AReferenceRegisteredInOneObjectIsUsedInAll)
{
  IN_NEW_PROCESS({
    auto const modules = open_all_and_use_first();
    for (auto const& owner : modules) {
      owner->register_own_ref(device);
      REQUIRE(owner->ref_is_own(device));
      for (auto const& module : modules) {
        void* const ptr = module->allocate(device, 100);
        REQUIRE(owner->own_allocations() == 1);
        module->deallocate(device, ptr, 100);
        REQUIRE(owner->own_allocations() == 0);
      }
      owner->set_pointer(device, nullptr);
      REQUIRE(!owner->ref_is_own(device));
    }
  });
}

TEST_P(TwoObjectsFirstUserTest, AllUseTheMemoryOfReferencesAgain)
{
  IN_NEW_PROCESS({
    auto const modules = open_all_and_use_first();
    for (int round = 0; round < 100; ++round) {
      for (auto const& owner : modules) {
        owner->register_own_ref(device);
        REQUIRE(owner->ref_is_own(device));
        auto const& other = modules[static_cast<std::size_t>(round) % modules.size()];
        void* const ptr   = other->allocate(device, 100);
        REQUIRE(owner->own_allocations() == 1);
        other->deallocate(device, ptr, 100);
      }
    }
  });
}

TEST_P(TwoObjectsFirstUserTest, ATagOfOneObjectIsSeenInAll)
{
  IN_NEW_PROCESS({
    auto modules = open_all();
    REQUIRE(std::string{modules[GetParam()]->current_tag()}.empty());
    for (auto const& setter : modules) {
      setter->with_tag(
        "of one module",
        [](void* all) {
          for (auto const& module : *static_cast<std::vector<class module>*>(all)) {
            REQUIRE(std::string{module->current_tag()} == "of one module");
          }
        },
        &modules);
      for (auto const& module : modules) { REQUIRE(std::string{module->current_tag()}.empty()); }
    }
  });
}

TEST_P(TwoObjectsFirstUserTest, AFailureIsCaughtByItsTypeWithItsReport)
{
  IN_NEW_PROCESS({
    auto const modules = open_all();
    bool caught        = false;
    try {
      modules[GetParam()]->fail_to_allocate(1000);
    } catch (rmm::out_of_memory const& e) {
      auto const copy = e;
      REQUIRE(copy.report() != nullptr);
      REQUIRE(copy.report()->asked_bytes == 1000);
      caught = true;
    }
    REQUIRE(caught);
  });
}

TEST_P(TwoObjectsFirstUserTest, TheChoiceOfSizesInOneObjectAppliesToAll)
{
  unsetenv("RMM_UNROUNDED_SIZES");
  IN_NEW_PROCESS({
    auto const modules = open_all();
    REQUIRE(modules[GetParam()]->size_that_arrives(10) == 16);
    for (auto const& module : modules) { REQUIRE(module->size_that_arrives(10) == 16); }
  });
  IN_NEW_PROCESS({
    auto const modules = open_all();
    modules[GetParam()]->use_unrounded_sizes();
    for (auto const& module : modules) { REQUIRE(module->size_that_arrives(10) == 10); }
    for (auto const& module : modules) { REQUIRE(module->size_that_arrives(10) == 10); }  // as it has learned by now
  });
}

TEST_P(TwoObjectsFirstUserTest, TheExitNoticedInOneObjectIsSeenInAll)
{
  IN_NEW_PROCESS({
    auto const& modules = *new auto{open_all()};
    all_modules         = &modules;
    for (auto const& module : modules) { REQUIRE(!module->process_is_exiting()); }
    std::atexit([] {
      for (auto const& module : *all_modules) {
        if (!module->process_is_exiting()) { std::_Exit(EXIT_FAILURE); }
      }
    });
    static_cast<void>(modules[GetParam()]->registry());  // its handler runs before that one
    for (auto const& module : modules) { REQUIRE(!module->process_is_exiting()); }
  });
}

std::vector<std::string> user_names()
{
  std::vector<std::string> names;
  for (auto const& path : module_paths()) { names.push_back(name_of(path)); }
  if (executable_is_user()) { names.emplace_back("executable"); }
  return names;
}

INSTANTIATE_TEST_SUITE_P(FirstUser,
                         TwoObjectsFirstUserTest,
                         ::testing::Range(std::size_t{0}, user_names().size()),
                         [](auto const& test) { return user_names()[test.param]; });

struct TwoObjectsUnloadTest : ::testing::TestWithParam<std::string> {};

TEST_P(TwoObjectsUnloadTest, AnUnusedModuleMayGo)
{
  IN_NEW_PROCESS({
    module{GetParam()}.close();
    auto const modules = open_all();
    for (auto const& module : modules) { REQUIRE(!module->process_is_exiting()); }
    void* const registry = modules.front()->registry();
    for (auto const& module : modules) { REQUIRE(module->registry() == registry); }
  });
}

TEST_P(TwoObjectsUnloadTest, TheRegistryOutlivesTheModuleThatMadeIt)
{
  IN_NEW_PROCESS({
    module maker{GetParam()};
    void* const registry = maker->registry();
    auto* const initial  = maker->initial();
    maker.close();
    auto const modules = open_all();
    for (auto const& module : modules) {
      REQUIRE(module->registry() == registry);
      REQUIRE(module->initial() == initial);
      REQUIRE(module->is_initial(initial));  // calls the maker's code
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Module, TwoObjectsUnloadTest, ::testing::ValuesIn(module_paths()), [](auto const& test) {
  return name_of(test.param);
});

TEST(TwoObjectsTest, ThreadsThatAreFirstAtTheSameTimeFindOneRegistry)
{
  IN_NEW_PROCESS({
    auto const modules = open_all();
    std::atomic<std::size_t> waiting{0};
    std::vector<void*> found(modules.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      threads.emplace_back([&, i] {
        ++waiting;
        while (waiting < modules.size()) {}
        found[i] = modules[i]->registry();
      });
    }
    for (auto& thread : threads) { thread.join(); }
    for (void* const registry : found) { REQUIRE(registry == found.front()); }
  });
}

#ifdef TWO_OBJECTS_OTHER_REGISTRY

/// A release whose registry has another layout beside this one: modules in the order in which they are opened.
struct TwoReleasesTest : ::testing::TestWithParam<bool> {
  struct both {
    std::vector<module> ours;
    std::vector<module> others;
  };

  static both open_both()
  {
    both all;
    auto const path = module_path(TWO_OBJECTS_OTHER_REGISTRY);
    if (GetParam()) { all.others.emplace_back(path); }
    all.ours = open_all();
    if (!GetParam()) { all.others.emplace_back(path); }
    return all;
  }
};

TEST_P(TwoReleasesTest, KeepRegistriesApartThatDifferInLayout)
{
  IN_NEW_PROCESS({
    auto const all    = open_both();
    auto const& other = all.others.front();
    void* const ours  = all.ours.front()->registry();
    REQUIRE(other->registry() != ours);
    some_resource resource;
    other->set_pointer(device, &resource);
    REQUIRE(other->pointer(device) == &resource);
    for (auto const& module : all.ours) {
      REQUIRE(module->registry() == ours);
      REQUIRE(module->pointer(device) == module->initial());
      module->set_pointer(device + 1, &resource);
      REQUIRE(other->pointer(device + 1) == other->initial());
      module->set_pointer(device + 1, nullptr);
    }
    REQUIRE(other->pointer(device) == &resource);
  });
}

TEST_P(TwoReleasesTest, AllocateThroughWhatEachRegistered)
{
  IN_NEW_PROCESS({
    auto const all    = open_both();
    auto const& our   = all.ours.front();
    auto const& other = all.others.front();
    our->register_own_ref(device);
    other->register_own_ref(device);
    void* const first  = our->allocate(device, 100);
    void* const second = other->allocate(device, 100);
    REQUIRE(our->own_allocations() == 1);
    REQUIRE(other->own_allocations() == 1);
    our->deallocate(device, first, 100);
    other->deallocate(device, second, 100);
    REQUIRE(our->own_allocations() == 0);
    REQUIRE(other->own_allocations() == 0);
  });
}

TEST_P(TwoReleasesTest, ShareTypesResourcesAndTags)
{
  IN_NEW_PROCESS({
    auto all          = open_both();
    auto const& our   = all.ours.front();
    auto const& other = all.others.front();
    REQUIRE(our->is_initial(other->initial()));
    REQUIRE(other->is_initial(our->initial()));
    our->set_pointer(device, other->initial());  // a resource of the other
    REQUIRE(our->pointer(device) == other->initial());
    our->set_pointer(device, nullptr);
    other->with_tag(
      "of the other",
      [](void* mine) {
        for (auto const& module : *static_cast<std::vector<class module>*>(mine)) {
          REQUIRE(std::string{module->current_tag()} == "of the other");
        }
      },
      &all.ours);
    bool caught = false;
    try {
      other->fail_to_allocate(1000);
    } catch (rmm::out_of_memory const& e) {
      caught = e.report() != nullptr && e.report()->asked_bytes == 1000;
    }
    REQUIRE(caught);
  });
}

INSTANTIATE_TEST_SUITE_P(Order, TwoReleasesTest, ::testing::Bool(), [](auto const& test) {
  return test.param ? "the_other_first" : "the_other_last";
});

#endif

/// Uses the registry when nearly everything else of the process is gone.
struct use_at_exit {
  std::vector<module> modules;
  ~use_at_exit()
  {
    for (auto const& module : modules) { REQUIRE(module->pointer(device) == modules.front()->initial()); }
  }
};

TEST(TwoObjectsTest, TheRegistryIsThereWhenStaticObjectsAreDestroyed)
{
  IN_NEW_PROCESS({
    static use_at_exit const destroyed_late{open_all()};
    REQUIRE(destroyed_late.modules.front()->registry() != nullptr);
  });
}

}  // namespace
