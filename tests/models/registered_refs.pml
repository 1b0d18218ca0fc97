// SPDX-License-Identifier: Apache-2.0

// The references of the registry (include/rmm/mr/detail/registry.hpp), whose memory is used again beside readers without a lock.
//
// Proves, for a setter that registers references for two devices in turn, in three registered_refs, a reader of the same libcu++,
// and one of another libcu++: a reference is read whole, and was registered for the device while it was read; what the other
// libcu++ has a pointer to is not written any more.
//
// Here                 in the code
//   state, low, high   registered_ref::state_, words_; odd while they are written
//   entry              registry::entry::ref
//   set                registry::exchange_ref(), make_registered(), write(), retire(); with refs_mutex, so one setter stands for all
//   reader             registry::read()
//   foreign_reader     registry::read_slowly()
//
// Not here: most_free, which only makes it rare that a reader starts over; kept_ref_table, which setters alone use.
//
// Planted: BUG_NO_STATE_CHECK does not look at the state again, BUG_NO_ENTRY_CHECK not at the entry; BUG_NOT_ODD writes without a
// mark; BUG_KEEPS_ANY keeps without comparing the state; BUG_WRITES_KEPT uses what is kept again.

#define SETS 8
#define REFS 3
#define ROUNDS 2
#define NONE 9

byte entry[2] = NONE;    // a registered_ref
byte state[REFS];        // counts in steps of 2
bool kept[REFS];
byte low[REFS];          // both words are the number of the set
byte high[REFS];
byte now[2];             // the set whose reference a device has
bool had[SETS + 1];      // whether device 0 had the reference of that set since the reader began
bool is_held = false;    // the other libcu++ has a pointer

active proctype setter()
{
  byte set = 1;
  byte device;
  byte at;
  do
  :: set <= SETS ->
    device = set % 2;
    at = 0;  // one that is in no entry and not kept; else the code makes another
    do
    :: at == REFS -> break
    :: at < REFS && (entry[0] == at || entry[1] == at) -> at++
    :: at < REFS && entry[0] != at && entry[1] != at ->
      atomic {  // try_begin_writing()
        if
#ifndef BUG_WRITES_KEPT
        :: kept[at] -> at++
        :: !kept[at] ->
#else
        :: true ->
#endif
#ifndef BUG_NOT_ODD
          state[at]++;
#endif
          break
        fi
      }
    od;
    if
    :: at < REFS ->
      low[at] = set;
      high[at] = set;
      assert(!kept[at]);
#ifdef BUG_NOT_ODD
      state[at] = state[at] + 2;
#else
      state[at]++;
#endif
      atomic {
        entry[device] = at;
        now[device] = set;
        if
        :: device == 0 -> had[set] = true
        :: else
        fi
      }
    :: else
    fi;
    set++
  :: else -> break
  od
}

active proctype reader()
{
  byte round = 0;
  byte i;
  byte at;
  byte seen;
  byte first;
  byte second;
  do
  :: round < ROUNDS ->
    atomic {
      for (i : 0 .. SETS) { had[i] = false };
      had[now[0]] = true
    };
    do
    :: at = entry[0];
      if
      :: at == NONE -> break
      :: else ->
        atomic { seen = state[at] * 2 + kept[at] };
        first = low[at];
        second = high[at];
        if
#ifndef BUG_NO_ENTRY_CHECK
        :: entry[0] != at
#endif
        :: else ->
          if
#ifndef BUG_NO_STATE_CHECK
          :: state[at] * 2 + kept[at] != seen
#endif
          :: else ->
            assert(first == second);
            assert(had[first]);
            break
          fi
        fi
      fi
    od;
    round++
  :: else -> break
  od
}

active proctype foreign_reader()
{
  byte at;
  byte seen;
  do
  :: !is_held ->
    at = entry[1];
    if
    :: at == NONE -> break
    :: else ->
      seen = state[at];
      if
      :: entry[1] != at
      :: else ->
        atomic {  // try_keep()
          if
#ifdef BUG_KEEPS_ANY
          :: true ->
#else
          :: state[at] == seen ->
#endif
            kept[at] = true;
            is_held = true;
            assert(state[at] % 2 == 0);
            assert(low[at] == high[at]);
            assert(low[at] % 2 == 1)  // these are the sets for device 1
#ifndef BUG_KEEPS_ANY
          :: else
#endif
          fi
        }
      fi
    fi
  :: is_held -> break
  od
}
