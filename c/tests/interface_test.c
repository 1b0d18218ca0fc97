/* SPDX-License-Identifier: Apache-2.0 */

/* The interface as a program in strict C11 meets it, on a device or on the simulator. */

#include <rmm/c/rmm.h>

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                      \
  do {                                                         \
    if (!(condition)) {                                        \
      fprintf(stderr,                                          \
              "%s:%d: not true: %s\n  last failure: %s: %s\n", \
              __FILE__,                                        \
              __LINE__,                                        \
              #condition,                                      \
              rmm_c_status_name(rmm_c_last_failure()),         \
              rmm_c_last_failure_text());                      \
      exit(1);                                                 \
    }                                                          \
  } while (0)

static rmm_c_resource* make(char const* configuration)
{
  rmm_c_resource* resource = NULL;
  EXPECT(rmm_c_resource_create(configuration, RMM_C_CURRENT_DEVICE, &resource) == RMM_C_OK);
  EXPECT(resource != NULL);
  return resource;
}

struct holders {
  rmm_c_resource* resource;
  size_t visits;
  uint64_t live_bytes;
  uint64_t live_blocks;
};

static void add_holder(void* argument, char const* tag, uint64_t live_bytes, uint64_t live_blocks)
{
  struct holders* const found = argument;
  EXPECT(strcmp(tag, "") == 0);
  ++found->visits;
  found->live_bytes += live_bytes;
  found->live_blocks += live_blocks;
}

static void says_its_version(void)
{
  EXPECT(rmm_c_version() == RMM_C_VERSION);
  EXPECT(strlen(rmm_c_engine_version()) >= 5);
  EXPECT(strcmp(rmm_c_status_name(RMM_C_MISUSE), "RMM_C_MISUSE") == 0);
  EXPECT(strcmp(rmm_c_status_name(RMM_C_NO_STATUS), "unknown status") == 0);
}

static void begins_without_a_failure(void)
{
  EXPECT(rmm_c_last_failure() == RMM_C_OK);
  EXPECT(strcmp(rmm_c_last_failure_text(), "") == 0);
}

static void allocates_and_takes_back(void)
{
  char const* const configurations[] = {
    "pool", "pool,initial=1MiB,statistics", "arena", "cuda", "cuda_async", "elastic", "managed"};
  for (size_t i = 0; i < sizeof configurations / sizeof *configurations; ++i) {
    rmm_c_resource* const resource = make(configurations[i]);
    void* blocks[8];
    for (size_t each = 0; each < 8; ++each) {
      EXPECT(rmm_c_resource_allocate(resource, 1000 * (each + 1), 256, NULL, &blocks[each]) == RMM_C_OK);
      EXPECT(blocks[each] != NULL && (uintptr_t)blocks[each] % 256 == 0);
    }
    for (size_t each = 0; each < 8; ++each) {
      rmm_c_resource_deallocate(resource, blocks[each], 1000 * (each + 1), 256, NULL);
    }
    EXPECT(rmm_c_resource_destroy(resource) == RMM_C_OK);
  }
}

static void takes_null_and_nothing(void)
{
  rmm_c_resource* const pool = make("pool");
  void* block                = &block;
  EXPECT(rmm_c_resource_allocate(pool, 0, 0, NULL, &block) == RMM_C_OK && block == NULL);
  rmm_c_resource_deallocate(pool, NULL, 0, 0, NULL);
  rmm_c_resource_deallocate(NULL, NULL, 0, 0, NULL);
  EXPECT(rmm_c_resource_destroy(NULL) == RMM_C_OK);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
  EXPECT(rmm_c_resource_device(NULL) == RMM_C_CURRENT_DEVICE);
  rmm_c_graph_memory_destroy(NULL);
  rmm_c_graph_memory_destroy_on(NULL, NULL);
  rmm_c_capture_end(NULL);
}

