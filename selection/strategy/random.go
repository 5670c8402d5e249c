package strategy

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
)

// uniform picks any endpoint, each as likely as the other, unpredictably.
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
	return "drawn from the endpoints that are not excluded, all alike", "nothing: chance decides"
}

func (u *uniform) pick(r Request, d *Decision) (*Endpoint, error) {
	list := *u.table.Load()
	usable := len(list)
	if len(r.Excluded) > 0 || r.Full != nil || d != nil {
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

// secureSource is crypto/rand as a source of math/rand/v2, which draws without
// bias. It has no state, so any goroutine may use it.
type secureSource struct{}

func (secureSource) Uint64() uint64 {
	var b [8]byte
	_, _ = cryptorand.Read(b[:]) // documented never to fail
	return binary.LittleEndian.Uint64(b[:])
}

// runtimeSource is the runtime's generator. It has no state here either.
type runtimeSource struct{}

func (runtimeSource) Uint64() uint64 { return rand.Uint64() }

func orRuntime(source rand.Source) rand.Source {
	if source == nil {
		return runtimeSource{}
	}
	return source
}
