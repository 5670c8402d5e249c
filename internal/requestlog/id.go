package requestlog

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
)

// MaxID bounds the ID of a request in bytes.
const MaxID = 128

// ValidID reports whether an ID that a trusted sender gave can be used: 1 to MaxID visible
// ASCII characters.
func ValidID(id string) bool {
	if len(id) == 0 || len(id) > MaxID {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

const (
	prefixDigits = 16
	serialDigits = 12
	idLength     = prefixDigits + 1 + serialDigits
	// blockIDs is how many IDs are made together, so that one costs no allocation.
	blockIDs = 64
)

// IDs makes the IDs of requests: a random prefix of the process and a number. They are
// unique, and those of another process cannot be guessed. It is safe for concurrent use.
type IDs struct {
	prefix string // with the hyphen
	blocks atomic.Uint64
}

// NewIDs returns a source with a new prefix.
func NewIDs() *IDs {
	var random [prefixDigits / 2]byte
	_, _ = rand.Read(random[:]) // never fails
	return &IDs{prefix: hex.EncodeToString(random[:]) + "-"}
}

// Block holds IDs that are not used yet. The zero value is empty. It is not for concurrent
// use.
type Block struct{ rest string }

// Next returns an ID, of a new block from the source if this one is used up.
func (b *Block) Next(source *IDs) string {
	if b.rest == "" {
		first := (source.blocks.Add(1) - 1) * blockIDs
		text := make([]byte, 0, blockIDs*idLength)
		for i := range uint64(blockIDs) {
			text = appendHex(append(text, source.prefix...), first+i, serialDigits)
		}
		b.rest = string(text)
	}
	id := b.rest[:idLength]
	b.rest = b.rest[idLength:]
	return id
}
