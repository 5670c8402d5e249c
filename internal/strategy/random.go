package strategy

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
)

// uniform picks an endpoint unpredictably, each with equal probability.
type uniform struct {
	random *rand.Rand
	table  atomic.Pointer[[]*Endpoint]
}

func newUniform(source rand.Source) *uniform {
	if source == nil {
		source = secureSource{}
	}
	return &uniform{random: rand.New(source)}
}

func (u *uniform) update(sorted []*Endpoint) { u.table.Store(&sorted) }

func (*uniform) describe() (rule, measure string) {
	return "drawn from the endpoints that are not excluded, with equal probability", "nothing: the choice is random"
}

func (u *uniform) pick(r Request, d *Decision) (*Endpoint, error) {
	list := *u.table.Load()
	usable := len(list)
	if len(r.Excluded) > 0 || r.Balancer != nil || d != nil {
		usable = 0
		for _, e := range list {
			excluded := r.excludes(e)
			d.consider(e, 0, noteOf(excluded))
			if !excluded {
				usable++
			}
		}
	}
	if len(list) == 0 {
		return nil, errNoEndpoints
	}
	skip := u.random.IntN(max(usable, 1))
	if usable == len(list) {
		return list[skip], nil
	}
	for _, e := range list {
		switch {
		case r.excludes(e):
		case skip == 0:
			return e, nil
		default:
			skip--
		}
	}
	return nil, errAllExcluded
}

// secureSource makes crypto/rand a source of math/rand/v2, whose IntN has no bias. It has
// no state and is safe for concurrent use.
type secureSource struct{}

func (secureSource) Uint64() uint64 {
	var b [8]byte
	_, _ = cryptorand.Read(b[:]) // documented never to fail
	return binary.LittleEndian.Uint64(b[:])
}

// runtimeSource is the runtime's generator, which is safe for concurrent use.
type runtimeSource struct{}

func (runtimeSource) Uint64() uint64 { return rand.Uint64() }

func orRuntime(source rand.Source) rand.Source {
	if source == nil {
		return runtimeSource{}
	}
	return source
}
