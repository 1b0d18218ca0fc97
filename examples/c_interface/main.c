/* SPDX-License-Identifier: Apache-2.0 */

/* A pool from C: allocates on a stream, says what the pool has, and prints why an allocation fails. */

#include <rmm/c/rmm.h>

#include <stddef.h>
#include <stdio.h>

/* Prints what failed. Returns the status of the program. */
static int failed(char const* what)
{
  fprintf(stderr, "%s: %s: %s\n", what, rmm_c_status_name(rmm_c_last_failure()), rmm_c_last_failure_text());
  return 1;
}

int main(void)
{
  rmm_c_resource* pool;
  if (rmm_c_resource_create("pool,initial=64MiB,max=256MiB", RMM_C_CURRENT_DEVICE, &pool) != RMM_C_OK) {
    return failed("making a pool");
  }

  void* const stream = NULL; /* or a cudaStream_t */
  size_t const bytes = 1000000;
  void* block;
  if (rmm_c_resource_allocate(pool, bytes, 0, stream, &block) != RMM_C_OK) { return failed("allocating"); }

  rmm_c_figures figures = {.size = sizeof figures};
  if (rmm_c_resource_figures(pool, &figures) != RMM_C_OK) { return failed("asking for figures"); }
  printf("%llu of %llu bytes are in use\n",
         (unsigned long long)figures.live_bytes,
         (unsigned long long)figures.reserved_bytes);

  /* More than the pool may have. */
  void* too_large;
  if (rmm_c_resource_allocate(pool, (size_t)1 << 30, 0, stream, &too_large) != RMM_C_OUT_OF_MEMORY) {
    return failed("asking for too much");
  }
  rmm_c_report report = {.size = sizeof report};
  if (rmm_c_last_failure_report(&report) != RMM_C_OK) { return failed("asking for the report"); }
  printf("asked for %llu bytes, of which the pool may have %llu\n",
         (unsigned long long)report.asked_bytes,
         (unsigned long long)report.maximum_bytes);

  rmm_c_resource_destroy(pool); /* it ends with its last block */
  rmm_c_resource_deallocate(pool, block, bytes, 0, stream);
  return 0;
}
