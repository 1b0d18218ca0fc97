// SPDX-License-Identifier: Apache-2.0

// A model of the references of the registry (include/rmm/mr/detail/registry.hpp). Their memory is used again while readers without
// a lock may still read it.
//
// A setter registers references for two devices in turn, in three registered_refs. One reader has the same libcu++ as the setter,
// the other reader another libcu++. Proves:
//   a reader gets both words of one reference, which was registered for the device while it was read
//   a registered_ref to which the other libcu++ has a pointer is never written again
//
// Here                 in the code
//   state, low, high   registered_ref::state_, words_; the state is odd while the words are written
//   entry              registry::entry::ref
//   setter             registry::exchange_ref(), make_registered(), write(), retire(); one stands for all, because they hold refs_mutex
//   reader             registry::read()
//   foreign_reader     registry::read_slowly()
//
// Not here: max_free, which only makes it rare that a reader starts over; kept_ref_table, which only setters use.
//
// Planted bugs:
//   BUG_NO_STATE_CHECK  the reader does not look at the state again
//   BUG_NO_ENTRY_CHECK  the reader does not look at the entry again
//   BUG_NOT_ODD         the setter writes the words without an odd state
//   BUG_KEEPS_ANY       the foreign reader keeps a registered_ref whose state has changed
//   BUG_WRITES_KEPT     the setter uses a kept registered_ref again

#define SETS 8
#define REFS 3
#define ROUNDS 2
#define NONE 9

byte entry[2] = NONE;    // a registered_ref
byte state[REFS];        // counts in steps of 2
bool kept[REFS];
byte low[REFS];          // both words are the number of the set
byte high[REFS];
byte now[2];             // by device: the number of the set whose reference is registered
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
    at = 0;  // searches for one that is in no entry and not kept; the code makes another if there is none
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
