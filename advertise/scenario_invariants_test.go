package advertise

import (
	"fmt"
	"strconv"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// life is what one instance ever offered, by generation and name; nothing when withdrawn.
type life struct {
	world  string
	offers map[int]map[string]Service
}

// withdrawal is the first withdrawal after a generation, 0 if there was none.
func (l *life) withdrawal(after int) int {
	first := 0
	for generation, services := range l.offers {
		if len(services) == 0 && generation > after && (first == 0 || generation < first) {
			first = generation
		}
	}
	return first
}

// sight is what the monitor remembers of one observer.
type sight struct {
	view   *View
	shown  map[instance]int // generations in that view
	newest map[instance]int // the newest that was ever shown, or seen withdrawn
}

func newSight() sight {
	return sight{shown: map[instance]int{}, newest: map[instance]int{}}
}

// forgedAddress is in every forged record and in no other.
const forgedAddress = "192.0.2.66:666"

// generations lists what a view shows of each worker, and who is shown with what
// was forged.
func generations(v *View) (shown map[instance]int, forged []instance) {
	shown = make(map[instance]int, 64)
	for name := range v.Services() {
		for e := range v.Endpoints(name).All() {
			key := instance{e.NodeID, e.Epoch}
			if e.Address == forgedAddress {
				forged = append(forged, key)
				continue
			}
			generation, _ := strconv.Atoi(e.Version)
			shown[key] = max(shown[key], generation)
		}
	}
	return shown, forged
}

// inspect checks one view against what must always hold:
//
//   - versions grow; a view that another one replaces at the same moment may be missed,
//     because Watch delivers the newest;
//   - its snapshot is not older than the one of the view before;
//   - every endpoint is of a worker that is alive in that snapshot, in that life;
//   - it is what that life really offered, all services of one offer or none;
//   - an offer is never followed by an older one of the same life, nor a
//     withdrawal by an offer that it withdrew;
//   - an offer vanishes only with its worker or by a withdrawal;
//   - what was forged about a worker is never believed by itself, and what was
//     forged about others than live workers by none.
func (f *cluster) inspect(p *process, node *membership.Node, v *View) {
	f.Lock()
	defer f.Unlock()
	if p.Node != node || !p.Running {
		return // of an earlier life
	}
	f.views++
	wrong := func(format string, args ...any) {
		f.Breach("%s, view %d: %s", p.Name, v.version, fmt.Sprintf(format, args...))
	}
	members := v.Members()
	if members == nil {
		if v.EndpointCount() != 0 {
			wrong("endpoints before the first snapshot")
		}
		return
	}
	if before := p.State.sees.view; before != nil {
		if v.version <= before.version {
			wrong("it follows view %d", before.version)
		}
		if members.Version() < before.Members().Version() {
			wrong("snapshot %d after %d", members.Version(), before.Members().Version())
		}
	}
	count := make(map[instance]int, len(p.State.sees.shown))
	shown := make(map[instance]int, len(p.State.sees.shown))
	for name := range v.Services() {
		for e := range v.Endpoints(name).All() {
			key := instance{e.NodeID, e.Epoch}
			m, alive := members.Get(key.id)
			if !alive || m.Epoch != key.epoch || m.Role != identity.RoleWorker {
				wrong("endpoint of %s.%d, which is no live worker: %+v", key.id, key.epoch, m)
			}
			if e.Address == forgedAddress {
				if key.id == p.Name || !f.forged[key] {
					wrong("a forged offer of %s", key.id)
				}
				shown[key] = p.State.sees.shown[key] // judged again when the truth is back
				continue
			}
			state := Ready
			if m.Leaving {
				state = Draining
			}
			generation, err := strconv.Atoi(e.Version)
			offered, known := f.offered(p, key, generation, name)
			if err != nil || !known || e.Name != name || e.Address != offered.Address || e.Weight != offered.Weight || e.State != state {
				wrong("%s.%d never offered this: %v", key.id, key.epoch, e)
				continue
			}
			if other, twice := shown[key]; twice && other != generation {
				wrong("offers %d and %d of %s at once", other, generation, key.id)
			}
			shown[key] = generation
			count[key]++
		}
	}
	for key, n := range count {
		if want := len(f.offersLog[key].offers[shown[key]]); n != want {
			wrong("%d of the %d services of %s", n, want, key.id)
		}
		if newest := p.State.sees.newest[key]; shown[key] < newest {
			wrong("offer %d of %s is back, after %d", shown[key], key.id, newest)
		}
		p.State.sees.newest[key] = shown[key]
	}
	for key, generation := range p.State.sees.shown {
		if _, still := shown[key]; still {
			continue
		}
		if m, alive := members.Get(key.id); alive && m.Epoch == key.epoch {
			withdrawn := f.offersLog[key].withdrawal(generation)
			if withdrawn == 0 {
				wrong("the offer of %s is gone, which is alive and did not withdraw it", key.id)
			}
			p.State.sees.newest[key] = max(p.State.sees.newest[key], withdrawn)
		}
	}
	p.State.sees.view, p.State.sees.shown = v, shown
}

// offered is what an instance offered of a service in one generation, if it did and belongs
// to the same cluster.
func (f *cluster) offered(p *process, key instance, generation int, service string) (s Service, known bool) {
	if l := f.offersLog[key]; l != nil && l.world == p.World() {
		s, known = l.offers[generation][service]
	}
	return s, known
}
