// SPDX-License-Identifier: Apache-2.0

// A model of spinning_mutex (include/rmm/detail/base/spinning_mutex.hpp), the heap's lock.
//
// Three threads lock and unlock twice, and at most one of them spins, except for those that were woken. Proves:
//   M1  one thread at a time is inside
//   M2  a thread that sleeps is woken: there is no deadlock
//   M3  whatever the turns are when a thread gives up: it does so at any time
// spinning_mutex_model.cpp has the memory orders.
//
// Here                        in the code
//   thread                    lock(), lock_in_turn(), try_spinning(), end_turn(), unlock()
//   the inner loop            the spinning; `break` is the time that is up
//   asleep, wake_one          the system's futex
//
// Planted bugs:
//   BUG_NOT_ATOMIC       a thread looks whether the mutex is free, and then stores that it is not
//   BUG_NO_WAKING        unlock() wakes nobody
//   BUG_BLIND_SLEEP      a thread sleeps without a look at the state
//   BUG_WOKEN_FORGETS    a thread that was woken locks the mutex as if nobody else slept

#define THREADS 3
#define ROUNDS 2
#define MOST_SPINNING 1

#define NOT_HELD 0
#define HELD 1
#define SLEPT_FOR 2

byte state = NOT_HELD;
byte turns = 0;
byte served = 0;
bool asleep[THREADS];
byte inside = 0;

#ifdef BUG_NOT_ATOMIC
#define try_lock_as(how) state == NOT_HELD -> state = how; is_locked = true
#else
#define try_lock_as(how) atomic { state == NOT_HELD -> state = how; is_locked = true }
#endif

inline wake_one()
{
  atomic {
    if
    :: asleep[0] -> asleep[0] = false
    :: asleep[1] -> asleep[1] = false
    :: asleep[2] -> asleep[2] = false
    :: !asleep[0] && !asleep[1] && !asleep[2] -> skip
    fi
  }
}

inline spin()
{
  atomic { turn = turns; turns++ }
  do
  :: served >= turn ->
    if
    :: try_lock_as(lock_as); break
    :: break
    fi
  :: break
  od;
  atomic {
    if
    :: served < turn + 1 -> served = turn + 1
    :: else -> skip
    fi;
    turn = 0
  }
}

active [THREADS] proctype thread()
{
  byte round = 0;
  byte lock_as;
  byte turn;
  byte old;
  bool is_locked;
  do
  :: round < ROUNDS ->
    is_locked = false;
    if
    :: turns == served ->
      if
      :: try_lock_as(HELD)
      :: state != NOT_HELD -> skip
      fi
    :: turns != served -> skip
    fi;
    lock_as = HELD;
    do
    :: is_locked -> break
    :: !is_locked ->
      if
      :: lock_as == HELD && turns - served >= MOST_SPINNING -> skip
      :: lock_as == SLEPT_FOR || turns - served < MOST_SPINNING -> spin()
      fi;
      if
      :: is_locked -> skip
      :: !is_locked ->
        d_step { old = state; state = SLEPT_FOR };
        if
        :: old == NOT_HELD -> is_locked = true
        :: old != NOT_HELD ->
#ifdef BUG_BLIND_SLEEP
          asleep[_pid] = true;
#else
          atomic {
            if
            :: state == SLEPT_FOR -> asleep[_pid] = true
            :: else -> skip
            fi
          }
#endif
          !asleep[_pid];
#ifndef BUG_WOKEN_FORGETS
          lock_as = SLEPT_FOR
#endif
        fi
      fi
    od;
    inside++;
    assert(inside == 1);
    inside--;
    d_step { old = state; state = NOT_HELD };
    if
#ifndef BUG_NO_WAKING
    :: old == SLEPT_FOR -> wake_one()
#endif
    :: old != SLEPT_FOR -> skip
#ifdef BUG_NO_WAKING
    :: old == SLEPT_FOR -> skip
#endif
    fi;
    old = 0;
    round++
  :: else -> break
  od
}
