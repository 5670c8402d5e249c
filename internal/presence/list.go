package presence

import "github.com/ringway/ringway/internal/publish"

// list is the workers that one relay lists. It is a state machine without lock and clock.
type list struct {
	sequence uint64 // grows with each change
	hash     uint64 // of all workers
	workers  map[string]listed
}

func newList() *list { return &list{workers: map[string]listed{}} }

// put adds or replaces a worker.
func (l *list) put(w listed) {
	if old, there := l.workers[w.id]; there {
		l.hash ^= old.hash()
	}
	l.workers[w.id] = w
	l.hash ^= w.hash()
}

// drop removes a worker, if that life of it is listed.
func (l *list) drop(i instance) bool {
	old, there := l.workers[i.id]
	if !there || old.epoch != i.epoch {
		return false
	}
	l.hash ^= old.hash()
	delete(l.workers, i.id)
	return true
}

// keptChanges is how many changes of its own list a relay remembers: a reader that is further behind
// gets the whole list.
const keptChanges = 4096

// log is the own list of a relay with its newest changes.
type log struct {
	list
	changes []logged // the last has the sequence of the list
}

type logged struct {
	id   instance
	gone bool
	left bool
}

func (l *log) put(w listed) {
	old, there := l.workers[w.id]
	if there && old == w {
		return
	}
	if there && old.epoch != w.epoch { // a reader may learn of the new life only when it is gone, too
		l.record(logged{id: old.instance, gone: true})
	}
	l.list.put(w)
	l.record(logged{id: w.instance})
}

func (l *log) drop(i instance, left bool) bool {
	if !l.list.drop(i) {
		return false
	}
	l.record(logged{i, true, left})
	return true
}

func (l *log) record(c logged) {
	l.sequence++
	if len(l.changes) >= 2*keptChanges { // now and then, so that it costs nothing
		l.changes = append(l.changes[:0:0], l.changes[len(l.changes)-keptChanges:]...)
	}
	l.changes = append(l.changes, c)
}

// after returns the changes after a sequence, in frames, and false if they are not known any more.
func (l *log) after(sequence uint64) (frames []change, ok bool) {
	behind := l.sequence - sequence
	if sequence > l.sequence || behind > uint64(len(l.changes)) {
		return nil, false
	}
	recent := l.changes[uint64(len(l.changes))-behind:]
	for len(recent) > 0 {
		n := min(len(recent), listedPerFrame)
		sequence += uint64(n)
		c := change{sequence: sequence}
		for _, one := range recent[:n] {
			w, there := l.workers[one.id.id]
			switch {
			case one.gone && (!there || w.epoch != one.id.epoch):
				c.gone = append(c.gone, gone{one.id, one.left})
			case !one.gone && there && w.epoch == one.id.epoch:
				c.listed = append(c.listed, w) // its newest state; a repetition changes nothing
			}
		}
		frames = append(frames, c)
		recent = recent[n:]
	}
	return frames, true
}

// whole returns the list in frames.
func (l *log) whole() (frames []change) {
	c := change{sequence: l.sequence, more: true}
	for _, w := range l.workers {
		if c.listed = append(c.listed, w); len(c.listed) == listedPerFrame {
			frames = append(frames, c)
			c.listed = nil
		}
	}
	c.more = false
	return append(frames, c)
}

// ownChanged notifies the readers that a worker of the own list has changed. mu is held.
func (f *Fleet) ownChanged(id string) {
	f.changed(id)
	for one := range f.feeds {
		publish.Notify(one.fresh)
	}
	f.notify()
}

// put lists a worker. Its certificate and record have been checked.
func (f *Fleet) put(w listed, p proof) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proofs[w.id] = p
	f.own.put(w)
	f.ownChanged(w.id)
}

// drop takes a life of a worker off the list.
func (f *Fleet) drop(i instance, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.own.drop(i, left) {
		return
	}
	if left {
		f.left[i] = struct{}{}
	}
	delete(f.proofs, i.id)
	f.ownChanged(i.id)
}

// recordOf returns the newest record of a worker in the own list.
func (f *Fleet) recordOf(i instance) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.proofs[i.id]; p.epoch == i.epoch {
		return p.record
	}
	return nil
}
