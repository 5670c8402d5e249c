// Package publish publishes immutable values to any number of readers.
//
// Promise: a reader gets the newest value with one atomic load, and a watcher
// gets the newest value, never a backlog. A slow watcher skips values; it never
// delays the publisher or another watcher.
//
//	Store(v3) ──► atomic pointer ◄── Load()
//	     │
//	     └──────► watcher slots, one value each: v2 is replaced by v3
//
// Rules: a stored value must not change any more. Store may be called from several
// goroutines, but then the order in which watchers get two concurrent values is undefined;
// each Value should have a single owner. A [Pacer] makes one act of a burst of
// changes; [Notify] wakes the goroutine that acts.
package publish
