// SPDX-License-Identifier: Apache-2.0

// A model of the caches of a heap's threads: allocations, frees, flushes, memory taken from other caches, the end of threads and of
// the heap.
//
// Two threads with a cache each make three calls on a heap of two blocks, which is destroyed while the threads end. Proves:
//   no block is given to two threads, and none is lost
//   a thread that ends does not touch a heap that is destroyed
//   there is no deadlock
//
// Here           in the code (include/rmm/detail/stream/)
//   pop, push    stream_cache::try_pop(), try_push(), inside cache_entered
//   flush        cache_set::flush(), under the heap's mutex
//   kept_out     take_from_caches(), which keeps the owners of other caches out by cache_set::closed
//   thread_ends  ~thread_caches(), which calls retire() through the heap_link
//   init         the end of the heap: release_blocks(), which cuts the heap_link first
//   enter        biased_lock::try_enter(); biased_lock.pml proves that the lock is right
//
// Planted bugs:
//   BUG_OPEN_STEAL  a thread takes from another thread's cache without keeping its owner out
//   BUG_NO_LINK     a thread that ends looks at the link without its mutex
//   BUG_LOCK_ORDER  the heap's end takes the mutex of the heap before that of the link
//   BUG_LOST_FLUSH  a flush does not take the mutex

#define THREADS 2
#define BLOCKS 2
#define CALLS 3

byte cache[THREADS];           // how many blocks each holds
bool cache_open[THREADS];      // inside, as its owner
bool kept_out[THREADS];
bool has_cache[THREADS];
byte store = BLOCKS;
byte live = 0;
bool mutex = false;            // the heap's
bool link_mutex = false;
bool link_to_heap = true;
bool heap_exists = true;
byte calling = THREADS;        // threads that still use the heap; the program destroys the heap after they stop

#define lock(m) atomic { !m -> m = true }
#define unlock(m) m = false

#define ALL (cache[0] + cache[1] + store + live)

// Reading a count and writing it back are two steps, so that other threads can run in between.
inline take_one(from)
{
  count = from;
  assert(count > 0);
  from = count - 1;
  count = 0;
}
inline put_one(to)
{
  count = to;
  to = count + 1;
  count = 0;
}

inline enter(me, entered)
{
  atomic {
    if
    :: !kept_out[me] -> cache_open[me] = true; entered = true
    :: else -> entered = false
    fi
  }
}

inline allocate(me)
{
  enter(me, entered);
  if
  :: entered && cache[me] > 0 -> take_one(cache[me]); got = true; cache_open[me] = false
  :: entered && cache[me] == 0 -> cache_open[me] = false
  :: else
  fi;
  if
  :: !got ->
    lock(mutex);
    if
    :: store > 0 -> take_one(store); got = true
    :: else ->
#ifdef BUG_OPEN_STEAL
      skip;
#else
      kept_out[1 - me] = true;
      !cache_open[1 - me];
#endif
      if
      :: cache[1 - me] > 0 -> take_one(cache[1 - me]); got = true
      :: else
      fi;
      kept_out[1 - me] = false
    fi;
    unlock(mutex)
  :: else
  fi;
  if
  :: got -> d_step { live++; mine++; got = false; assert(live <= BLOCKS) }
  :: else
  fi
}

inline deallocate(me)
{
  d_step { live--; mine-- };
  enter(me, entered);
  if
  :: entered -> put_one(cache[me]); cache_open[me] = false
  :: else -> lock(mutex); put_one(store); unlock(mutex)
  fi
}

inline flush(me)
{
#ifdef BUG_LOST_FLUSH
  skip;
#else
  lock(mutex);
#endif
  do
  :: cache[me] > 0 -> take_one(cache[me]); put_one(store)
  :: else -> break
  od;
#ifndef BUG_LOST_FLUSH
  unlock(mutex)
#endif
}

inline thread_ends(me)
{
#ifdef BUG_NO_LINK
  if
  :: link_to_heap ->
#else
  lock(link_mutex);
  if
  :: link_to_heap ->
#endif
    assert(heap_exists);
    flush(me);
    assert(heap_exists);
    has_cache[me] = false
  :: else
  fi;
#ifndef BUG_NO_LINK
  unlock(link_mutex)
#endif
}

proctype program_thread(byte me)
{
  byte calls = 0;
  byte count = 0;
  byte mine = 0;
  bool entered = false;
  bool got = false;
  do
  :: calls < CALLS ->
    calls++;
    if
    :: allocate(me)
    :: mine > 0 -> deallocate(me)
    :: flush(me)
    fi
  :: else -> break
  od;
  do
  :: mine > 0 -> deallocate(me)
  :: else -> break
  od;
  calling--;
  thread_ends(me)
}

init
{
  atomic {
    has_cache[0] = true;
    has_cache[1] = true;
    run program_thread(0);
    run program_thread(1)
  }
  calling == 0;  // they may still be ending
#ifdef BUG_LOCK_ORDER
  lock(mutex);
  lock(link_mutex);
  link_to_heap = false;
  unlock(link_mutex);
#else
  lock(link_mutex);
  link_to_heap = false;
  unlock(link_mutex);
  lock(mutex);
#endif
  assert(ALL == BLOCKS && live == 0);
  heap_exists = false;
  unlock(mutex)
}
