package worker

import "maps"

// drains are the services that operators have drained. The zero value is none.
type drains struct {
	all    bool            // every service, those that come later included …
	except map[string]bool // … but these; without all: only these
}

func (d drains) drained(name string) bool { return d.all != d.except[name] }

// with returns the drains after some services, or all when none is named, were
// drained or undrained.
func (d drains) with(drained bool, names []string) drains {
	if len(names) == 0 {
		return drains{all: drained}
	}
	except := maps.Clone(d.except)
	if except == nil {
		except = map[string]bool{}
	}
	for _, name := range names {
		if drained != d.all {
			except[name] = true
		} else {
			delete(except, name)
		}
	}
	return drains{all: d.all, except: except}
}

// forget drops what was said of a service by name: one that is removed and comes
// back is a new one.
func (d drains) forget(name string) { delete(d.except, name) }
