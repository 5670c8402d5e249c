package ingress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// Block refuses the requests of a caller to a service. One of the two may be anyOne. It ends no
// request that has begun.
type Block struct {
	// Caller is the name in a client's certificate, its address, or what a trusted proxy names. An
	// IPv6 address means its /64, by which clients count.
	Caller  string `yaml:"caller"`
	Service string `yaml:"service"`
	// Until is when the block ends. Default: it stays.
	Until time.Time `yaml:"until,omitempty"`
	// Reason is for operators; clients see it only where the relay exposes why it refuses.
	Reason string `yaml:"reason,omitempty"`
}

const anyOne = "*"

// The limits of a list of blocks.
const (
	maxBlocks      = 10_000
	maxBlockReason = 256
)

// CheckBlocks reports every block that blocks nothing, or all.
func CheckBlocks(list []Block) error {
	if len(list) > maxBlocks {
		return fmt.Errorf("%d blocks: at most %d are compared", len(list), maxBlocks)
	}
	var errs []error
	first := map[[2]string]int{}
	for i, b := range list {
		at := b.at()
		err := b.check()
		if before, again := first[at]; again && err == nil {
			err = fmt.Errorf("has the caller and the service of block %d: leave one of them out", before)
		}
		if first[at] == 0 {
			first[at] = i + 1
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("block %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (b Block) check() error {
	switch {
	case b.Caller == "" || b.Service == "":
		return errors.New("needs a caller and a service; * for one of them is all")
	case b.Caller == anyOne && b.Service == anyOne:
		return errors.New("would block all requests: name a caller or a service")
	case b.Service != anyOne && affinity.ValidateService(b.Service) != nil:
		return affinity.ValidateService(b.Service)
	case len(b.Reason) > maxBlockReason || strings.ContainsFunc(b.Reason, func(r rune) bool { return r < ' ' }):
		return fmt.Errorf("reason %.40q: want one line of at most %d bytes", b.Reason, maxBlockReason)
	}
	return checkCaller(b.Caller)
}

// checkCaller reports a text that is the name of no caller.
func checkCaller(caller string) error {
	switch {
	case len(caller) > wire.MaxCaller || strings.TrimSpace(caller) != caller || !http1.ValidValue(caller):
		return fmt.Errorf("caller %.80q is none: want the name in a certificate, an address, or what a trusted proxy names, at most %d bytes", caller, wire.MaxCaller)
	case isNetwork(sameCaller(caller)):
		return fmt.Errorf("caller %q is a network: name addresses, for IPv6 also their /64, or refuse a network in a firewall", caller)
	}
	return nil
}

func isNetwork(caller string) bool {
	_, err := netip.ParsePrefix(caller)
	return err == nil
}

// sameCaller returns the name by which requests of a caller count. It differs from text for an address
// that can be written in several ways, and for IPv6, where a client is its /64.
func sameCaller(text string) string {
	address, _, _ := strings.Cut(text, "%")                       // the zone of a link is that of this host
	if strings.Trim(address, "0123456789abcdefABCDEF:./") != "" { // most names: no error of a parser is made for them
		return text
	}
	addr, err := netip.ParseAddr(address)
	if network, notNetwork := netip.ParsePrefix(text); notNetwork == nil && network.Bits() == 64 && network.Addr().Is6() {
		addr, err = network.Addr(), nil
	}
	if err != nil {
		return text
	}
	return handshake.SourceOf(addr).Addr().String()
}

// shownCaller returns a name of sameCaller as operators should see it: an IPv6 address stands for its
// /64 there, and alone would hide how many clients are meant. sameCaller reads this form, too.
func shownCaller(caller string) string {
	if addr, err := netip.ParseAddr(caller); err == nil && addr.Is6() {
		return netip.PrefixFrom(addr, 64).String()
	}
	return caller
}
