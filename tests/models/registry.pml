// SPDX-License-Identifier: Apache-2.0

// The registry of the devices' resources (include/rmm/mr/detail/registry.hpp), whose getters take no lock.
//
// Proves, for three threads that register resources, for two devices beyond the table, and a reader, on a machine where a store that
// does not release may be seen before those that precede it: readers see no entry and no resource before it is made, and no
// entry of another device; there is one entry for a device (R3); who asks after a set has returned gets that resource or
// a later one; the list is never torn.
//
// Here                  in the code
//   entry, head         listed_entry, list_
//   make_entry          registry::make_entry(), with refs_mutex
//   set                 registry::exchange_pointer(); the caller made the resource before
//   get                 registry::pointer(), find_listed()
//
// Planted: BUG_NO_MUTEX sets without the mutex; BUG_RELAXED_LIST publishes an entry without releasing what is in it;
// BUG_RELAXED_POINTER a resource likewise; BUG_TABLE_FIRST links the new entry before its next is set.

#define WRITERS 3
#define ENTRIES 3
#define NONE 0

// Entries are numbered from 1; a resource is named by the number of the set that registers it, 0 is the initial one.
byte entry_device[4];
byte entry_next[4];
byte entry_pointer[4];
bool entry_made[4];
bool resource_made[4];
byte head = NONE;
byte made = 0;
bool mutex = false;
byte last_set = 0;  // of device 1: the newest resource whose set() has returned, in the order of the sets
byte order[4];      // of the sets for device 1: when each came
byte sets = 0;
byte returned = 0;

#define lock atomic { !mutex -> mutex = true }
#define unlock mutex = false

inline find(device, found)
{
  found = head;
  do
  :: found == NONE -> break
  :: found != NONE ->
    assert(entry_made[found]);
    if
    :: entry_device[found] == device -> break
    :: else -> found = entry_next[found]
    fi
  od
}

inline make_entry(device, found)
{
  find(device, found);
  if
  :: found == NONE ->
    atomic { made++; found = made; assert(found <= ENTRIES) };
#ifdef BUG_TABLE_FIRST
    entry_device[found] = device;
    entry_made[found] = true;
    next = head;
    head = found;
    entry_next[found] = next
#else
    next = head;
#ifdef BUG_RELAXED_LIST
    head = found;
    entry_device[found] = device;
    entry_next[found] = next;
    entry_made[found] = true
#else
    entry_device[found] = device;
    entry_next[found] = next;
    entry_made[found] = true;
    head = found
#endif
#endif
  :: else
  fi
}

inline set(device, resource)
{
#ifndef BUG_RELAXED_POINTER
  resource_made[resource] = true;
#endif
#ifndef BUG_NO_MUTEX
  lock;
#endif
  make_entry(device, at);
  atomic {
    entry_pointer[at] = resource;
    if
    :: device == 1 -> sets++; order[resource] = sets
    :: else
    fi
  };
#ifndef BUG_NO_MUTEX
  unlock;
#endif
#ifdef BUG_RELAXED_POINTER
  resource_made[resource] = true;
#endif
  atomic {
    if
    :: device == 1 && order[resource] > order[last_set] -> last_set = resource
    :: else
    fi
  }
}

proctype writer(byte device, resource)
{
  byte at;
  byte next;
  set(device, resource);
  find(device, at);
  assert(at != NONE);
  returned++
}

active proctype reader()
{
  byte at;
  byte got;
  byte before;
  byte round = 0;
  do
  :: round < 2 ->
    before = last_set;
    find(1, at);
    if
    :: at == NONE -> got = 0
    :: else -> got = entry_pointer[at]
    fi;
    assert(got == 0 || resource_made[got]);
    assert(order[got] >= order[before]);
    round++
  :: else -> break
  od
}

init
{
  atomic {
    run writer(1, 1);
    run writer(1, 2);
    run writer(2, 3)
  };
  returned == WRITERS;
  assert(!(entry_made[1] && entry_made[2] && entry_device[1] == entry_device[2]));
  assert(!(entry_made[3]));
  byte at;
  find(2, at);
  assert(at != NONE)
}
