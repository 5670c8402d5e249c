package trust

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringway/ringway/membership/internal/gossip"
)

var errChain = errors.New("malformed certificates")

// appendChain writes certificates: their number, then each with its length.
func appendChain(b []byte, chain [][]byte) []byte {
	b = append(b, byte(len(chain)))
	for _, der := range chain {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(der))), der...)
	}
	return b
}

// decodeChain reads certificates. Any holder of the gossip key may have sent them.
func decodeChain(b []byte) (chain [][]byte, err error) {
	if len(b) > maxChain {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errChain, len(b), maxChain)
	}
	r := &gossip.FieldReader{Rest: b}
	n := int(r.Byte())
	if n == 0 || n > maxCertificates {
		return nil, fmt.Errorf("%w: %d of them, 1 to %d are allowed", errChain, n, maxCertificates)
	}
	for range n {
		length := r.Take(2)
		if length == nil {
			return nil, fmt.Errorf("%w: cut short", errChain)
		}
		chain = append(chain, r.Take(int(binary.BigEndian.Uint16(length))))
	}
	if r.Failed || len(r.Rest) > 0 {
		return nil, fmt.Errorf("%w: cut short or too long", errChain)
	}
	return chain, nil
}
