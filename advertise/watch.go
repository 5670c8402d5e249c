package advertise

import (
	"context"
	"sync"

	"github.com/ringway/ringway/internal/latest"
)

// viewWatches hands views to those who follow all of it and those who follow one
// service.
type viewWatches struct {
	views latest.Value[View]

	// mu guards services, and a view is published under it: what a new watch
	// begins with and what it is woken for then cannot be the same.
	mu       sync.Mutex
	services map[string]*serviceWatch // those that somebody watches
}

type serviceWatch struct {
	value    latest.Value[Endpoints]
	watchers int
}

// publish stores the view and wakes the watches of the services that changed.
func (w *viewWatches) publish(v *View, changed []*Endpoints) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.views.Store(v)
	for _, e := range changed {
		if s := w.services[e.service]; s != nil {
			s.value.Store(e)
		}
	}
}

func (w *viewWatches) service(ctx context.Context, name string) <-chan *Endpoints {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.services[name]
	if s == nil {
		s = &serviceWatch{}
		s.value.Store(w.views.Load().Endpoints(name))
		if w.services == nil {
			w.services = make(map[string]*serviceWatch)
		}
		w.services[name] = s
	}
	s.watchers++
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.watchers--; s.watchers == 0 {
			delete(w.services, name)
		}
	})
	return s.value.Watch(ctx)
}
