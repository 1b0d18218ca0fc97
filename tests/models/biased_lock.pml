// SPDX-License-Identifier: Apache-2.0

// A model of biased_lock and process_barrier (include/rmm/detail/base/biased_lock.hpp), the lock of a thread's cache.
//
// An owner enters and leaves three times, and another thread keeps it out three times. The machine has a store buffer, as x86
// does. Proves:
//   O1  the two are never inside at the same time
//   O2  each sees what the other wrote inside
//   and that there is no deadlock.
//
// Here                        in the code
//   own_store, store_buffer   a plain store of the owner, which others see later
//   owner: enter, leave       biased_lock::try_enter(), leave()
//   other                     begin_keeping_out(), process_barrier::pass_all_threads(), wait_until_left(), end_keeping_out()
//   !inside                   the loop of wait_until_left(); its sleeps let the owner run
//   the mutex                 the heap's mutex, for which an owner that is kept out waits
//
// Planted bugs:
//   BUG_NO_BARRIER   the other thread skips the barrier
//   BUG_NO_CHECK     the owner enters without a look at kept_out
//   BUG_LEAVE_FIRST  the owner leaves before its last write, as with a relaxed store in leave() on a machine that reorders stores

#define ROUNDS 3

mtype = { INSIDE, DATA };

bool inside = false;    // in memory
bool kept_out = false;
byte data = 0;          // what the lock guards: counts
chan buffer = [4] of { mtype, byte };  // stores of the owner that are not in memory yet
bool mutex = false;
byte owner_in = 0;      // 1 while the owner is inside
byte other_in = 0;      // 1 while the other thread is inside
byte written = 0;       // what the count should be

#define lock atomic { !mutex -> mutex = true }
#define unlock mutex = false

inline own_store(where, what) { buffer!where,what }

inline drain_one()
{
  if
  :: buffer?INSIDE,inside
  :: buffer?DATA,data
  fi
}

active proctype store_buffer()
{
end:
  do
  :: atomic { nempty(buffer) -> drain_one() }
  od
}

active proctype owner()
{
  byte round = 0;
  byte seen;
  do
  :: round < ROUNDS ->
    own_store(INSIDE, true);
    if
#ifdef BUG_NO_CHECK
    :: true ->
#else
    :: !kept_out ->
#endif
      owner_in++;
      assert(other_in == 0);
      !(buffer??[DATA,_]);  // a thread sees its own stores; the model waits until they are in memory instead
      seen = data;
      assert(seen == written);
      written++;
      owner_in--;
#ifdef BUG_LEAVE_FIRST
      own_store(INSIDE, false);
      own_store(DATA, seen + 1)
#else
      own_store(DATA, seen + 1);
      own_store(INSIDE, false)
#endif
    :: kept_out ->
      own_store(INSIDE, false);
      lock;  // waits until the other thread is done
      unlock
    fi;
    round++
  :: else -> break
  od
}

active proctype other()
{
  byte round = 0;
  byte seen;
  do
  :: round < ROUNDS ->
    lock;
    kept_out = true;
#ifndef BUG_NO_BARRIER
    atomic {
      do
      :: nempty(buffer) -> drain_one()
      :: empty(buffer) -> break
      od
    }
#endif
    !inside;
    other_in++;
    assert(owner_in == 0);
    seen = data;
    assert(seen == written);
    data = seen + 1;
    written++;
    other_in--;
    kept_out = false;
    unlock;
    round++
  :: else -> break
  od
}
