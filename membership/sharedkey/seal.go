package sharedkey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

const (
	nonceBytes = 32
	saltBytes  = 32
	// minSeal is the length of an AES-256 gossip key.
	minSeal = 32
	// sealInfo separates keys made here from all others made of the gossip key.
	sealInfo = "ringway shared key, sealed answer, format 1: "
)

// sealed is an answer that only holders of the gossip key can read.
type sealed struct {
	Salt []byte `json:"salt"`
	Box  []byte `json:"box"` // GCM nonce, ciphertext, tag
}

// answerAEAD is the cipher for one answer. HKDF (RFC 5869) with a fresh salt gives
// each its own key: whoever can reach the listener can ask as often as he likes,
// and no limit on the use of one GCM key is ever near. The label keeps apart two
// clusters that were given one gossip key.
func answerAEAD(secret Secret, label string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, sealInfo+label, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal closes plain for the asker who sent nonce.
func seal(secret Secret, label string, nonce, plain []byte) ([]byte, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	aead, err := answerAEAD(secret, label, salt)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return json.Marshal(sealed{Salt: salt, Box: aead.Seal(nil, nil, plain, nonce)})
}

// unseal opens what seal made for the same nonce.
func unseal(secret Secret, label string, nonce, data []byte) ([]byte, error) {
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil || len(s.Salt) != saltBytes || len(s.Box) == 0 {
		return nil, fmt.Errorf("%w: it is not sealed, and ours are: give all relays the same gossip key", ErrMalformed)
	}
	aead, err := answerAEAD(secret, label, s.Salt)
	if err != nil {
		return nil, fmt.Errorf("unseal: %w", err)
	}
	plain, err := aead.Open(nil, nil, s.Box, nonce)
	if err != nil {
		return nil, fmt.Errorf("%w: the seal does not open: another gossip key, another cluster, or a replayed answer", ErrMalformed)
	}
	return plain, nil
}

// unsealAny opens data with whichever of the secrets it was sealed under. The
// error is that of the first.
func unsealAny(secrets []Secret, label string, nonce, data []byte) ([]byte, error) {
	var first error
	for _, secret := range secrets {
		plain, err := unseal(secret, label, nonce, data)
		if err == nil {
			return plain, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}
