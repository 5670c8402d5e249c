package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// BlockList has the blocks of the relay's file and those of operators' commands. It belongs to the
// relay and not to a handler: a reload replaces those of the file only, and keeps what was counted.
type BlockList struct {
	compared atomic.Pointer[blocks] // with requests; nil without any

	mu             sync.Mutex // held while what follows changes
	file, commands map[[2]string]*heldBlock
}

// blocks are by caller and service; those of commands come first, because both may end.
type blocks map[[2]string][]*heldBlock

// BlockOrigin is where a block comes from.
type BlockOrigin string

// The origins of a block.
const (
	BlockOfFile    BlockOrigin = "file"
	BlockOfCommand BlockOrigin = "command"
)

// BlockState is a block in effect. A caller that is an IPv6 address is shown as its network.
type BlockState struct {
	Block
	Origin BlockOrigin
	// Refused counts the requests that the block has refused.
	Refused uint64
}

// heldBlock is a Block with what it has refused.
type heldBlock struct {
	Block
	origin  BlockOrigin
	refused *atomic.Uint64 // also of the block that this one replaces
}

// ErrNoBlock is the error for a block that no command has added.
var ErrNoBlock = errors.New("no command has blocked this")

// NewBlockList returns the list of a relay.
func NewBlockList(reg prometheus.Registerer) *BlockList {
	l := &BlockList{commands: map[[2]string]*heldBlock{}}
	metric.With(reg).GaugeFunc("ringway_relay_blocks", "Blocks of callers and services in effect, of the file and of commands.", func() float64 { return float64(len(l.List(time.Now()))) })
	return l
}

// setFile replaces the blocks of the file.
func (l *BlockList) setFile(list []Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.file
	l.file = make(map[[2]string]*heldBlock, len(list))
	for _, b := range list {
		l.file[b.at()] = b.hold(BlockOfFile, before)
	}
	l.publish()
}

// Add adds a block, or replaces that of the same caller and service, and returns it.
func (l *BlockList) Add(b Block, now time.Time) (BlockState, error) {
	if err := b.check(); err != nil {
		return BlockState{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, one := range l.commands {
		if !one.holds(now) {
			delete(l.commands, at)
		}
	}
	if l.commands[b.at()] == nil && len(l.commands) >= maxBlocks {
		return BlockState{}, fmt.Errorf("%d blocks of commands are in effect, and no more are compared: remove some, or refuse a network in a firewall", maxBlocks)
	}
	held := b.hold(BlockOfCommand, l.commands)
	l.commands[b.at()] = held
	l.publish()
	return held.state(), nil
}

// Remove removes a block that was added and has not ended, and returns it.
func (l *BlockList) Remove(caller, service string, now time.Time) (BlockState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := Block{Caller: caller, Service: service}.at()
	held := l.commands[at]
	if held != nil && !held.holds(now) {
		held = nil
	}
	switch {
	case held == nil && l.file[at] != nil:
		return BlockState{}, fmt.Errorf("%w: the file of this relay has the block of caller %.80q and service %.80q: take it out there, and reload", ErrNoBlock, caller, service)
	case held == nil:
		return BlockState{}, fmt.Errorf("%w: caller %.80q, service %.80q", ErrNoBlock, caller, service)
	}
	delete(l.commands, at)
	l.publish()
	return held.state(), nil
}

// publish makes requests be compared with the blocks that there are now. The lock is held.
func (l *BlockList) publish() {
	all := make(blocks, len(l.file)+len(l.commands))
	for _, part := range []map[[2]string]*heldBlock{l.commands, l.file} {
		for at, one := range part {
			all[at] = append(all[at], one)
		}
	}
	if len(all) == 0 {
		l.compared.Store(nil)
		return
	}
	l.compared.Store(&all)
}

// List returns the blocks that are in effect.
func (l *BlockList) List(now time.Time) (list []BlockState) {
	for _, of := range l.of() {
		for _, one := range of {
			if one.holds(now) {
				list = append(list, one.state())
			}
		}
	}
	slices.SortFunc(list, func(a, b BlockState) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Origin, b.Origin))
	})
	return list
}

// of returns what requests are compared with, nil if there is nothing.
func (l *BlockList) of() blocks {
	if l != nil {
		if all := l.compared.Load(); all != nil {
			return *all
		}
	}
	return nil
}

func (b Block) at() [2]string { return [2]string{sameCaller(b.Caller), b.Service} }

// hold returns the block with the count of the one that it replaces.
func (b Block) hold(origin BlockOrigin, before map[[2]string]*heldBlock) *heldBlock {
	b.Caller = sameCaller(b.Caller)
	held := &heldBlock{Block: b, origin: origin, refused: new(atomic.Uint64)}
	if one := before[b.at()]; one != nil {
		held.refused = one.refused
	}
	return held
}

// holds reports whether the block has not ended.
func (b *heldBlock) holds(now time.Time) bool { return b.Until.IsZero() || now.Before(b.Until) }

func (b *heldBlock) state() BlockState {
	shown := b.Block
	shown.Caller = shownCaller(b.Caller) // operators see what is blocked
	return BlockState{shown, b.origin, b.refused.Load()}
}

// find returns the block of a request that arrives now, nil if there is none.
func (b blocks) find(caller, service string, now time.Time) *heldBlock {
	for _, at := range [...][2]string{{caller, service}, {caller, anyOne}, {anyOne, service}} {
		for _, one := range b[at] {
			if one.holds(now) {
				return one
			}
		}
	}
	return nil
}

// blocked answers a request that is blocked, and reports whether it was.
func (t *request) blocked(by blocks, service *routing.Service) bool {
	one := by.find(t.caller(), service.Name, time.Now())
	if one == nil {
		return false
	}
	one.refused.Add(1)
	metrics := t.handler.cfg.Metrics.forService(service)
	metrics.rejected(wire.CodeBlocked)
	metrics.refused.Add(1)
	f := failure{Text: "the operator has blocked this caller or this service", Code: wire.CodeBlocked, Service: service.Name}
	f.detail = fmt.Sprintf("caller %s, service %s", shownCaller(one.Caller), one.Service)
	if one.Reason != "" {
		f.detail += ": " + one.Reason
	}
	t.answerRefusal(f)
	return true
}