static void refuses_bad_arguments(void)
{
  rmm_c_resource* resource;
  void* block = &block;
  EXPECT(rmm_c_resource_create("pool", RMM_C_CURRENT_DEVICE, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_create("pool", 4096, &resource) == RMM_C_INVALID_ARGUMENT && resource == NULL);
  EXPECT(rmm_c_resource_create("pool", -2, &resource) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_allocate(NULL, 1, 0, NULL, &block) == RMM_C_INVALID_ARGUMENT && block == NULL);
  EXPECT(rmm_c_resource_trim(NULL, 0, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_figures(NULL, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_visit_tags(NULL, add_holder, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_default_resource(4096, &resource) == RMM_C_INVALID_ARGUMENT && resource == NULL);
  EXPECT(rmm_c_default_resource(RMM_C_CURRENT_DEVICE, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_graph_memory_create(NULL) == RMM_C_INVALID_ARGUMENT);
  rmm_c_capture* capture;
  EXPECT(rmm_c_capture_begin(NULL, NULL, &capture) == RMM_C_INVALID_ARGUMENT && capture == NULL);

  rmm_c_resource* const pool = make("pool");
  EXPECT(rmm_c_resource_allocate(pool, 1, 0, NULL, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_visit_tags(pool, NULL, NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_allocate(pool, 1, 3, NULL, &block) == RMM_C_INVALID_ARGUMENT && block == NULL);
  EXPECT(rmm_c_resource_allocate(pool, 1, 512, NULL, &block) == RMM_C_INVALID_ARGUMENT && block == NULL);
  EXPECT(rmm_c_last_failure() == RMM_C_INVALID_ARGUMENT);
  EXPECT(strstr(rmm_c_last_failure_text(), "alignment") != NULL);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
}

static void gives_a_larger_alignment_that_was_configured(void)
{
  rmm_c_resource* const pool = make("pool,alignment=4KiB,alignment_threshold=1KiB");
  void* block;
  EXPECT(rmm_c_resource_allocate(pool, 1024, 4096, NULL, &block) == RMM_C_OK && (uintptr_t)block % 4096 == 0);
  rmm_c_resource_deallocate(pool, block, 1024, 4096, NULL);
  EXPECT(rmm_c_resource_allocate(pool, 1023, 4096, NULL, &block) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
}

static void gives_its_own_alignment_if_a_smaller_one_was_configured(void)
{
  rmm_c_resource* const pool = make("pool,alignment=64");
  void* block;
  EXPECT(rmm_c_resource_allocate(pool, 1024, 256, NULL, &block) == RMM_C_OK && (uintptr_t)block % 256 == 0);
  rmm_c_resource_deallocate(pool, block, 1024, 256, NULL);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
}

static void names_the_place_of_a_mistake_in_a_configuration(void)
{
  rmm_c_resource* resource;
  EXPECT(rmm_c_resource_create("pool,initail=1GiB", RMM_C_CURRENT_DEVICE, &resource) == RMM_C_BAD_CONFIGURATION);
  EXPECT(resource == NULL);
  EXPECT(strstr(rmm_c_last_failure_text(), "initail") != NULL);
  EXPECT(rmm_c_resource_create("pool,initial=2MiB,max=1MiB", RMM_C_CURRENT_DEVICE, &resource) ==
         RMM_C_BAD_CONFIGURATION);
}

static void names_the_file_that_cannot_be_made(void)
{
  rmm_c_resource* resource;
  EXPECT(rmm_c_resource_create("cuda,log=/dev/null/log.csv", RMM_C_CURRENT_DEVICE, &resource) == RMM_C_FAILED);
  EXPECT(strstr(rmm_c_last_failure_text(), "/dev/null/log") != NULL);
}

static void reports_why_a_pool_has_no_memory(void)
{
  rmm_c_resource* const pool = make("pool,max=1MiB");
  void* block;
  EXPECT(rmm_c_resource_allocate(pool, 2u << 20u, 0, NULL, &block) == RMM_C_OUT_OF_MEMORY && block == NULL);
  EXPECT(strstr(rmm_c_last_failure_text(), "asked: ") != NULL);
  rmm_c_report report;
  memset(&report, 0xFF, sizeof report);
  report.size = sizeof report;
  EXPECT(rmm_c_last_failure_report(&report) == RMM_C_OK);
  EXPECT(report.size == sizeof report && report.asked_bytes == 2u << 20u && report.maximum_bytes == 1u << 20u);
  EXPECT(report.device_total_bytes != 0 && report.device == 0 && report.failures == 1);

  EXPECT(rmm_c_resource_allocate(pool, 1, 3, NULL, &block) == RMM_C_INVALID_ARGUMENT);
  report.size = sizeof report;
  EXPECT(rmm_c_last_failure_report(&report) == RMM_C_NOT_SUPPORTED && report.asked_bytes == 0);
  EXPECT(rmm_c_last_failure() == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_last_failure_report(NULL) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
}

static void tells_figures(void)
{
  rmm_c_resource* const pool = make("pool,initial=1MiB");
  void* block;
  EXPECT(rmm_c_resource_allocate(pool, 512, 0, NULL, &block) == RMM_C_OK);
  rmm_c_figures figures;
  figures.size = sizeof figures;
  EXPECT(rmm_c_resource_figures(pool, &figures) == RMM_C_OK);
  EXPECT(figures.size == sizeof figures && figures.live_blocks == 1 && figures.live_bytes == 512);
  EXPECT(figures.reserved_bytes == 1u << 20u && figures.free_bytes == (1u << 20u) - 512 &&
         figures.upstream_blocks == 1);
  rmm_c_resource_deallocate(pool, block, 512, 0, NULL);
  EXPECT(rmm_c_resource_figures(pool, &figures) == RMM_C_OK);
  EXPECT(figures.live_blocks == 0 && figures.live_bytes == 0 && figures.failures == 0);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);

  char const* const with_figures[] = {
    "arena", "fixed_size", "binning,smallest=1KiB,largest=64KiB", "cached", "elastic", "pinned_pool"};
  for (size_t i = 0; i < sizeof with_figures / sizeof *with_figures; ++i) {
    rmm_c_resource* const resource = make(with_figures[i]);
    EXPECT(rmm_c_resource_allocate(resource, 512, 0, NULL, &block) == RMM_C_OK);
    EXPECT(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_bytes >= 512);
    rmm_c_resource_deallocate(resource, block, 512, 0, NULL);
    EXPECT(rmm_c_resource_destroy(resource) == RMM_C_OK);
  }

  rmm_c_resource* const cuda = make("cuda");
  EXPECT(rmm_c_resource_allocate(cuda, 512, 0, NULL, &block) == RMM_C_OK);
  EXPECT(rmm_c_resource_figures(cuda, &figures) == RMM_C_NOT_SUPPORTED);
  EXPECT(figures.live_blocks == 1 && figures.reserved_bytes == 0);
  rmm_c_resource_deallocate(cuda, block, 512, 0, NULL);
  EXPECT(rmm_c_resource_destroy(cuda) == RMM_C_OK);
}

static void visits_no_tags(void)
{
  char const* const without_tags[] = {
    "pool", "arena", "cuda", "recommended", "binning", "pool,upstream=(elastic,tags)"};
  for (size_t i = 0; i < sizeof without_tags / sizeof *without_tags; ++i) {
    rmm_c_resource* const resource = make(without_tags[i]);
    struct holders found           = {resource, 0, 0, 0};
    EXPECT(rmm_c_resource_visit_tags(resource, add_holder, &found) == RMM_C_NOT_SUPPORTED && found.visits == 0);
    EXPECT(strstr(rmm_c_last_failure_text(), "tags") != NULL);
    EXPECT(rmm_c_resource_destroy(resource) == RMM_C_OK);
  }
}

/* This library makes no tags; tests of rmm-engine-rapids have several. */
static void visits_tags(void)
{
  char const* const with_tags[] = {
    "pool,tags", "pool,tags,statistics", "elastic,tags", "cached,tags", "binning,upstream=(pool,tags)"};
  for (size_t i = 0; i < sizeof with_tags / sizeof *with_tags; ++i) {
    rmm_c_resource* const resource = make(with_tags[i]);
    struct holders found           = {resource, 0, 0, 0};
    EXPECT(rmm_c_resource_visit_tags(resource, add_holder, &found) == RMM_C_OK && found.visits == 0);
    void* blocks[2];
    EXPECT(rmm_c_resource_allocate(resource, 512, 0, NULL, &blocks[0]) == RMM_C_OK);
    EXPECT(rmm_c_resource_allocate(resource, 1024, 0, NULL, &blocks[1]) == RMM_C_OK);
    EXPECT(rmm_c_resource_visit_tags(resource, add_holder, &found) == RMM_C_OK && found.visits == 1);
    EXPECT(found.live_bytes == 1536 && found.live_blocks == 2);
    rmm_c_resource_deallocate(resource, blocks[0], 512, 0, NULL);
    rmm_c_resource_deallocate(resource, blocks[1], 1024, 0, NULL);
    EXPECT(rmm_c_resource_visit_tags(resource, add_holder, &found) == RMM_C_OK && found.visits == 1);
    EXPECT(rmm_c_resource_destroy(resource) == RMM_C_OK);
  }
}

/* Visits again, allocates, and gives the resource up. */
static void use_the_interface(void* argument, char const* tag, uint64_t live_bytes, uint64_t live_blocks)
{
  struct holders* const outer = argument;
  struct holders inner        = {outer->resource, 0, 0, 0};
  add_holder(outer, tag, live_bytes, live_blocks);
  rmm_c_figures figures;
  figures.size = sizeof figures;
  EXPECT(rmm_c_resource_figures(outer->resource, &figures) == RMM_C_OK && figures.live_blocks == 1);
  EXPECT(rmm_c_resource_visit_tags(outer->resource, add_holder, &inner) == RMM_C_OK && inner.visits == 1);
  void* block;
  EXPECT(rmm_c_resource_allocate(outer->resource, 512, 0, NULL, &block) == RMM_C_OK);
  rmm_c_resource_deallocate(outer->resource, block, 512, 0, NULL);
  EXPECT(rmm_c_resource_destroy(outer->resource) == RMM_C_OK);
}

static void visits_tags_with_a_function_that_calls_the_interface(void)
{
  rmm_c_resource* const pool = make("pool,tags");
  struct holders found       = {pool, 0, 0, 0};
  void* block;
  EXPECT(rmm_c_resource_allocate(pool, 512, 0, NULL, &block) == RMM_C_OK);
  EXPECT(rmm_c_resource_visit_tags(pool, use_the_interface, &found) == RMM_C_OK && found.live_bytes == 512);
  EXPECT(rmm_c_resource_visit_tags(pool, add_holder, &found) == RMM_C_MISUSE && found.visits == 1);
  rmm_c_resource_deallocate(pool, block, 512, 0, NULL);
}

/* A caller of another version has a struct of another size. */
static void writes_structs_of_other_sizes(void)
{
  rmm_c_resource* const pool = make("pool,initial=1MiB");
  union {
    rmm_c_figures figures;
    unsigned char bytes[sizeof(rmm_c_figures) + 64];
  } of;
  size_t const until_free = offsetof(rmm_c_figures, free_bytes);
  memset(&of, 0x5A, sizeof of);
  of.figures.size = until_free;
  EXPECT(rmm_c_resource_figures(pool, &of.figures) == RMM_C_OK);
  EXPECT(of.figures.size == until_free && of.figures.live_bytes == 0);
  for (size_t i = until_free; i < sizeof of.bytes; ++i) { EXPECT(of.bytes[i] == 0x5A); }

  memset(&of, 0x5A, sizeof of);
  of.figures.size = sizeof of.bytes;
  EXPECT(rmm_c_resource_figures(pool, &of.figures) == RMM_C_OK);
  EXPECT(of.figures.size == sizeof of.figures && of.figures.reserved_bytes == 1u << 20u);
  for (size_t i = sizeof of.figures; i < sizeof of.bytes; ++i) { EXPECT(of.bytes[i] == 0); }

  of.figures.size = sizeof(size_t) - 1;
  EXPECT(rmm_c_resource_figures(pool, &of.figures) == RMM_C_INVALID_ARGUMENT);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
}

static void trims_what_can_be_trimmed(void)
{
  size_t released;
  void* block;
  rmm_c_resource* const elastic = make("elastic,initial=64MiB");
  EXPECT(rmm_c_resource_trim(elastic, 0, &released) == RMM_C_OK && released == 64u << 20u);
  EXPECT(rmm_c_resource_trim(elastic, 0, NULL) == RMM_C_OK);
  EXPECT(rmm_c_resource_destroy(elastic) == RMM_C_OK);

  rmm_c_resource* const pool = make("pool,initial=64MiB,statistics");
  EXPECT(rmm_c_resource_allocate(pool, 1, 0, NULL, &block) == RMM_C_OK);
  EXPECT(rmm_c_resource_trim(pool, 0, &released) == RMM_C_OK && released == 0);
  rmm_c_resource_deallocate(pool, block, 1, 0, NULL);
  EXPECT(rmm_c_resource_trim(pool, 64u << 20u, &released) == RMM_C_OK && released == 0);
  EXPECT(rmm_c_resource_trim(pool, 0, &released) == RMM_C_OK && released == 64u << 20u);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);

  rmm_c_resource* const nested = make("pool,initial=64MiB,upstream=elastic");
  EXPECT(rmm_c_resource_trim(nested, 0, &released) == RMM_C_OK && released == 64u << 20u);
  EXPECT(rmm_c_resource_destroy(nested) == RMM_C_OK);

  rmm_c_resource* const arena = make("arena,size=64MiB,upstream=elastic");
  released                    = 1;
  EXPECT(rmm_c_resource_trim(arena, 0, &released) == RMM_C_NOT_SUPPORTED && released == 0);
  EXPECT(rmm_c_resource_destroy(arena) == RMM_C_OK);
}

static void lives_until_the_last_block_is_back(void)
{
  rmm_c_resource* const pool = make("pool,initial=1MiB");
  void* first;
  void* second;
  void* third = &third;
  EXPECT(rmm_c_resource_allocate(pool, 1, 0, NULL, &first) == RMM_C_OK);
  EXPECT(rmm_c_resource_allocate(pool, 1, 0, NULL, &second) == RMM_C_OK);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_OK);
  EXPECT(rmm_c_resource_destroy(pool) == RMM_C_MISUSE);
  EXPECT(rmm_c_resource_allocate(pool, 1, 0, NULL, &third) == RMM_C_MISUSE && third == NULL);
  rmm_c_figures figures;
  figures.size = sizeof figures;
  EXPECT(rmm_c_resource_figures(pool, &figures) == RMM_C_MISUSE);
  rmm_c_resource_deallocate(pool, first, 1, 0, NULL);
  EXPECT(rmm_c_resource_device(pool) == 0);
  rmm_c_resource_deallocate(pool, second, 1, 0, NULL);
}

static void keeps_default_resources(void)
{
  rmm_c_resource* found;
  rmm_c_resource* again;
  EXPECT(rmm_c_default_resource(0, &found) == RMM_C_OK);
  EXPECT(rmm_c_default_resource(RMM_C_CURRENT_DEVICE, &again) == RMM_C_OK && again == found);
  EXPECT(rmm_c_resource_destroy(found) == RMM_C_MISUSE);

  void* const block = rmm_c_torch_allocate(1000, 0, NULL);
  EXPECT(block != NULL);
  rmm_c_figures figures;
  figures.size = sizeof figures;
  (void)rmm_c_resource_figures(found, &figures);
  EXPECT(figures.live_blocks == 1);
  rmm_c_torch_deallocate(block, 1000, 0, NULL);
  (void)rmm_c_resource_figures(found, &figures);
  EXPECT(figures.live_blocks == 0);
  rmm_c_torch_deallocate(NULL, 0, 0, NULL);
  rmm_c_torch_deallocate(block, 1000, -1, NULL);
}

enum { thread_count = 8, rounds = 2000, slots = 16 };

struct shared_blocks {
  rmm_c_resource* resource;
  pthread_mutex_t mutex;
  void* blocks[slots]; /* that the next thread gives back */
};

static void* allocate_and_exchange(void* argument)
{
  struct shared_blocks* const shared = argument;
  for (size_t i = 0; i < rounds; ++i) {
    void* block;
    EXPECT(rmm_c_resource_allocate(shared->resource, 1024, 0, (void*)2, &block) == RMM_C_OK);
    (void)pthread_mutex_lock(&shared->mutex);
    void* const other         = shared->blocks[i % slots];
    shared->blocks[i % slots] = block;
    (void)pthread_mutex_unlock(&shared->mutex);
    rmm_c_resource_deallocate(shared->resource, other, 1024, 0, (void*)2);
  }
  return NULL;
}

static void* give_back(void* argument)
{
  struct shared_blocks* const shared = argument;
  for (;;) {
    void* block = NULL;
    (void)pthread_mutex_lock(&shared->mutex);
    for (size_t i = 0; i < slots && block == NULL; ++i) {
      block             = shared->blocks[i];
      shared->blocks[i] = NULL;
    }
    (void)pthread_mutex_unlock(&shared->mutex);
    if (block == NULL) { return NULL; }
    rmm_c_resource_deallocate(shared->resource, block, 1024, 0, (void*)2);
  }
}

static void run_in_threads(void* (*function)(void*), struct shared_blocks* shared)
{
  pthread_t threads[thread_count];
  for (size_t i = 0; i < thread_count; ++i) { EXPECT(pthread_create(&threads[i], NULL, function, shared) == 0); }
  for (size_t i = 0; i < thread_count; ++i) { EXPECT(pthread_join(threads[i], NULL) == 0); }
}

/* Blocks go from thread to thread, and the last ones come back while and after the resource is given up. */
static void serves_threads(void)
{
  struct shared_blocks shared = {make("pool"), PTHREAD_MUTEX_INITIALIZER, {NULL}};
  run_in_threads(allocate_and_exchange, &shared);
  rmm_c_figures figures;
  figures.size = sizeof figures;
  EXPECT(rmm_c_resource_figures(shared.resource, &figures) == RMM_C_OK && figures.live_blocks == slots);
  EXPECT(rmm_c_resource_destroy(shared.resource) == RMM_C_OK);
  run_in_threads(give_back, &shared);
}

static void* fail_here(void* argument)
{
  EXPECT(rmm_c_last_failure() == RMM_C_OK);
  EXPECT(rmm_c_resource_trim(NULL, 0, NULL) == RMM_C_INVALID_ARGUMENT);
  return argument;
}

static void keeps_failures_by_thread(void)
{
  rmm_c_resource* resource;
  EXPECT(rmm_c_resource_create("nothing", RMM_C_CURRENT_DEVICE, &resource) == RMM_C_BAD_CONFIGURATION);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, fail_here, NULL) == 0 && pthread_join(thread, NULL) == 0);
  EXPECT(rmm_c_last_failure() == RMM_C_BAD_CONFIGURATION);
  rmm_c_resource* const cuda = make("cuda"); /* a success keeps it */
  EXPECT(rmm_c_last_failure() == RMM_C_BAD_CONFIGURATION);
  EXPECT(rmm_c_resource_destroy(cuda) == RMM_C_OK);
}

/* In the lines of GoogleTest, which tools/run_bundle.sh counts. */
#define RUN(test)                                         \
  do {                                                    \
    printf("[ RUN      ] CInterface.%s\n", #test);        \
    (void)fflush(stdout);                                 \
    test();                                               \
    printf("[       OK ] CInterface.%s (0 ms)\n", #test); \
  } while (0)

int main(void)
{
  RUN(begins_without_a_failure);
  RUN(says_its_version);
  RUN(allocates_and_takes_back);
  RUN(takes_null_and_nothing);
  RUN(refuses_bad_arguments);
  RUN(gives_a_larger_alignment_that_was_configured);
  RUN(gives_its_own_alignment_if_a_smaller_one_was_configured);
  RUN(names_the_place_of_a_mistake_in_a_configuration);
  RUN(names_the_file_that_cannot_be_made);
  RUN(reports_why_a_pool_has_no_memory);
  RUN(tells_figures);
  RUN(visits_no_tags);
  RUN(visits_tags);
  RUN(visits_tags_with_a_function_that_calls_the_interface);
  RUN(writes_structs_of_other_sizes);
  RUN(trims_what_can_be_trimmed);
  RUN(lives_until_the_last_block_is_back);
  RUN(keeps_default_resources);
  RUN(serves_threads);
  RUN(keeps_failures_by_thread);
  return 0;
}
